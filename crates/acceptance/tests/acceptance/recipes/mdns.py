"""Asks for a name by mDNS, once a second until somebody answers: INTERFACE NAME TYPE ADDRESS-OF-THE-GROUP.

Prints who has answered, and with what: an address, or the name that a PTR has. Exit status 1 if nobody does within a while.
"""

import socket
import struct
import sys
import time

interface, name, kind, group = sys.argv[1:5]
KINDS = {"A": 1, "PTR": 12, "AAAA": 28}
index = socket.if_nametoindex(interface)
if ":" in group:
    asker = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    asker.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    asker.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
    member = socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", index)
    asker.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
else:
    asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    member = struct.pack("@4s4si", socket.inet_aton(group), b"\0" * 4, index)
    asker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, member)
    asker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
    asker.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
asker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
asker.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
asker.bind(("", 5353))


def name_at(message, at):
    """A name, and where it ends."""
    labels, end = [], None
    while message[at]:
        if message[at] >= 0xC0:
            end = end or at + 2
            at = struct.unpack_from(">H", message, at)[0] & 0x3FFF
        else:
            labels.append(message[at + 1 : at + 1 + message[at]].decode())
            at += 1 + message[at]
    return ".".join(labels), end or at + 1


def answers(message):
    """The answers of a response of this kind and name, as text."""
    _, flags, questions, *counts = struct.unpack_from(">6H", message)
    if not flags & 0x8000:
        return
    at = 12
    for _ in range(questions):
        at = name_at(message, at)[1] + 4
    for _ in range(sum(counts)):
        owner, at = name_at(message, at)
        its_kind, _, _, length = struct.unpack_from(">HHIH", message, at)
        at += 10
        if owner.lower() == name.lower() and its_kind == KINDS[kind]:
            if kind == "PTR":
                yield name_at(message, at)[0]
            else:
                yield socket.inet_ntop(socket.AF_INET6 if kind == "AAAA" else socket.AF_INET, message[at : at + length])
        at += length


question = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
query = struct.pack(">6H", 0, 0, 1, 0, 0, 0) + question + struct.pack(">BHH", 0, KINDS[kind], 1)
end = time.monotonic() + float(sys.argv[5])
while time.monotonic() < end:
    asker.sendto(query, (group, 5353))
    asker.settimeout(1)
    try:
        while True:
            message, sender = asker.recvfrom(9000)
            for answer in answers(message):
                print(sender[0].split("%")[0], answer)
                sys.exit(0)
    except TimeoutError:
        pass
sys.exit(1)
