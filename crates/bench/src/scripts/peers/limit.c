// Each source may send RATE packets of UDP a second, and BURST at once. Does not look behind extension headers.
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SECOND 1000000000ull
#define FULL (BURST * SECOND)

struct bucket {
	__u64 tokens; // in billionths
	__u64 counted;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct in6_addr);
	__type(value, struct bucket);
} buckets SEC(".maps");

static __always_inline bool is_too_much(void *data, void *end)
{
	struct ethhdr *eth = data;
	struct ipv6hdr *ip = (void *)(eth + 1);

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IPV6) || ip->nexthdr != IPPROTO_UDP)
		return false;

	__u64 now = bpf_ktime_get_ns();
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &ip->saddr);
	if (!bucket) {
		struct bucket fresh = { .tokens = FULL - SECOND, .counted = now };

		bpf_map_update_elem(&buckets, &ip->saddr, &fresh, BPF_ANY);
		return false;
	}
	__u64 since = now - bucket->counted;
	__u64 tokens = since > 60 * SECOND ? FULL : bucket->tokens + since * RATE;
	if (tokens > FULL)
		tokens = FULL;
	bool is_empty = tokens < SECOND;
	bucket->tokens = is_empty ? tokens : tokens - SECOND;
	bucket->counted = now;
	return is_empty;
}

SEC("tc")
int ingress(struct __sk_buff *skb)
{
	return is_too_much((void *)(long)skb->data, (void *)(long)skb->data_end) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("xdp")
int at_xdp(struct xdp_md *frame)
{
	return is_too_much((void *)(long)frame->data, (void *)(long)frame->data_end) ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
