// TLS connections to a name go nowhere: finds it where the ClientHello is in one segment. IPv6, and does not look behind
// extension headers.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define LONGEST 64
#define EXTENSIONS 32
#define HANDSHAKE 22
#define CLIENT_HELLO 1

static const char REFUSED[] = "forbidden.example";

static __always_inline int load16(struct __sk_buff *skb, __u32 at)
{
	__be16 value;

	return bpf_skb_load_bytes(skb, at, &value, 2) ? -1 : bpf_ntohs(value);
}

static __always_inline int load8(struct __sk_buff *skb, __u32 at)
{
	__u8 value;

	return bpf_skb_load_bytes(skb, at, &value, 1) ? -1 : value;
}

static __always_inline int is_refused(struct __sk_buff *skb, __u32 at)
{
	char name[LONGEST] = {};
	__s64 length = load16(skb, at);

	barrier_var(length); // or the verifier loses its bounds
	if (length <= 0 || length >= LONGEST || bpf_skb_load_bytes(skb, at + 2, name, length))
		return 0;
	for (int i = 0; i < LONGEST; i++)
		if (name[i] >= 'A' && name[i] <= 'Z')
			name[i] |= 0x20;
	if (name[length - 1] == '.')
		name[length - 1] = 0;
	return !bpf_strncmp(name, LONGEST, REFUSED);
}

SEC("tc")
int ingress(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv6hdr *ip = data + ETH_HLEN;
	struct tcphdr *tcp = (void *)(ip + 1);

	if ((void *)(tcp + 1) > end || skb->protocol != bpf_htons(ETH_P_IPV6) || ip->nexthdr != IPPROTO_TCP ||
	    tcp->dest != bpf_htons(443))
		return TC_ACT_UNSPEC;
	__u32 at = ETH_HLEN + sizeof(*ip) + tcp->doff * 4;
	if (load8(skb, at) != HANDSHAKE || load8(skb, at + 5) != CLIENT_HELLO)
		return TC_ACT_UNSPEC;

	at += 5 + 4 + 2 + 32; // headers of record and handshake, version, random number
	int length = load8(skb, at); // session
	if (length < 0)
		return TC_ACT_UNSPEC;
	at += 1 + length;
	length = load16(skb, at); // cipher suites
	if (length < 0)
		return TC_ACT_UNSPEC;
	at += 2 + length;
	length = load8(skb, at); // compression
	if (length < 0)
		return TC_ACT_UNSPEC;
	at += 1 + length + 2;
	for (int i = 0; i < EXTENSIONS; i++) {
		int type = load16(skb, at);

		length = load16(skb, at + 2);
		if (type < 0 || length < 0)
			return TC_ACT_UNSPEC;
		if (type == 0) // server_name: length of the list, kind of the name
			return is_refused(skb, at + 4 + 3) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
		at += 4 + length;
	}
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
