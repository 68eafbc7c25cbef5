"""Sends crafted router advertisements and DHCPv6 answers on a provider's link, for some seconds: INTERFACE SECONDS RATE

Both are made of genuine ones that it has seen there: bits flipped, cut, extended, options repeated, left out, of wrong
lengths, in another order. Advertisements, RATE a second, from the genuine router and from others; answers, five to each
message of a client, with its transaction and identifier, before the genuine one. Prints how many as JSON.
"""

import json
import random
import socket
import struct
import sys
import time

from link import ICMPV6, IPV6, UDP, checksum, opened

interface, seconds, rate = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
ADVERTISEMENT = 134
CLIENT_PORT, SERVER_PORT = 546, 547
CLIENT_ID = 1
NODES, NODES_MAC = bytes.fromhex("ff02" + "00" * 13 + "01"), bytes.fromhex("333300000001")
# Solicit is answered by Advertise, everything else by Reply (RFC 8415 section 7.3).
SOLICIT, ADVERTISE, REPLY = 1, 2, 7

# Enough for any list; all namespaces of a machine share the room of the kernel's neighbor cache.
STRANGERS = [bytes([0xFE, 0x80]) + bytes(6) + random.randbytes(8) for _ in range(256)]

link = opened(interface, timeout=0.002)
own_mac = link.getsockname()[4]


def frame(mac, source, destination, kind, hop_limit, content, checksum_at):
    check = struct.pack("!H", checksum(source, destination, kind, content))
    content = content[:checksum_at] + check + content[checksum_at + 2 :]
    head = struct.pack("!IHBB", 6 << 28, len(content), kind, hop_limit)
    return mac + own_mac + struct.pack("!H", IPV6) + head + source + destination + content


def parsed(octets, header, length_of):
    """Options of a message, each with its header; what is left over is one, too."""
    options = []
    while len(octets) >= header and (length := length_of(octets)):
        options.append(octets[:length])
        octets = octets[length:]
    return options + ([octets] if octets else [])


def mutated(options):
    """Options with up to three changes."""
    options = list(options) or [b""]
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(options))
        change = random.randrange(8)
        changed = bytearray(options[at])
        if change == 0:
            options.insert(at, options[at])
        elif change == 1 and len(options) > 1:
            options.pop(at)
        elif change == 2:
            random.shuffle(options)
        elif change == 3 and changed:
            changed[random.randrange(min(4, len(changed)))] = random.randrange(256)
            options[at] = bytes(changed)
        elif change == 4 and changed:
            options[at] = options[at][: random.randrange(len(changed))]
        elif change == 5:
            options[at] += random.randbytes(random.choice([1, 8, 200]))
        elif changed:
            for _ in range(random.randrange(1, 9)):
                changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
            options[at] = bytes(changed)
    return b"".join(options)[:1_200]


def router_advertisement(genuine):
    source = genuine[22:38] if random.randrange(4) == 0 else random.choice(STRANGERS)
    fixed, options = bytearray(genuine[54:70]), parsed(genuine[70:], 8, lambda octets: octets[1] * 8)
    for at in range(4, 16):
        if random.randrange(8) == 0:
            fixed[at] = random.randrange(256)
    if random.randrange(256) == 0:
        fixed[6:8] = bytes(2)  # no router any more
    content = bytes(fixed[:2]) + bytes(2) + bytes(fixed[4:]) + mutated(options)
    hop_limit = 255 if random.randrange(16) else 64
    return frame(NODES_MAC, source, NODES, ICMPV6, hop_limit, content, 2)


def dhcp_options(octets):
    return parsed(octets, 4, lambda octets: 4 + struct.unpack("!H", octets[2:4])[0])


def dhcp_answer(client, genuine):
    """To a client's message, like one that the server has sent."""
    kind = ADVERTISE if client[62] == SOLICIT else REPLY
    options = [option for option in dhcp_options(genuine[66:]) if option[:2] != struct.pack("!H", CLIENT_ID)]
    identity = [option for option in dhcp_options(client[66:]) if option[:2] == struct.pack("!H", CLIENT_ID)]
    message = bytes([kind]) + client[63:66] + b"".join(identity) + mutated(options)
    content = struct.pack("!HHHH", SERVER_PORT, CLIENT_PORT, 8 + len(message), 0) + message
    source = genuine[22:38] if random.randrange(2) else random.choice(STRANGERS)
    return frame(client[6:12], source, client[22:38], UDP, 64, content, 6)


sent = {"advertisements": 0, "answers": 0}


def send(kind, octets):
    try:
        link.send(octets)
        sent[kind] += 1
    except OSError:
        pass  # a full queue


router, server = None, None
end, next_one = time.monotonic() + seconds, 0.0
while (now := time.monotonic()) < end:
    try:
        seen, address = link.recvfrom(65_535)
    except TimeoutError:
        seen, address = b"", None
    if len(seen) > 70 and address[1] == IPV6:
        outgoing = address[2] == socket.PACKET_OUTGOING
        ports = struct.unpack("!HH", seen[54:58])
        if outgoing and seen[20] == ICMPV6 and seen[54] == ADVERTISEMENT:
            router = seen
        elif outgoing and seen[20] == UDP and ports == (SERVER_PORT, CLIENT_PORT):
            server = seen
        elif not outgoing and seen[20] == UDP and ports[1] == SERVER_PORT and server:
            for _ in range(5):
                send("answers", dhcp_answer(seen, server))
    if router and now >= next_one:
        next_one = max(next_one, now - 0.1) + 1 / rate
        send("advertisements", router_advertisement(router))
print(json.dumps(sent))
