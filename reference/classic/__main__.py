"""A node of the classic profile, as the thesis's Python version was: slow, and readable.

    cd reference; sudo python3 -m classic mt6d.ini

It makes the TUN device `internal_nic` with routes to the remote hosts, and takes what comes to hashed addresses on
`external_nic` with a packet socket, before the kernel, which an nftables table keeps silent. Hashed addresses are
bound to `bridging_nic`, if there is one; otherwise they have to be routed here. SIGTERM or SIGINT ends it.
"""

import collections
import fcntl
import ipaddress
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

from . import config
from .packet import Dropped, inner_mtu, whole
from .stream import Stream

ETH_P_IPV6 = 0x86DD
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
OUTER_MTU = 1500
NFT = """
table ip6 {table} {{
    set hashed {{ type ipv6_addr; }}
    chain prerouting {{
        type filter hook prerouting priority raw;
        ip6 daddr @hashed icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept
        ip6 daddr @hashed drop
    }}
}}
"""


def run(*command, text=None, check=True):
    subprocess.run(command, input=text, text=True, check=check, capture_output=not check)


class Node:
    def __init__(self, path):
        self.config = config.read(path)
        self.table = f"mt6d-{self.config.internal_nic}"
        self.counts = collections.Counter()
        self.tun = open_tun(self.config.internal_nic)
        self.received = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IPV6))
        self.received.bind((self.config.external_nic, ETH_P_IPV6))
        self.raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self.by_hosts, self.by_route = {}, {}
        self.streams = []
        self.stored = {}  # the key of each stream in the file of profiles, where it is not the first any more

    def set_up(self):
        device = self.config.internal_nic
        mtu = min(inner_mtu(settings.cipher, OUTER_MTU) for settings in self.config.streams)
        run("ip", "link", "set", device, "mtu", str(mtu), "up")
        if self.config.firewall:
            run("nft", "-f", "-", text=NFT.format(table=self.table))
        for settings in self.config.streams:
            remote = str(ipaddress.IPv6Address(settings.remote.address))
            run("ip", "-6", "route", "replace", f"{remote}/128", "dev", device)
            self.add_stream(settings)

    def add_stream(self, settings):
        stream = Stream(
            settings,
            time.time(),
            self.transmit,
            lambda route: self.made(stream, route),
            self.collected,
            lambda key: self.store_key(settings, key),
        )
        self.streams.append(stream)
        self.by_hosts[settings.local.address, settings.remote.address] = stream

    def tear_down(self):
        if self.config.firewall:
            run("nft", "delete", "table", "ip6", self.table, check=False)
        for local, _ in list(self.by_route):
            self.bind("del", local)

    # Routes

    def made(self, stream, route):
        local, remote = route.incoming.destination.address, route.incoming.source.address
        self.by_route[local, remote] = stream
        if self.config.firewall:
            self.change_set("add", local)
        self.bind("add", local)

    def collected(self, route):
        local, remote = route.incoming.destination.address, route.incoming.source.address
        self.by_route.pop((local, remote), None)
        self.bind("del", local)
        if self.config.firewall:
            self.change_set("delete", local)

    def change_set(self, verb, address):
        element = f"{{ {ipaddress.IPv6Address(address)} }}"
        run("nft", verb, "element", "ip6", self.table, "hashed", element, check=False)

    def bind(self, verb, address):
        if self.config.bridging_nic:
            address = f"{ipaddress.IPv6Address(address)}/128"
            options = ["nodad"] if verb == "add" else []
            run("ip", "-6", "addr", verb, address, "dev", self.config.bridging_nic, *options, check=False)

    def store_key(self, settings, key):
        """The key in the file of profiles in place of the old one."""
        old, new = settings.key.hex(), key.hex()
        stored = self.stored.get(settings, old)
        text = self.config.profiles.read_text().replace(stored, new)
        temporary = self.config.profiles.with_suffix(".new")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        temporary.replace(self.config.profiles)
        self.stored[settings] = new
        self.counts["keys_adopted"] += 1
        print("a new session key is adopted", file=sys.stderr, flush=True)

    # Packets

    def transmit(self, outer):
        destination = socket.inet_ntop(socket.AF_INET6, outer[24:40])
        try:
            self.raw.sendto(outer, (destination, 0))
            self.counts["sent"] += 1
        except OSError:
            self.counts["send_failed"] += 1

    def send(self, inner):
        inner = whole(inner)
        stream = inner and self.by_hosts.get((inner[8:24], inner[24:40]))
        if not stream:
            self.counts["no_stream"] += 1
        elif len(inner) > inner_mtu(stream.settings.cipher, OUTER_MTU):
            self.counts["too_big"] += 1
        else:
            self.transmit(stream.send(inner))

    def receive(self, outer):
        outer = whole(outer)
        stream = outer and self.by_route.get((outer[24:40], outer[8:24]))
        if not stream:
            return
        try:
            inner = stream.receive(outer, time.time())
        except Dropped as dropped:
            self.counts[str(dropped)] += 1
            return
        self.counts["received"] += 1
        if inner is not None:
            os.write(self.tun, inner)

    def run(self):
        while True:
            for stream in self.streams:
                stream.handle_timeout(time.time())
            deadline = min(stream.deadline() for stream in self.streams)
            wait = max(0, deadline - time.time())
            readable, _, _ = select.select([self.tun, self.received], [], [], wait)
            if self.tun in readable:
                self.send(os.read(self.tun, 65536))
            if self.received in readable:
                packet, address = self.received.recvfrom(65536)
                if address[2] != socket.PACKET_OUTGOING:
                    self.receive(packet)


def open_tun(name):
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return tun


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    node = Node(sys.argv[1])
    print(
        "the classic profile is not authenticated: for research, not for protection",
        file=sys.stderr,
        flush=True,
    )
    try:
        node.set_up()
        node.run()
    finally:
        node.tear_down()
        print(json.dumps(node.counts), flush=True)


if __name__ == "__main__":
    main()
