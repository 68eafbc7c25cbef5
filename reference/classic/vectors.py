"""Test vectors of docs/classic.md section 16.

cd reference; python3 -m classic.vectors            checks docs/classic-vectors.json
cd reference; python3 -m classic.vectors --write    writes it anew
"""

import hashlib
import ipaddress
import json
import pathlib
import sys

from . import derive, packet, routes

FILE = pathlib.Path(__file__).resolve().parents[2] / "docs/classic-vectors.json"
ABOUT = "Test vectors of docs/classic.md, described there. Bytes are in hexadecimal, times in seconds."
HOST_A = "2001:468:c80:c111::1"
HOST_B = "2001:468:c80:c111::2"
MAC_A = "00abcd112201"


def session_key(first):
    """64 recognisable bytes."""
    return bytes((first + i) % 256 for i in range(64)).hex()


def host_of(given):
    return derive.Host(ipaddress.IPv6Address(given["address"]).packed, bytes.fromhex(given["mac"] or ""))


# From what is given to what comes out.


def rotation(given):
    return {"interval": derive.Rotation(given["c2"], given["c1"]).interval(bytes.fromhex(given["key"]))}


def host(given):
    hashed = host_of(given).hashed(bytes.fromhex(given["key"]), given["salt"])
    return {"address": str(ipaddress.IPv6Address(hashed.address)), "port": hashed.port}


def hosts(given):
    digest, key = hashlib.sha256(), bytes.fromhex(given["key"])
    for salt in range(given["first_salt"], given["first_salt"] + given["count"]):
        hashed = host_of(given).hashed(key, salt)
        digest.update(hashed.address + hashed.port.to_bytes(2, "big"))
    return {"sha256": digest.hexdigest()}


def packet_(given):
    ends = [
        derive.HashedHost(ipaddress.IPv6Address(end["address"]).packed, end["port"])
        for end in (given["source"], given["destination"])
    ]
    inner = given["inner"] and bytes.fromhex(given["inner"])
    offer = given["offer"] and packet.Offer(given["offer"]["change"], bytes.fromhex(given["offer"]["key"]))
    key, cipher = bytes.fromhex(given["key"]), packet.CIPHERS[given["cipher"]]
    outer = packet.encapsulate(packet.Path(*ends), key, cipher, int(given["flag"]), inner, offer)
    if inner:
        opened = packet.decapsulate(packet.Path(*ends), key, cipher, outer, inner[8:24], inner[24:40])
        assert opened == (given["flag"], inner, offer)
    return {"outer": outer.hex()}


def routes_(given):
    host_a, host_b = (derive.Host(ipaddress.IPv6Address(text).packed) for text in (HOST_A, HOST_B))
    table = routes.Table(host_a, host_b, bytes(64), given["interval"], given["lifetime"])
    rounds = []
    for now in given["times"]:
        table.rehash(now, lambda route: None, lambda route: None)
        rounds.append(
            {
                "live": [route.salt for route in table.live],
                "in_use": table.in_use().salt,
                "aside": sorted(route.salt for route in table.aside),
            }
        )
    return {"rounds": rounds}


def change(given):
    return {"first_salt": derive.first_salt_after(given["boundary"], given["interval"])}


# What is given.


def given_packets():
    addresses = ipaddress.IPv6Address(HOST_A).packed + ipaddress.IPv6Address(HOST_B).packed
    offer = {"change": 1700000060, "key": session_key(0x80)}

    def inner(length):
        body = bytes(i % 251 for i in range(length))
        return (bytes.fromhex("60200001") + length.to_bytes(2, "big") + b"\x3b\x3f" + addresses + body).hex()

    for cipher in packet.CIPHERS:
        for length in (0, 7, 8, 9, 40, 1432):
            yield (cipher, False, inner(length), None)
        yield (cipher, True, inner(20), None)
        yield (cipher, True, None, offer)
        yield (cipher, True, inner(20), offer)
        yield (cipher, False, None, None)


def cases():
    key = session_key(0)
    yield (
        "rotation",
        [
            {"key": session_key(n), "c1": c1, "c2": c2}
            for n in (0, 1, 2)
            for c1, c2 in ((1, 10), (20, 5), (3500, 100))
        ],
    )
    one = {"address": HOST_A, "key": key, "mac": None}
    yield (
        "host",
        [
            {**one, "salt": 0},
            {**one, "salt": 170000000},
            {**one, "salt": 2**64 - 1},
            {**one, "mac": MAC_A, "salt": 170000000},
            {**one, "address": HOST_B, "salt": 170000000},
            {**one, "address": "2001:db8:1:2:3:4:5:6", "key": session_key(9), "salt": 1},
            zero_port(one),
        ],
    )
    yield "hosts", [{**one, "mac": mac, "first_salt": 170000000, "count": 10000} for mac in (None, MAC_A)]
    names = ("cipher", "flag", "inner", "offer")
    path_key = session_key(0x20)
    ends = [
        host({"address": text, "key": path_key, "mac": None, "salt": 170000000}) for text in (HOST_A, HOST_B)
    ]
    fixed = {"source": ends[0], "destination": ends[1], "key": path_key}
    yield "packet", [{**fixed, **dict(zip(names, values))} for values in given_packets()]
    yield (
        "routes",
        [
            {"interval": 10, "lifetime": 30, "times": [1003, 1010, 1020, 1030, 1040, 1050]},
            {"interval": 10, "lifetime": 55, "times": [1000, 1010, 1020, 1030, 1040, 1050, 1060, 1070]},
            {"interval": 7, "lifetime": 21, "times": [1000, 1001, 1008, 1500, 1505, 1512]},
            {"interval": 10, "lifetime": 30, "times": [2000, 1991, 1000, 1010, 1020]},
        ],
    )
    yield (
        "change",
        [
            {"boundary": b, "interval": r}
            for b, r in ((1700000000, 10), (1700000000, 7), (1700000005, 11), (1700000008, 1))
        ],
    )


def zero_port(one):
    """The first salt whose port would have 15 low bits of zero."""
    key, true = bytes.fromhex(one["key"]), host_of(one)
    salt = 0
    while True:
        digest = derive.sha256(true.address[8:] + key + salt.to_bytes(8, "big"))
        if int.from_bytes(digest[8:10], "big") & 0x7FFF == 0:
            return {**one, "salt": salt}
        salt += 1


SECTIONS = {
    "rotation": rotation,
    "host": host,
    "hosts": hosts,
    "packet": packet_,
    "routes": routes_,
    "change": change,
}


def main():
    vectors = {"about": ABOUT}
    for name, given in cases():
        vectors[name] = [{"given": case, "then": SECTIONS[name](case)} for case in given]
    text = json.dumps(vectors, indent=2) + "\n"
    if "--write" in sys.argv[1:]:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE} is not what this implementation computes")
    print(f"{sum(len(section) for section in vectors.values() if isinstance(section, list))} vectors")


if __name__ == "__main__":
    main()
