// Address translation without state, for IPv4 and IPv6. Does not look behind extension headers.
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/icmpv6.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define HEADER(type, member) (ETH_HLEN + offsetof(struct type, member))

// fd00::2 and 2001:db8::1; 192.168.0.2 and 10.0.0.1
static const __be32 INSIDE6[4] = { bpf_htonl(0xfd000000), 0, 0, bpf_htonl(2) };
static const __be32 OUTSIDE6[4] = { bpf_htonl(0x20010db8), 0, 0, bpf_htonl(1) };
static const __be32 INSIDE4 = bpf_htonl(0xc0a80002), OUTSIDE4 = bpf_htonl(0x0a000001);

// Makes up for a change of the addresses in the checksum of what is behind them.
static __always_inline void mend(struct __sk_buff *skb, __u8 protocol, int header, __s64 change)
{
	int at;
	__u64 flags = BPF_F_PSEUDO_HDR;

	switch (protocol) {
	case IPPROTO_TCP:
		at = offsetof(struct tcphdr, check);
		break;
	case IPPROTO_UDP:
		at = offsetof(struct udphdr, check);
		flags |= BPF_F_MARK_MANGLED_0;
		break;
	case IPPROTO_ICMPV6:
		at = offsetof(struct icmp6hdr, icmp6_cksum);
		break;
	default:
		return;
	}
	bpf_l4_csum_replace(skb, header + at, 0, change, flags);
}

static __always_inline int translate(struct __sk_buff *skb, int at6, const __be32 *from6, const __be32 *to6, int at4,
				     __be32 from4, __be32 to4)
{
	__be32 address[4];
	__u8 protocol;
	__s64 change;

	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, at6, address, 16) ||
		    bpf_skb_load_bytes(skb, HEADER(ipv6hdr, nexthdr), &protocol, 1))
			return TC_ACT_SHOT;
		if (address[0] != from6[0] || address[1] != from6[1] || address[2] != from6[2] || address[3] != from6[3])
			return TC_ACT_UNSPEC;
		change = bpf_csum_diff(address, 16, (__be32 *)to6, 16, 0);
		bpf_skb_store_bytes(skb, at6, to6, 16, 0);
		mend(skb, protocol, ETH_HLEN + sizeof(struct ipv6hdr), change);
	} else if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) ||
		    bpf_skb_load_bytes(skb, at4, address, 4))
			return TC_ACT_SHOT;
		if (address[0] != from4)
			return TC_ACT_UNSPEC;
		change = bpf_csum_diff(address, 4, &to4, 4, 0);
		bpf_skb_store_bytes(skb, at4, &to4, 4, 0);
		bpf_l3_csum_replace(skb, HEADER(iphdr, check), 0, change, 0);
		if (!(ip.frag_off & bpf_htons(0x1fff)) && ip.protocol != IPPROTO_ICMPV6)
			mend(skb, ip.protocol, ETH_HLEN + ip.ihl * 4, change);
	}
	return TC_ACT_UNSPEC;
}

SEC("tc")
int egress(struct __sk_buff *skb)
{
	return translate(skb, HEADER(ipv6hdr, saddr), INSIDE6, OUTSIDE6, HEADER(iphdr, saddr), INSIDE4, OUTSIDE4);
}

SEC("tc")
int ingress(struct __sk_buff *skb)
{
	return translate(skb, HEADER(ipv6hdr, daddr), OUTSIDE6, INSIDE6, HEADER(iphdr, daddr), OUTSIDE4, INSIDE4);
}

char LICENSE[] SEC("license") = "GPL";
