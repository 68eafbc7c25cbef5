"""A resolver that makes what it says of ipv4only.arpa (RFC 7050) out of a file, which the test writes: how it answers, a TTL, and
addresses. Each question of that name is a line in a second file."""

import ipaddress
import socket
import sys

policy, log, address = sys.argv[1:]
FORGED = ["2001:db8:bad::c000:aa"]


def answer(question, addresses, ttl, flags=0x8180):
    """What answers these bytes, whose only question stays as it is."""
    end = question.index(b"\0", 12) + 5
    header = question[:2] + flags.to_bytes(2, "big") + b"\0\1" + len(addresses).to_bytes(2, "big") + bytes(4)
    record = b"\xc0\x0c\0\x1c\0\1" + ttl.to_bytes(4, "big") + b"\0\x10"
    return header + question[12:end] + b"".join(record + ipaddress.ip_address(a).packed for a in addresses)


def answers(question, mode, ttl, addresses):
    if mode == "silent":
        return []
    if mode == "nothing":
        return [answer(question, [], 0)]
    if mode == "no-such-name":
        return [answer(question, [], 0, 0x8183)]
    if mode == "fails":
        return [answer(question, [], 0, 0x8182)]
    right = answer(question, addresses, ttl)
    if mode == "junk":
        # Another number, another name, another type, a question sent back; nothing at all, and half of what is right.
        forged = answer(question, FORGED, 3600)
        other_name = bytes([*forged[:13], forged[13] ^ 1, *forged[14:]])
        end = question.index(b"\0", 12) + 1
        other_type = bytes([*forged[:end], 0, 1, *forged[end + 2:]])
        other_number = bytes([forged[0] ^ 1, *forged[1:]])
        asked = bytes([*forged[:2], 1, 0, *forged[4:]])
        return [other_number, other_name, other_type, asked, b"", right[:40], right]
    return [right]


server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
server.bind((address, 53))
while True:
    question, client = server.recvfrom(2000)
    if b"\x08ipv4only\x04arpa\0\0\x1c\0\1" not in question:
        continue
    with open(log, "a") as lines:
        print(client[0], client[1], question[:2].hex(), question[2] & 1, question[3] & 0x10, file=lines)
    with open(policy) as file:
        mode, ttl, *addresses = file.read().split()
    for datagram in answers(question, mode, int(ttl), addresses):
        server.sendto(datagram, client)
