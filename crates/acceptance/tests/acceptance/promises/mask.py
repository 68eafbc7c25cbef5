"""The two ends of another tunnel: `send LOCAL REMOTE COUNT LARGEST` sends numbered messages, which `answer LOCAL REMOTE` sends
back."""

import hashlib
import random
import re
import socket
import sys
import threading
import time

MARKER = b"\x04\0\0\0whatever is masked"
SIZES = [32, 64, 92, 112, 148, 159, 160, 200, 800]


def end(text):
    address, port = re.fullmatch(r"\[(.*)\]:(\d+)", text).groups()
    return address, int(port)


def message(number):
    """Its length and its contents follow from its number; it ends in what looks like a tag, or in zeros if it is small."""
    size = SIZES[number % len(SIZES)]
    start = MARKER + number.to_bytes(4, "big")
    rest = random.Random(number).randbytes(1500)
    last = bytes(16) if size < 160 else hashlib.sha256(start).digest()[:16]
    return (start + rest)[: size - 16] + last if size > 48 else start + rest[: size - len(start)]


def number_of(data):
    return int.from_bytes(data[len(MARKER) : len(MARKER) + 4], "big")


mode, local, remote = sys.argv[1], end(sys.argv[2]), end(sys.argv[3])
flow = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
flow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
# The address goes with the tunnel and comes back with it.
flow.setsockopt(socket.IPPROTO_IPV6, 78, 1)
flow.bind(local)
if mode == "answer":
    while True:
        try:
            data, source = flow.recvfrom(2048)
            if source[:2] == remote:
                flow.sendto(data, source)
        except OSError:
            time.sleep(0.01)

count, back, wrong = int(sys.argv[4]), set(), 0
SIZES.append(int(sys.argv[5]))


def receive():
    global wrong
    flow.settimeout(3)
    while len(back) < count:
        try:
            data, source = flow.recvfrom(2048)
        except TimeoutError:
            return
        except OSError:
            continue
        if source[:2] != remote or data != message(number_of(data)):
            wrong += 1
        else:
            back.add(number_of(data))


receiver = threading.Thread(target=receive)
receiver.start()
for number in range(count):
    try:
        flow.sendto(message(number), remote)
    except OSError:
        pass
    time.sleep(0.0005)
receiver.join()
print(f"{count} sent, {len(back)} came back, {wrong} wrong")
