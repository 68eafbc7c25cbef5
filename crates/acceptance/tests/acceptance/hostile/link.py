"""What mutate.py and provider.py have in common: a link of which everything is seen, and checksums."""

import socket
import struct

EVERYTHING, IPV6, UDP, ICMPV6 = 3, 0x86DD, 17, 58


def opened(interface, timeout):
    """A packet socket. What goes out is seen, too, but for what is sent by it."""
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    link.bind((interface, EVERYTHING))
    link.settimeout(timeout)
    return link


def checksum(source, destination, kind, content):
    """Of an upper-layer packet (RFC 8200 section 8.1), whose own checksum is zero."""
    octets = source + destination + struct.pack("!II", len(content), kind) + content + bytes(len(content) % 2)
    value = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while value >> 16:
        value = (value & 0xFFFF) + (value >> 16)
    return (value ^ 0xFFFF) or 0xFFFF
