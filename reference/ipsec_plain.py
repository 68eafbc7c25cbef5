#!/usr/bin/python3
"""AH and ESP written down from the RFCs, for what scapy and the kernel do not have: AH with GMAC (RFC 4302, RFC 4543), and
the formats of 1995, AH with keyed MD5 (RFC 1826, RFC 1828) and ESP with DES-CBC (RFC 1829).

    reference/ipsec_plain.py < CASES

Each line of the input is a case in JSON: an association, a packet, and the same packet sealed. The answer has:

- "opened": what the sealed one holds, once its ICV was found right;
- "sealed": the packet sealed here, with the number and the IV of the sealed one and the headers before AH or ESP;
- "next": the packet once more, with the next number and another IV.

Needs Debian's python3-cryptography.
"""

import hashlib
import json
import struct
import sys

from cryptography.hazmat.primitives.ciphers import Cipher, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import TripleDES

AH, ESP = 51, 50
# IPv4 options that AH leaves as they are (RFC 4302, appendix A1).
IMMUTABLE = {0, 1, 130, 133, 134, 148, 149}
# Those that RFC 1826 makes zeros of: record route and timestamp, which change in a way that nobody foresees.
MUTABLE_IN_1995 = {7, 68}


def split(packet):
    """What is before the security header, what follows, and where the former says what follows it."""
    if packet[0] >> 4 == 4:
        length = 4 * (packet[0] & 15)
        return packet[:length], packet[length:], 9
    said_at, at = 6, 40
    while packet[said_at] not in (AH, ESP):
        said_at, at = at, at + 8 * (packet[at + 1] + 1)
    return packet[:at], packet[at:], said_at


def joined(before, said_at, protocol, payload):
    """Headers with what follows them: its type, the length and the checksum are right."""
    header = bytearray(before)
    header[said_at] = protocol
    if header[0] >> 4 == 6:
        header[4:6] = struct.pack(">H", len(before) - 40 + len(payload))
        return bytes(header) + payload
    header[2:4] = struct.pack(">H", len(before) + len(payload))
    header[10:12] = b"\0\0"
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    header[10:12] = struct.pack(">H", total ^ 0xFFFF)
    return bytes(header) + payload


def immutable(before, is_historic):
    """Headers with zeros in place of what routers may change (RFC 4302, 3.3.3.1; in 1995 less: RFC 1826, 4)."""
    header = bytearray(before)
    if header[0] >> 4 == 4:
        for at in (8, 10, 11) if is_historic else (1, 6, 7, 8, 10, 11):
            header[at] = 0
        at = 20
        while at < len(header) and header[at] != 0:
            length = 1 if header[at] == 1 else header[at + 1]
            if header[at] in MUTABLE_IN_1995 if is_historic else header[at] not in IMMUTABLE:
                header[at : at + length] = bytes(length)
            at += length
        return bytes(header)
    if not is_historic:
        header[0:4] = b"\x60\0\0\0"
    header[7] = 0
    kind, at = header[6], 40
    while at < len(header):
        end = at + 8 * (header[at + 1] + 1)
        option = at + 2
        while kind in (0, 60) and option < end:
            if header[option] == 0:
                option += 1
                continue
            length = header[option + 1]
            if header[option] & 0x20 and is_historic:
                header[option : option + 2 + length] = bytes(2 + length)
            elif header[option] & 0x20:
                header[option + 2 : option + 2 + length] = bytes(length)
            option += 2 + length
        kind, at = header[at], end
    return bytes(header)


def gmac(key, iv, data):
    """RFC 4543, 3: the salt is the end of the key; what is authenticated is all additional data."""
    return AESGCM(key[:-4]).encrypt(key[-4:] + iv, b"", data)


def keyed_md5(key, _, data):
    """RFC 1828, 2: the key, filled up as MD5 does; the datagram; the key."""
    fill = b"\x80" + bytes((55 - len(key)) % 64) + struct.pack("<Q", 8 * len(key))
    return hashlib.md5(key + fill + data + key).digest()


def ah(case, sequence, iv, before, said_at, protocol, payload):
    """A packet with AH, whose type is put where the headers before it say what follows."""
    key = bytes.fromhex(case["authentication_key"])
    is_historic = case["authentication"] == "KEYED-MD5"
    number = b"" if is_historic else struct.pack(">I", sequence & 0xFFFFFFFF)
    field = 16 if is_historic else 24
    fixed = struct.pack(">BBHI", protocol, (8 + len(number) + field) // 4 - 2, 0, case["spi"]) + number
    # IPv6 wants AH in units of eight bytes.
    padding = bytes(-(len(fixed) + field) % 8) if before[0] >> 4 == 6 else b""
    fixed = fixed[:1] + bytes([(len(fixed) + field + len(padding)) // 4 - 2]) + fixed[2:]
    blank = joined(before, said_at, AH, fixed + bytes(field) + padding + payload)
    high = struct.pack(">I", sequence >> 32) if case["extended"] else b""
    covered = immutable(blank[: len(before)], is_historic) + blank[len(before) :] + high
    icv = (keyed_md5 if is_historic else gmac)(key, iv, covered)
    return joined(before, said_at, AH, fixed + iv + icv + padding + payload)


def des(case, iv, data, decrypt):
    # RFC 1829, 2: half an IV is followed by its complement.
    iv = iv if len(iv) == 8 else iv + bytes(255 - byte for byte in iv)
    cipher = Cipher(TripleDES(bytes.fromhex(case["encryption_key"]) * 3), modes.CBC(iv))
    step = cipher.decryptor() if decrypt else cipher.encryptor()
    return step.update(data) + step.finalize()


def esp(case, iv, before, said_at, protocol, payload, padding):
    trailer = padding + bytes([len(padding), protocol])
    sealed = struct.pack(">I", case["spi"]) + iv + des(case, iv, payload + trailer, False)
    return joined(before, said_at, ESP, sealed)


def answer(case):
    sealed = bytes.fromhex(case["sealed"])
    before, rest, said_at = split(sealed)
    sequence = case["sequence"]
    if case["protocol"] == "ah":
        protocol, payload = rest[0], rest[4 * (rest[1] + 2) :]
        # IV and ICV are behind the number.
        iv, other = (b"", b"") if case["authentication"] == "KEYED-MD5" else (rest[12:20], b"other IV")
        again = ah(case, sequence, iv, before, said_at, protocol, payload)
        following = ah(case, sequence + 1, other, before, said_at, protocol, payload)
    else:
        iv_length = 4 if case["encryption"] == "DES-CBC-IV32" else 8
        iv = rest[4 : 4 + iv_length]
        plain = des(case, iv, rest[4 + iv_length :], True)
        length, protocol = plain[-2:]
        payload, padding = plain[: -2 - length], plain[-2 - length : -2]
        again = esp(case, iv, before, said_at, protocol, payload, padding)
        following = esp(case, b"other IV"[:iv_length], before, said_at, protocol, payload, padding)
    if again != sealed:
        raise ValueError(f"it is {again.hex()} here")
    opened = payload if case["tunnel"] else joined(before, said_at, protocol, payload)
    return {"opened": opened.hex(), "sealed": again.hex(), "next": following.hex()}


def main():
    for line in sys.stdin:
        case = json.loads(line)
        try:
            print(json.dumps(answer(case)))
        except Exception as error:  # Whatever it is, the test names the case.
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}))


if __name__ == "__main__":
    main()
