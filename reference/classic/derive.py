"""What follows from a session key and the time: docs/classic.md sections 3 and 4, and the sums of sections 5 and 9."""

import hashlib
import ipaddress
from typing import NamedTuple


def sha256(data):
    return hashlib.sha256(data).digest()


class HashedHost(NamedTuple):
    address: bytes
    port: int

    def source_port(self, flag):
        return flag << 15 | self.port & 0x7FFF

    def __str__(self):
        return f"[{ipaddress.IPv6Address(self.address)}]:{self.port}"


class Host(NamedTuple):
    address: bytes
    mac: bytes = b""

    def hashed(self, key, salt):
        digest = sha256(self.address[8:] + key + self.mac + salt.to_bytes(8, "big"))
        port = int.from_bytes(digest[8:10], "big")
        if port & 0x7FFF == 0:
            port += 1
        return HashedHost(self.address[:8] + digest[:8], port)


class Rotation(NamedTuple):
    """Randomised if there is a spread, c1; `least` is c2, or the fixed interval."""

    least: int
    spread: int = 1

    def interval(self, key):
        return int.from_bytes(sha256(key), "big") % self.spread + self.least

    def longest(self):
        return self.least + self.spread - 1


def initialization_vector(key, source, destination):
    return sha256(key + source.address + destination.address)[:16]


def first_salt_after(boundary, interval):
    """The first salt m / interval with m >= boundary + interval / 2, for an interval of whole seconds."""
    salt = (boundary + interval // 2) // interval
    while 2 * salt * interval < 2 * boundary + interval:
        salt += 1
    return salt
