"""Sends what a stack could answer, one packet of each kind, and prints how many: INTERFACE MAC SOURCE PORT TARGET…

Every next header, ICMPv6 type, option type, routing type and combination of TCP flags, broken lengths and checksums,
fragments that never become whole, chains of headers in wrong orders, and sources that nobody has. PORT is open at the
first target, if at any.
"""

import socket
import sys
import time
from random import Random

from scapy.layers.inet import TCP, UDP
from scapy.layers.inet6 import (
    HBHOptUnknown,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    Jumbo,
    RouterAlert,
    in6_chksum,
)
from scapy.layers.l2 import Ether
from scapy.packet import Raw

interface, mac, source, port, *targets = sys.argv[1:]
port = int(port)
chance = Random(1)
UDP_HEADER, ICMPV6 = 17, 58


def octets(count):
    return bytes(chance.randrange(256) for _ in range(count))


def datagram(**fields):
    return UDP(**{"sport": 4000, "dport": port, **fields}) / Raw(octets(64))


def headers_of(target):
    """Chains of headers: from the one behind the IPv6 header on."""
    for number in range(256):
        yield {"nh": number}, Raw(bytes(8) + octets(56))
    quoted = bytes(IPv6(src=target, dst=source) / datagram(sport=port, dport=4000))
    for kind in range(256):
        for code in (0, 1, 7):
            yield {"nh": ICMPV6, "icmpv6": True}, Raw(bytes([kind, code, 0, 0, 0, 0, 5, 0]) + quoted)
    for header in (IPv6ExtHdrHopByHop, IPv6ExtHdrDestOpt):
        for kind in range(256):
            yield {}, header(options=[HBHOptUnknown(otype=kind, optdata=octets(4))]) / datagram()
        yield {}, header(options=[HBHOptUnknown(otype=0x3E, optlen=200, optdata=octets(4))]) / datagram()
        yield {}, header(len=255, options=[]) / datagram()
        yield {}, header() / header() / datagram()
    yield {}, IPv6ExtHdrHopByHop(options=[RouterAlert()]) / datagram()
    yield {"plen": 0}, IPv6ExtHdrHopByHop(options=[Jumbo(jumboplen=70_000)]) / datagram()
    for kind in range(256):
        for left in (0, 1, 200):
            yield {}, IPv6ExtHdrRouting(type=kind, segleft=left, addresses=[source]) / datagram()
    yield from fragments()
    for flags in range(256):
        yield {}, TCP(sport=4000, dport=port, flags=flags, seq=chance.randrange(1 << 32)) / Raw(octets(8))
    for fields in ({}, {"chksum": 0}, {"chksum": 1}, {"len": 0}, {"len": 7}, {"len": 4_000}, {"len": 65_535}):
        yield {}, datagram(**fields)
    for fields in ({"hlim": 0}, {"hlim": 1}, {"plen": 0}, {"plen": 4}, {"plen": 65_535}, {"version": 4}, {"fl": 0xFFFFF}):
        yield fields, datagram()
    for strange in ("::", "::1", "ff02::1", "fe80::1", "::ffff:192.0.2.1", target):
        yield {"src": strange}, datagram()
        yield {"src": strange, "nh": ICMPV6, "icmpv6": True}, Raw(bytes([128, 0, 0, 0, 0, 1, 0, 1]) + octets(32))


def fragments():
    whole = bytes(datagram()) + octets(64)
    echo = bytes([128, 0, 0, 0, 0, 1, 0, 1]) + octets(128)
    for number, content in ((UDP_HEADER, whole), (ICMPV6, echo)):
        for offset, more, length in (
            (0, 0, 72),  # atomic
            (0, 1, 8),  # tiny, and the rest never comes
            (0, 1, 72),
            (0, 1, 64),
            (4, 0, 64),  # overlaps it
            (8, 1, 16),  # has a hole before it
            (0, 1, 13),  # no multiple of eight
            (8_191, 0, 64),  # beyond the longest packet
            (0, 0, 0),
        ):
            header = IPv6ExtHdrFragment(nh=number, offset=offset, m=more, id=chance.randrange(1 << 32))
            yield {}, header / Raw(content[:length])
    yield {}, IPv6ExtHdrFragment(nh=0, offset=0, m=1) / Raw(octets(8))
    yield {}, IPv6ExtHdrFragment(nh=44, offset=0, m=0) / IPv6ExtHdrFragment(nh=UDP_HEADER) / datagram()
    options = IPv6ExtHdrDestOpt(options=[HBHOptUnknown(otype=0xC0, optdata=octets(4))])
    yield {}, options / IPv6ExtHdrFragment(nh=UDP_HEADER, m=1) / Raw(whole[:64])


def with_checksum(packet):
    """Fills in the checksum of an ICMPv6 message that scapy sees as mere octets."""
    message = bytes(packet.payload)
    check = in6_chksum(ICMPV6, packet, message)
    packet.payload = Raw(message[:2] + check.to_bytes(2, "big") + message[4:])
    return packet


frames = []
for target in targets:
    for fields, rest in headers_of(target):
        checked = fields.pop("icmpv6", False)
        packet = IPv6(**{"src": source, "dst": target, "hlim": 64, **fields}) / rest
        frames.append(bytes(Ether(dst=mac) / (with_checksum(packet) if checked else packet)))
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((interface, 0))
for number, frame in enumerate(frames):
    link.send(frame)
    if number % 32 == 0:
        time.sleep(0.001)  # so that each is judged, and none is lost in a full queue
print(len(frames))
