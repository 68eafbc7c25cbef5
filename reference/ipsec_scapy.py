#!/usr/bin/python3
"""AH and ESP by scapy, an implementation with which the tests of `crates/ipsec` compare theirs.

    reference/ipsec_scapy.py < CASES

Each line of the input is a case in JSON: an association, a packet, and the same packet sealed. The answer has:

- "opened": what scapy makes of the sealed one;
- "sealed": what scapy itself makes of the packet, with the number, the IV and the outer header of the sealed one;
- "next": the packet once more, with the next number and an IV of scapy's own.

Needs Debian's python3-scapy. What scapy 2.5 does not do, and this script does for it: of ESP in UDP, the length, the
checksum that IPv6 demands, and the place behind extension headers; to open it in transport mode over IPv6.
"""

import json
import sys

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import AH, ESP, SecurityAssociation


def parse(packet):
    return (IPv6 if packet[0] >> 4 == 6 else IP)(packet)


def association(case, outer, sequence):
    def key(name):
        return bytes.fromhex(case[name]) or None

    return SecurityAssociation(
        ESP if case["protocol"] == "esp" else AH,
        spi=case["spi"],
        seq_num=sequence & 0xFFFFFFFF,
        crypt_algo=case["encryption"],
        crypt_key=key("encryption_key"),
        auth_algo=case["authentication"],
        auth_key=key("authentication_key"),
        tunnel_header=outer,
        nat_t_header=UDP(sport=4500, dport=4500) if case["in_udp"] else None,
        esn_en=case["extended"],
        esn=sequence >> 32,
    )


def outer_header(case):
    """The outer header of the packet that was sealed, without what is in it."""
    if not case["tunnel"]:
        return None
    outer = parse(bytes.fromhex(case["sealed"]))
    outer.remove_payload()
    return outer


def opened(case):
    packet = parse(bytes.fromhex(case["sealed"]))
    if case["in_udp"] and packet.version == 6:
        esp, before = bytes(packet[ESP]), packet[UDP].underlayer
        before.remove_payload()
        before.nh = 50
        packet.plen = None
        packet = IPv6(bytes(packet / ESP(esp)))
    return association(case, outer_header(case), case["sequence"]).decrypt(packet)


def sealed(case, sequence, iv):
    security = association(case, outer_header(case), sequence)
    packet = security.encrypt(parse(bytes.fromhex(case["packet"])), iv=iv)
    if case["in_udp"]:
        packet[UDP].len = len(packet[UDP])
        if packet.version == 6:
            del packet[UDP].chksum
            packet[UDP].underlayer.nh = 17
    return packet


def answer(case):
    iv = None
    if case["protocol"] == "esp":
        security = association(case, None, 1)
        iv = parse(bytes.fromhex(case["sealed"]))[ESP].data[: security.crypt_algo.iv_size]
    return {
        "opened": bytes(opened(case)).hex(),
        "sealed": bytes(sealed(case, case["sequence"], iv)).hex(),
        "next": bytes(sealed(case, case["sequence"] + 1, None)).hex(),
    }


def main():
    for line in sys.stdin:
        case = json.loads(line)
        try:
            print(json.dumps(answer(case)))
        except Exception as error:  # Whatever it is, the test names the case.
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}))


if __name__ == "__main__":
    main()
