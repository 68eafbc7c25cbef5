// Which names are asked for, and by whom; load.c writes them. IPv6, and does not look behind extension headers.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define QUESTION (ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct udphdr) + 12)

struct query {
	struct in6_addr from;
	__u32 length;
	__u8 question[260]; // name, type and class
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} queries SEC(".maps");

SEC("tc")
int ingress(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv6hdr *ip = data + ETH_HLEN;
	struct udphdr *udp = (void *)(ip + 1);
	__u8 *dns = (void *)(udp + 1);

	if ((void *)(dns + 12) > end || skb->protocol != bpf_htons(ETH_P_IPV6) || ip->nexthdr != IPPROTO_UDP ||
	    udp->dest != bpf_htons(53))
		return TC_ACT_UNSPEC;
	if (dns[2] & 0x80 || !(dns[4] | dns[5])) // an answer, or no question
		return TC_ACT_UNSPEC;
	struct query *query = bpf_ringbuf_reserve(&queries, sizeof(*query), 0);
	if (!query)
		return TC_ACT_UNSPEC;
	__u64 length = skb->len - QUESTION;
	if (length > sizeof(query->question))
		length = sizeof(query->question);
	query->from = ip->saddr;
	query->length = length;
	barrier_var(length); // or the verifier loses its bounds
	if (length < 5 || length > sizeof(query->question) ||
	    bpf_skb_load_bytes(skb, QUESTION, query->question, length))
		bpf_ringbuf_discard(query, 0);
	else
		bpf_ringbuf_submit(query, 0);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
