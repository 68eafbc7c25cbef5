#!/usr/bin/env python3
"""A second implementation of docs/protocol.md, as far as its test vectors reach, written from that document alone.

    reference/vectors.py [docs/protocol-vectors.json]

Recomputes what each vector's "then" says from its "given", and compares. Needs nothing but Python's standard library.
"""

import base64
import hashlib
import ipaddress
import itertools
import json
import pathlib
import struct
import sys

import primitives
from primitives import hkdf_expand, hkdf_extract, hmac_blake2s, hmac_sha256, x25519

unhex = bytes.fromhex


def u64(value):
    return struct.pack(">Q", value)


# "Keys"


class Pair:
    """What two nodes derive from their keys."""

    def __init__(self, given):
        self.private = {"a": unhex(given["private_a"]), "b": unhex(given["private_b"])}
        self.psk = unhex(given["psk"]) if given["psk"] else bytes(32)
        self.public = {name: x25519(key) for name, key in self.private.items()}
        low, high = sorted(self.public, key=self.public.get)
        self.node = {"L": low, "H": high}
        self.publics = self.public[low] + self.public[high]
        self.dh = x25519(self.private["a"], self.public["b"])
        self.ps = hkdf_extract(b"sidestep/3 pair", self.dh + self.psk)
        self.hsk = hkdf_expand(self.ps, b"handshake" + self.publics)

    def address_key(self, tier, role):
        return hkdf_expand(self.ps, b"rendezvous" + bytes([tier]) + role.encode() + self.publics)

    def schedule_key(self, tier):
        return hkdf_expand(self.ps, b"rendezvous schedule" + bytes([tier]) + self.publics)


def pair(given):
    keys = Pair(given)
    tiers = [
        {
            "tier": tier,
            "address_key_l": keys.address_key(tier, "L").hex(),
            "address_key_h": keys.address_key(tier, "H").hex(),
            "schedule_key": keys.schedule_key(tier).hex(),
        }
        for tier in range(3)
    ]
    return {
        "public_a": keys.public["a"].hex(),
        "public_b": keys.public["b"].hex(),
        "role_a": "L" if keys.node["L"] == "a" else "H",
        "dh": keys.dh.hex(),
        "ps": keys.ps.hex(),
        "hsk": keys.hsk.hex(),
        "rendezvous": tiers,
    }


# "Places that others tell"


def record(given):
    """What node a publishes for node b."""
    keys = Pair(given)
    role = "L" if keys.node["L"] == "a" else "H"
    key = hkdf_expand(keys.ps, b"sealed record" + role.encode() + keys.publics)
    nonce, place = unhex(given["nonce"]), ipaddress.IPv6Network(given["place"])
    plain = bytes([place.prefixlen]) + place.network_address.packed + u64(given["unix_ms"]) + bytes(7)
    sealed = nonce + primitives.xchacha20_poly1305(key, nonce, plain, b"")
    return {"key": key.hex(), "record": base64.urlsafe_b64encode(sealed).decode()}


# "Endpoints"


def reserved(identifier):
    return (
        identifier == 0
        or 0x02005EFFFE000000 <= identifier <= 0x02005EFFFEFFFFFF
        or 0xFDFFFFFFFFFFFF80 <= identifier <= 0xFDFFFFFFFFFFFFFF
    )


def retried(key, prefix, message):
    prefix = ipaddress.IPv6Network(prefix)
    mask = int(prefix.hostmask)
    for retry in range(256):
        out = hmac_sha256(key, message + bytes([retry]))
        host = int.from_bytes(out[:16], "big") & mask
        address = int(prefix.network_address) | host
        if host not in (0, mask) and not reserved(address % 2**64):
            break
    return str(ipaddress.IPv6Address(address)), out


def derive(key, prefix, number):
    """Of a lane, or of an epoch of the rendezvous."""
    address, out = retried(key, prefix, b"endpoint" + u64(number))
    port = 1024 + int.from_bytes(out[16:24], "big") % 64512
    return {"address": address, "port": port}


def endpoint(given):
    return derive(unhex(given["address_key"]), given["prefix"], given["number"])


# "Replaced addresses"


def rewrite(given):
    hosts = b"".join(ipaddress.IPv6Address(given[name]).packed for name in ("host_l", "host_h"))
    message = b"rewrite" + u64(given["epoch"]) + hosts
    return {"address": retried(unhex(given["address_key"]), given["prefix"], message)[0]}


# "Epochs"


class Schedule:
    def __init__(self, key, interval):
        self.key, self.interval = key, interval

    def jitter(self, epoch):
        out = hmac_sha256(self.key, b"jitter" + u64(epoch))
        return int.from_bytes(out[:8], "big") % (self.interval // 2)

    def start(self, epoch):
        """None for epoch 0, which has always begun."""
        return epoch * self.interval + self.jitter(epoch) if epoch > 0 else None

    def current(self, now):
        # The epoch after this guess begins after `now` for certain.
        epoch = max(now // self.interval, 0)
        while epoch > 0 and self.start(epoch) > now:
            epoch -= 1
        return epoch


def schedule(given):
    return Schedule(unhex(given["schedule_key"]), given["interval"])


def epoch(given):
    return {"jitter": schedule(given).jitter(given["epoch"]), "start": schedule(given).start(given["epoch"])}


def current(given):
    return {"epoch": schedule(given).current(given["now"])}


# "Lanes"

CUT = 5 << 16
LN_2 = 45_426
LIVES = 40


def waiting(x):
    """-ln((x + 1) / 2^64) in units of 2^-16."""
    y = x + 1
    z = y.bit_length() - 1
    if z == 64:
        return 0
    m, f = y << (63 - z), 0
    for _ in range(16):
        m = m * m >> 63
        bit = m >> 64
        m >>= bit
        f = 2 * f + bit
    return (((64 - z) << 16) - f) * LN_2 >> 16


def lives(key, interval, lanes):
    """Endlessly, the birth and the death of the next lane."""
    overlap = min(interval // 4, 10_000)
    birth, last = 0, 0
    for lane in itertools.count():
        out = hmac_sha256(key, b"lane" + u64(lane))
        life, gap, margin = (int.from_bytes(out[at : at + 8], "big") for at in (0, 8, 16))
        death = birth + interval // 2 + life % interval
        following = birth + ((interval // lanes) * (waiting(gap) % CUT) >> 16)
        if max(last, death) < following + overlap:
            death = following + overlap + margin % interval
        yield birth, death
        birth, last = following, max(last, death)


def first_lives(given, count):
    return list(itertools.islice(lives(unhex(given["schedule_key"]), given["interval"], given["lanes"]), count))


def wait(given):
    return {"wait": waiting(int(given["x"], 16))}


def life(given):
    first = first_lives(given, LIVES)
    return {"births": [birth for birth, _ in first], "deaths": [death for _, death in first]}


# "Rendezvous"

TIERS = [(30_000, 60_000), (3_600_000, 3_660_000), (32 * 86_400_000, 32 * 86_400_000)]


def rendezvous(given):
    keys, tier, now = Pair(given), given["tier"], given["unix_ms"]
    interval, tolerance = TIERS[tier]
    epochs = Schedule(keys.schedule_key(tier), interval)
    at = epochs.current(now)
    return {
        "epoch": at,
        "start": epochs.start(at),
        "window": [epochs.current(now - tolerance), epochs.current(now + tolerance)],
        "endpoint_l": derive(keys.address_key(tier, "L"), given["prefix_l"], at),
        "endpoint_h": derive(keys.address_key(tier, "H"), given["prefix_h"], at),
    }


# "Offers"


def offer(given):
    items = [
        (1, "unix_ms", u64),
        (2, "ciphers", bytes),
        (3, "rotation", lambda v: struct.pack(">I", v)),
        (4, "lanes", lambda v: bytes([v])),
        (5, "padding", lambda v: bytes([v])),
        (6, "hop_prefix", packed),
        (7, "receive_mtu", lambda v: struct.pack(">H", v)),
        (8, "stream", lambda v: ipaddress.IPv6Address(v).packed),
        (9, "contexts", lambda v: struct.pack(">H", v)),
        (10, "observed", packed),
        (11, "switch", lambda v: struct.pack(">q", v)),
        (12, "rewrite", lambda _: b""),
        (13, "shape", lambda v: struct.pack(">BI", v["kind"], v["rate"])),
        (14, "turn", u64),
        (15, "mask", lambda v: struct.pack(">H", v)),
    ]
    payload = b""
    for kind, name, encode in items:
        if given[name] is not None:
            value = encode(given[name])
            payload += struct.pack(">BH", kind, len(value)) + value
    return {"payload": payload.hex()}


# "Handshake": Noise_KKpsk2_25519_ChaChaPoly_BLAKE2s, after the Noise specification, revision 34


class Noise:
    """One side's symmetric state. Both sides compute the same, so one is enough."""

    def __init__(self, prologue, initiator_static, responder_static):
        name = b"Noise_KKpsk2_25519_ChaChaPoly_BLAKE2s"
        self.h = hashlib.blake2s(name).digest()
        self.ck, self.k, self.n = self.h, None, 0
        for data in (prologue, initiator_static, responder_static):
            self.mix_hash(data)

    def hkdf(self, material, count):
        key, outs, out = hmac_blake2s(self.ck, material), [], b""
        for number in range(count):
            out = hmac_blake2s(key, out + bytes([number + 1]))
            outs.append(out)
        return outs

    def mix_hash(self, data):
        self.h = primitives.blake2s(self.h + data)

    def mix_key(self, material):
        self.ck, self.k = self.hkdf(material, 2)
        self.n = 0

    def mix_key_and_hash(self, material):
        self.ck, hashed, self.k = self.hkdf(material, 3)
        self.n = 0
        self.mix_hash(hashed)

    def ephemeral(self, public):
        """Token "e", with the extra key mixing of handshakes that have a pre-shared key."""
        self.mix_hash(public)
        self.mix_key(public)
        return public

    def encrypt_and_hash(self, plain):
        nonce = bytes(4) + struct.pack("<Q", self.n)
        sealed = primitives.chacha20_poly1305(self.k, nonce, plain, self.h)
        self.n += 1
        self.mix_hash(sealed)
        return sealed


class Handshake:
    """Both messages of a handshake, and what it comes to."""

    def __init__(self, given, keys, prologue):
        initiator = given["initiator"]
        responder = "H" if initiator == "L" else "L"
        s_i, s_r = keys.private[keys.node[initiator]], keys.private[keys.node[responder]]
        e_i, e_r = unhex(given["first_ephemeral"]), unhex(given["answer_ephemeral"])
        self.responder = responder
        noise = Noise(prologue, x25519(s_i), x25519(s_r))

        self.first = noise.ephemeral(x25519(e_i))
        noise.mix_key(x25519(e_i, x25519(s_r)))  # es
        noise.mix_key(x25519(s_i, x25519(s_r)))  # ss
        self.first += noise.encrypt_and_hash(unhex(given["first_payload"]))

        self.answer = noise.ephemeral(x25519(e_r))
        noise.mix_key(x25519(e_r, x25519(e_i)))  # ee
        noise.mix_key(x25519(e_r, x25519(s_i)))  # se
        noise.mix_key_and_hash(keys.psk)  # psk
        self.answer += noise.encrypt_and_hash(unhex(given["answer_payload"]))
        k1, k2 = noise.hkdf(b"", 2)
        self.keys = {"k1": k1.hex(), "k2": k2.hex(), "h": noise.h.hex()}


def envelope(keys, nonce, aad, message, size):
    plain = struct.pack(">H", len(message)) + message
    plain += bytes(max(0, size - 24 - 16 - len(plain)))
    return nonce + primitives.xchacha20_poly1305(keys.hsk, nonce, plain, aad)


def packed(prefix):
    network = ipaddress.IPv6Network(prefix)
    return network.network_address.packed + bytes([network.prefixlen])


def handshake(given):
    keys = Pair(given)
    claim = packed(given["first_prefix"]) + u64(given["first_clock"]) + unhex(given["first_heard"])
    noise = Handshake(given, keys, b"sidestep/3 contact" + keys.publics + claim)
    first_nonce, answer_nonce = unhex(given["first_nonce"]), unhex(given["answer_nonce"])
    first_aad = b"1" + noise.responder.encode() + bytes([given["tier"]]) + u64(given["epoch"])
    answer_aad = b"2" + noise.first[:32]
    first = envelope(keys, first_nonce, first_aad, claim + noise.first, given["first_size"])
    answer = envelope(keys, answer_nonce, answer_aad, noise.answer, given["answer_size"])
    return {
        "first_message": noise.first.hex(),
        "first_datagram": first.hex(),
        "answer_message": noise.answer.hex(),
        "answer_datagram": answer.hex(),
        **noise.keys,
    }


def rekey(given):
    keys = Pair(given)
    noise = Handshake(given, keys, b"sidestep/3 rekey" + keys.publics)
    return {"first_message": noise.first.hex(), "answer_message": noise.answer.hex(), **noise.keys}


# "Session keys"


def session(given):
    ex = hkdf_extract(b"sidestep/3 session", unhex(given["k1"] + given["k2"] + given["h"]))

    def key(*parts):
        return hkdf_expand(ex, b"".join(parts))

    of_lanes = {"lh": key(b"lanes", b"LH"), "hl": key(b"lanes", b"HL")}
    lanes = [
        {"lane": lane}
        | {
            f"{use}_{direction}": hmac_sha256(secret, use.encode() + u64(lane)).hex()
            for use in ("data", "header", "mask")
            for direction, secret in of_lanes.items()
        }
        for lane in (0, 1, 4_294_967_297)
    ]
    return {
        "ex": ex.hex(),
        "lanes_lh": of_lanes["lh"].hex(),
        "lanes_hl": of_lanes["hl"].hex(),
        "address_key_l": key(b"address", b"L").hex(),
        "address_key_h": key(b"address", b"H").hex(),
        "schedule_key": key(b"schedule").hex(),
        "lanes": lanes,
    }


def path(given):
    first = first_lives(given, 12)
    lanes = [
        {
            "lane": lane,
            "birth": birth,
            "death": death,
            "endpoint_l": derive(unhex(given["address_key_l"]), given["prefix_l"], lane),
            "endpoint_h": derive(unhex(given["address_key_h"]), given["prefix_h"], lane),
        }
        for lane, (birth, death) in enumerate(first)
    ]
    return {"lanes": lanes}


# "Control messages"


def address(text):
    return ipaddress.IPv6Address(text).packed


def prefix(text):
    network = ipaddress.IPv6Network(text)
    return bytes([network.prefixlen]) + network.network_address.packed


CONTROL = {
    "padding": (0, lambda g: b""),
    "opener": (1, lambda g: b""),
    "confirm": (2, lambda g: struct.pack(">q", g["clock"])),
    "confirmed": (3, lambda g: struct.pack(">qq", g["echo"], g["clock"])),
    "rekey_first": (4, lambda g: unhex(g["noise"])),
    "rekey_answer": (5, lambda g: unhex(g["noise"])),
    "context": (
        6,
        lambda g: struct.pack(">HH", g["context"], g["retires"]) + address(g["source"]) + address(g["destination"]),
    ),
    "context_known": (7, lambda g: struct.pack(">H", g["context"])),
    "mtu_probe": (10, lambda g: struct.pack(">H", g["size"])),
    "mtu_probed": (11, lambda g: struct.pack(">H", g["size"])),
    "round_trip": (12, lambda g: struct.pack(">qI?", g["clock"], g["overdue"], g["keeps"])),
    "round_trip_answer": (13, lambda g: struct.pack(">qq", g["echo"], g["clock"])),
    "close": (14, lambda g: b""),
    "half": (15, lambda g: bytes([g["part"]]) + unhex(g["bytes"])),
    "meet": (16, lambda g: unhex(g["key"])),
    "met": (17, lambda g: unhex(g["key"]) + prefix(g["place"])),
    "wall_clock": (18, lambda g: struct.pack(">Q", g["zero_unix_ms"])),
}


def control(given):
    kind, encode = CONTROL[given["message"]]
    body = encode(given)
    inner = struct.pack(">BBHI", 0, kind, len(body), given["id"]) + body
    return {"inner": inner.ljust(given["length"], b"\0").hex()}


# "Inner packets"


def inner(given):
    packet = unhex(given["packet"])
    without_addresses = packet[:8] + packet[40:]
    form = {
        "elided": lambda: without_addresses,
        "context": lambda: b"\x20" + struct.pack(">H", given["context"]) + without_addresses,
        "full": lambda: bytes([0x10, 0, 0]) + packet,
        "ipv4": lambda: packet,
    }[given["form"]]
    return {"inner": form().ljust(given["length"], b"\0").hex()}


# "Data"


def data(given):
    key, header_key = unhex(given["data_key"]), unhex(given["header_key"])
    counter = struct.pack(">I", given["counter"])
    nonce = bytes(8) + counter
    if given["cipher"] == "AES-256-GCM":
        sealed = primitives.aes256_gcm(key, nonce, unhex(given["inner"]))
        mask = primitives.aes256_block(header_key, sealed[:16])[:4]
    else:
        sealed = primitives.chacha20_poly1305(key, nonce, unhex(given["inner"]))
        block = int.from_bytes(sealed[:4], "little")
        mask = primitives.chacha20_block(header_key, block, sealed[4:16])[:4]
    hidden = bytes(a ^ b for a, b in zip(counter, mask))
    return {"mask": mask.hex(), "datagram": (hidden + sealed).hex()}


# "Masked packets"


def mask(given):
    key, message = unhex(given["mask_key"]), unhex(given["message"])
    sample = message[-16:] if given["sample"] is None else unhex(given["sample"])
    counter = int.from_bytes(sample[:4], "little") & 0x7FFFFFFF
    blocks = [primitives.chacha20_block(key, counter + n, sample[4:], rounds=8) for n in range(4)]
    mark, stream = blocks[0][:8], b"".join(block[8:] for block in blocks)

    def masked(data, with_what):
        return bytes(a ^ b for a, b in zip(data, with_what))

    if given["sample"] is not None:
        trailer = masked(bytes(6) + struct.pack(">H", len(message)), mark)
        payload = masked(message + bytes(given["padding"]), stream) + trailer + sample
    else:
        head = 56 if len(message) >= 160 else len(message) - 16
        payload = masked(message[:head], stream) + message[head:]
    end = b"\xfd" + hmac_sha256(unhex(given["public_key"]), b"mask address")[1:16]
    return {"inner_end": str(ipaddress.IPv6Address(end)), "mark": mark.hex(), "payload": payload.hex()}


SECTIONS = {
    function.__name__: function
    for function in (
        pair, record, endpoint, rewrite, epoch, current, wait, life, rendezvous, offer, handshake, rekey, session, path, control,
        inner, data, mask,
    )
}


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "docs/protocol-vectors.json"
    published = json.loads(pathlib.Path(*sys.argv[1:2] or [default]).read_text())
    primitives.check()
    wrong = [f"section {name} is unknown" for name in set(published) - set(SECTIONS) - {"about"}]
    count = 0
    for name, compute in SECTIONS.items():
        for number, case in enumerate(published[name]):
            count += 1
            then = compute(case["given"])
            if then != case["then"]:
                wrong.append(f"{name}[{number}]: {json.dumps(case)}\n  computed {json.dumps(then)}")
    print("\n".join(wrong) or f"{count} vectors agree")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
