"""From inner packets to outer ones and back: docs/classic.md sections 6 to 8."""

import struct
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from . import derive

UDP, DESTINATION_OPTIONS, ICMPV6 = 17, 60, 58
PAD1, PADN, ENCRYPTION, NEW_KEY = 0, 1, 219, 204
CIPHERS = {"aes-256-cbc": 1, "aes-128-cbc": 2, "none": 0}
KEY_BYTES = {1: 32, 2: 16}


class Dropped(Exception):
    """A packet goes no further; the argument is the reason of section 15."""


class Offer(NamedTuple):
    change: int
    key: bytes


class Path(NamedTuple):
    """One direction of a route."""

    source: derive.HashedHost
    destination: derive.HashedHost


class Opened(NamedTuple):
    flag: int
    inner: bytes | None
    offer: Offer | None


def aes_cbc(number, key, path):
    iv = derive.initialization_vector(key, path.source, path.destination)
    return Cipher(algorithms.AES(key[: KEY_BYTES[number]]), modes.CBC(iv))


def encrypt(number, key, path, plaintext):
    encryptor = aes_cbc(number, key, path).encryptor()
    return encryptor.update(plaintext) + encryptor.finalize()


def decrypt(number, key, path, ciphertext):
    decryptor = aes_cbc(number, key, path).decryptor()
    return decryptor.update(ciphertext) + decryptor.finalize()


def checksum(source, destination, protocol, data):
    """RFC 8200 section 8.1; 0 over data that has its checksum in it."""
    data = source + destination + struct.pack(">II", len(data), protocol) + data
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def options_header(options):
    """The Destination Options header before UDP; nothing if there are no options."""
    if not options:
        return b""
    body = b"".join(bytes([kind, len(data)]) + data for kind, data in options)
    missing = -(len(body) + 2) % 8
    if missing == 1:
        body += bytes([PAD1])
    elif missing:
        body += bytes([PADN, missing - 2]) + bytes(missing - 2)
    return bytes([UDP, (len(body) + 2) // 8 - 1]) + body


def encapsulate(path, key, cipher, flag, inner=None, offer=None):
    """The outer packet. `cipher` is the number of the stream's, 0 for none."""
    options, payload = [], b""
    if inner is not None:
        payload = inner[:8] + inner[40:]
        if cipher:
            padding = -len(payload) % 16
            payload = encrypt(cipher, key, path, payload + bytes(padding))
            options.append((ENCRYPTION, bytes([cipher << 4 | padding])))
    if offer is not None:
        sealed = encrypt(1, key, path, offer.key)
        options.append((NEW_KEY, struct.pack(">BI", 1, offer.change) + sealed))
    header = options_header(options)
    ports = struct.pack(">HH", path.source.source_port(flag), path.destination.port)
    datagram = ports + struct.pack(">HH", 8 + len(payload), 0) + payload
    right = checksum(path.source.address, path.destination.address, UDP, datagram) or 0xFFFF
    datagram = datagram[:6] + struct.pack(">H", right) + datagram[8:]
    next_header = DESTINATION_OPTIONS if header else UDP
    length = len(header) + len(datagram)
    addresses = path.source.address + path.destination.address
    return struct.pack(">IHBB", 6 << 28, length, next_header, 64) + addresses + header + datagram


def whole(packet):
    """An IPv6 packet without what follows it, or None."""
    if len(packet) < 40 or packet[0] >> 4 != 6:
        return None
    end = 40 + int.from_bytes(packet[4:6], "big")
    return packet[:end] if end <= len(packet) else None


def read_options(data):
    """The data of options 219 and 204, by number."""
    found, at = {}, 0
    while at < len(data):
        kind = data[at]
        if kind == PAD1:
            at += 1
            continue
        if at + 2 > len(data) or at + 2 + data[at + 1] > len(data):
            raise Dropped("malformed_option")
        value = data[at + 2 : at + 2 + data[at + 1]]
        at += 2 + len(value)
        if kind == PADN:
            if any(value):
                raise Dropped("malformed_option")
        elif kind in (ENCRYPTION, NEW_KEY):
            if kind in found or len(value) != {ENCRYPTION: 1, NEW_KEY: 69}[kind]:
                raise Dropped("malformed_option")
            found[kind] = value
        else:
            raise Dropped("unknown_option")
    return found


def split_headers(outer):
    """Options and UDP datagram of a whole outer packet."""
    next_header, rest, options = outer[6], outer[40:], {}
    if next_header == DESTINATION_OPTIONS:
        if len(rest) < 2 or len(rest) < (rest[1] + 1) * 8:
            raise Dropped("malformed_option")
        next_header, length = rest[0], (rest[1] + 1) * 8
        options, rest = read_options(rest[2:length]), rest[length:]
    if next_header != UDP or len(rest) < 8:
        raise Dropped("no_udp")
    return options, rest


def decapsulate(path, key, cipher, outer, source, destination):
    """Opens a whole outer packet that came on `path`; its inner packet is from `source` to `destination`."""
    options, datagram = split_headers(outer)
    source_port, destination_port, length, given = struct.unpack(">HHHH", datagram[:8])
    if length != len(datagram):
        raise Dropped("malformed")
    if given == 0 or checksum(outer[8:24], outer[24:40], UDP, datagram) != 0:
        raise Dropped("checksum")
    flag = source_port >> 15
    if (source_port, destination_port) != (path.source.source_port(flag), path.destination.port):
        raise Dropped("wrong_port")
    inner = None
    if datagram[8:]:
        payload = open_payload(path, key, cipher, options.get(ENCRYPTION), datagram[8:])
        inner = payload[:8] + source + destination + payload[8:]
    offer = None
    if NEW_KEY in options:
        number, change = struct.unpack(">BI", options[NEW_KEY][:5])
        if number != 1:
            raise Dropped("offer_refused")
        offer = Offer(change, decrypt(1, key, path, options[NEW_KEY][5:]))
    return Opened(flag, inner, offer)


def open_payload(path, key, cipher, encryption, payload):
    stated = encryption[0] >> 4 if encryption else 0
    if stated != cipher or bool(encryption) != bool(cipher):
        raise Dropped("cipher_mismatch")
    if not cipher:
        if len(payload) < 8 or payload[0] >> 4 != 6 or inner_length(payload) != len(payload) - 8:
            raise Dropped("malformed_inner")
        return payload
    if len(payload) % 16:
        raise Dropped("wrong_length")
    payload = decrypt(cipher, key, path, payload)
    if payload[0] >> 4 != 6:
        raise Dropped("wrong_key")
    end = 8 + inner_length(payload)
    if end + (encryption[0] & 15) != len(payload) or any(payload[end:]):
        raise Dropped("wrong_padding")
    return payload[:end]


def inner_length(payload):
    return int.from_bytes(payload[4:6], "big")


def inner_mtu(cipher, outer_mtu):
    return (outer_mtu - 56) // 16 * 16 + 32 if cipher else outer_mtu - 16
