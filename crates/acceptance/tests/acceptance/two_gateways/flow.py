"""A TCP flow that goes to and fro all the time. `serve ADDRESS PORT` echoes; `run ADDRESS PORT SECONDS` sends a number every
10 ms, sees that all come back in order, and prints how many did and the longest time in which none came, in milliseconds."""

import socket
import sys
import threading
import time


def serve(address, port):
    listener = socket.create_server((address, int(port)), family=socket.AF_INET6)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=echo, args=(connection,), daemon=True).start()


def echo(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(4096):
        connection.sendall(data)


def run(address, port, seconds):
    connection = socket.create_connection((address, int(port)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print("connected", flush=True)
    count = int(float(seconds) * 100)

    def send():
        begin = time.monotonic()
        for number in range(count):
            time.sleep(max(0, begin + number * 0.01 - time.monotonic()))
            connection.sendall(number.to_bytes(4, "big"))

    threading.Thread(target=send, daemon=True).start()
    expected, rest, last, longest = 0, b"", time.monotonic(), 0
    while expected < count:
        data = connection.recv(4096)
        if not data:
            sys.exit("the connection was closed")
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        rest += data
        while len(rest) >= 4:
            if int.from_bytes(rest[:4], "big") != expected:
                sys.exit("what came back is not what was sent")
            expected, rest = expected + 1, rest[4:]
    print(expected, round(longest * 1000))


globals()[sys.argv[1]](*sys.argv[2:])
