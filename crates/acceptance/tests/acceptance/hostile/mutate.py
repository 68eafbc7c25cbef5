"""Sends mutated copies of the datagrams that it sees on a link, for some seconds: INTERFACE PREFIX PEER SECONDS RATE

Copies of datagrams to PREFIX, RATE a second at the most: bits flipped, cut, extended, two joined, random octets, older ones
again, from other ports and from addresses that are nobody's, with right UDP checksums. Meanwhile it looks for what the link
brings that is neither for PEER, where the tunnel's other end moves, nor neighbor discovery: answers. Prints both as JSON.
"""

import ipaddress
import json
import random
import socket
import struct
import sys
import time

from link import ICMPV6, IPV6, UDP, checksum, opened

interface, prefix, peer, seconds, rate = sys.argv[1:]
prefix, peer = (ipaddress.ip_network(net).network_address.packed[:8] for net in (prefix, peer))
MULTICAST = 0xFF
STRANGERS = ipaddress.ip_network("2001:db8:bad::/64").network_address.packed[:8]

link = opened(interface, timeout=0.1)


def flipped(payload, count):
    changed = bytearray(payload)
    for _ in range(count):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


MUTATIONS = {
    "a bit": lambda payload, other: flipped(payload, 1),
    "some bits": lambda payload, other: flipped(payload, random.randrange(2, 32)),
    "the first octets": lambda payload, other: random.randbytes(16) + payload[16:],
    "the last octets": lambda payload, other: payload[:-16] + random.randbytes(16),
    "cut": lambda payload, other: payload[: random.randrange(len(payload))],
    "extended": lambda payload, other: payload + random.randbytes(random.randrange(1, 64)),
    "joined": lambda payload, other: payload[: len(payload) // 2] + other[len(other) // 2 :],
    "random": lambda payload, other: random.randbytes(len(payload)),
    "the same": lambda payload, other: payload,
    "an older one": lambda payload, other: other,
}


def mutated(frame, other):
    """A frame like this one with another payload, and the name of what was done."""
    name = random.choice(list(MUTATIONS))
    payload = MUTATIONS[name](frame[62:], other[62:])
    source, destination = frame[22:38], frame[38:54]
    source_port, port = frame[54:56], frame[56:58]
    # One in four comes from where the genuine one came from.
    if random.randrange(4):
        source = random.choice([STRANGERS + random.randbytes(8), peer + random.randbytes(8)])
    if random.randrange(4) == 0:
        source_port = random.randbytes(2)
    if random.randrange(8) == 0:
        destination, port = other[38:54], other[56:58]
    length = struct.pack("!H", 8 + len(payload))
    check = checksum(source, destination, UDP, source_port + port + length + bytes(2) + payload)
    head = frame[:14] + struct.pack("!IHBB", 6 << 28 | random.randrange(1 << 28), 8 + len(payload), UDP, 64)
    return name, head + source + destination + source_port + port + length + struct.pack("!H", check) + payload


sent = dict.fromkeys(MUTATIONS, 0)
seen, answers = [], []
end, next_copy = time.monotonic() + float(seconds), 0.0
while (now := time.monotonic()) < end:
    try:
        frame, address = link.recvfrom(65_535)
    except TimeoutError:
        continue
    if address[1] != IPV6:
        continue
    outgoing = address[2] == socket.PACKET_OUTGOING
    destination, next_header = frame[38:54], frame[20]
    if not outgoing:
        discovery = next_header == ICMPV6 and 133 <= frame[54] <= 137
        of_the_tunnel = next_header == UDP and destination[:8] == peer
        if not (discovery or of_the_tunnel or destination[0] == MULTICAST):
            answers.append(frame.hex())
        continue
    if next_header != UDP or destination[:8] != prefix or len(frame) < 78:
        continue
    seen.append(frame)
    if len(seen) > 2_000:
        # Some stay for a long time.
        seen.pop(random.randrange(len(seen)))
    if now < next_copy:
        continue
    next_copy = max(next_copy, now - 0.1) + 1 / float(rate)
    name, copy = mutated(frame, random.choice(seen))
    try:
        link.send(copy)
        sent[name] += 1
    except OSError:
        pass  # a full queue
print(json.dumps({"sent": sent, "answers": answers[:5], "answered": len(answers)}))
