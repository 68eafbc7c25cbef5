// Packets from networks of a list are dropped, and counted by list; IPv4 is looked up as ::ffff:0:0/96.
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct prefix {
	__u32 length;
	struct in6_addr address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct prefix);
	__type(value, __u32);
} blocked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} refused SEC(".maps");

static __always_inline bool is_blocked(void *data, void *end)
{
	struct prefix key = { .length = 128 };
	struct ethhdr *eth = data;

	if ((void *)(eth + 1) > end)
		return false;
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > end)
			return false;
		key.address = ip->saddr;
	} else if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > end)
			return false;
		key.address.in6_u.u6_addr16[5] = 0xffff;
		key.address.in6_u.u6_addr32[3] = ip->saddr;
	} else {
		return false;
	}

	__u32 *list = bpf_map_lookup_elem(&blocked, &key);
	if (!list || !*list)
		return false;
	__u64 *count = bpf_map_lookup_elem(&refused, list);
	if (count)
		++*count;
	return true;
}

SEC("tc")
int ingress(struct __sk_buff *skb)
{
	return is_blocked((void *)(long)skb->data, (void *)(long)skb->data_end) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("xdp")
int at_xdp(struct xdp_md *frame)
{
	return is_blocked((void *)(long)frame->data, (void *)(long)frame->data_end) ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
