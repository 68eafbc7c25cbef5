// Connections to one address are shared among servers; each stays with its own. Does not look behind extension headers.
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SERVERS 3
#define ADDRESS(last) { bpf_htonl(0x20010db8), bpf_htonl(0x00050000), 0, bpf_htonl(last) }

static const __be32 SERVICE[4] = ADDRESS(0x80);
static const __be32 SERVER[SERVERS][4] = { ADDRESS(1), ADDRESS(2), ADDRESS(3) };

struct client {
	struct in6_addr address;
	__be32 port;
};

// Which server a client's port has.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct client);
	__type(value, __u32);
} chosen SEC(".maps");

static __always_inline int is_same(const __be32 *one, const __be32 *other)
{
	return one[0] == other[0] && one[1] == other[1] && one[2] == other[2] && one[3] == other[3];
}

static __always_inline int set(struct __sk_buff *skb, int at, const __be32 *from, const __be32 *to)
{
	__s64 change = bpf_csum_diff((__be32 *)from, 16, (__be32 *)to, 16, 0);

	bpf_l4_csum_replace(skb, ETH_HLEN + sizeof(struct ipv6hdr) + offsetof(struct tcphdr, check), 0, change,
			    BPF_F_PSEUDO_HDR);
	return bpf_skb_store_bytes(skb, ETH_HLEN + at, to, 16, 0) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

static __always_inline struct tcphdr *headers(struct __sk_buff *skb, struct ipv6hdr **ip)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = data + ETH_HLEN + sizeof(**ip);

	*ip = data + ETH_HLEN;
	if ((void *)(tcp + 1) > end || skb->protocol != bpf_htons(ETH_P_IPV6) || (*ip)->nexthdr != IPPROTO_TCP)
		return NULL;
	return tcp;
}

SEC("tc")
int ingress(struct __sk_buff *skb)
{
	struct ipv6hdr *ip;
	struct tcphdr *tcp = headers(skb, &ip);

	if (!tcp || !is_same(ip->daddr.in6_u.u6_addr32, SERVICE))
		return TC_ACT_UNSPEC;
	struct client client = { .address = ip->saddr, .port = tcp->source };
	__u32 *known = bpf_map_lookup_elem(&chosen, &client);
	__u32 number = known ? *known : bpf_get_prandom_u32() % SERVERS;
	if (!known) {
		if (!tcp->syn)
			return TC_ACT_SHOT;
		bpf_map_update_elem(&chosen, &client, &number, BPF_ANY);
	}
	if (number >= SERVERS)
		return TC_ACT_SHOT;
	return set(skb, offsetof(struct ipv6hdr, daddr), SERVICE, SERVER[number]);
}

SEC("tc")
int egress(struct __sk_buff *skb)
{
	struct ipv6hdr *ip;
	struct tcphdr *tcp = headers(skb, &ip);

	if (!tcp)
		return TC_ACT_UNSPEC;
	struct client client = { .address = ip->daddr, .port = tcp->dest };
	__u32 *number = bpf_map_lookup_elem(&chosen, &client);
	if (!number || *number >= SERVERS || !is_same(ip->saddr.in6_u.u6_addr32, SERVER[*number]))
		return TC_ACT_UNSPEC;
	return set(skb, offsetof(struct ipv6hdr, saddr), SERVER[*number], SERVICE);
}

char LICENSE[] SEC("license") = "GPL";
