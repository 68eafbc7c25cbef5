"""The cryptographic primitives that the protocol stands on, with nothing but Python's standard library.

Slow and not hardened against timing: for checking test vectors, never for traffic. `check()` holds each of them
against the vectors of its own standard.
"""

import hashlib
import hmac
import struct


def sha256(data):
    return hashlib.sha256(data).digest()


def hmac_sha256(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def hkdf_extract(salt, ikm):
    """RFC 5869 section 2.2."""
    return hmac_sha256(salt, ikm)


def hkdf_expand(prk, info, length=32):
    """RFC 5869 section 2.3."""
    out, block, count = b"", b"", 0
    while len(out) < length:
        count += 1
        block = hmac_sha256(prk, block + info + bytes([count]))
        out += block
    return out[:length]


def blake2s(data):
    return hashlib.blake2s(data).digest()


def hmac_blake2s(key, data):
    return hmac.new(key, data, hashlib.blake2s).digest()


# X25519, RFC 7748


def x25519(scalar, point=(9).to_bytes(32, "little")):
    p = 2**255 - 19
    k = bytearray(scalar)
    k[0] &= 248
    k[31] = k[31] & 127 | 64
    k = int.from_bytes(k, "little")
    x1 = int.from_bytes(point, "little") % 2**255 % p
    x2, z2, x3, z3, swapped = 1, 0, x1, 1, 0
    for bit in range(254, -1, -1):
        k_bit = k >> bit & 1
        if k_bit != swapped:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swapped = k_bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % p, b * b % p, d * a % p, c * b % p
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % p, x1 * (da - cb) ** 2 % p
        x2, z2 = aa * bb % p, e * (aa + 121665 * e) % p
    if swapped:
        x2, z2 = x3, z3
    return (x2 * pow(z2, p - 2, p) % p).to_bytes(32, "little")


# ChaCha20 and Poly1305, RFC 8439; XChaCha20, draft-irtf-cfrg-xchacha-03


def _rotate(value, count):
    value &= 0xFFFFFFFF
    return (value << count | value >> (32 - count)) & 0xFFFFFFFF


def _chacha_rounds(state, rounds=20):
    s = list(state)
    columns = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    diagonals = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for _ in range(rounds // 2):
        for a, b, c, d in columns + diagonals:
            for x, y, z, count in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                s[x] = (s[x] + s[y]) & 0xFFFFFFFF
                s[z] = _rotate(s[z] ^ s[x], count)
    return s


_CONSTANTS = struct.unpack("<4I", b"expand 32-byte k")


def chacha20_block(key, counter, nonce, rounds=20):
    state = _CONSTANTS + struct.unpack("<8I", key) + (counter,) + struct.unpack("<3I", nonce)
    mixed = _chacha_rounds(state, rounds)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, mixed)))


def chacha20(key, counter, nonce, data):
    out = bytearray()
    for at in range(0, len(data), 64):
        stream = chacha20_block(key, counter + at // 64, nonce)
        out += bytes(a ^ b for a, b in zip(data[at : at + 64], stream))
    return bytes(out)


def poly1305(key, data):
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for at in range(0, len(data), 16):
        total = (total + int.from_bytes(data[at : at + 16] + b"\x01", "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def chacha20_poly1305(key, nonce, plain, aad=b""):
    """Ciphertext and tag."""
    sealed = chacha20(key, 1, nonce, plain)
    padded = b"".join(part + bytes(-len(part) % 16) for part in (aad, sealed))
    lengths = struct.pack("<QQ", len(aad), len(sealed))
    return sealed + poly1305(chacha20_block(key, 0, nonce)[:32], padded + lengths)


def xchacha20_poly1305(key, nonce, plain, aad=b""):
    state = _CONSTANTS + struct.unpack("<8I", key) + struct.unpack("<4I", nonce[:16])
    mixed = _chacha_rounds(state)
    subkey = struct.pack("<8I", *(mixed[:4] + mixed[12:]))
    return chacha20_poly1305(subkey, bytes(4) + nonce[16:], plain, aad)


# AES-256 (FIPS 197) and GCM (NIST SP 800-38D)


def _double(byte):
    return (byte << 1 ^ (0x11B if byte & 0x80 else 0)) & 0xFF


def _sbox():
    box, p, q = [0] * 256, 1, 1
    while True:
        p ^= _double(p)
        for shift in (1, 2, 4):
            q ^= q << shift & 0xFF
        q ^= 0x09 if q & 0x80 else 0
        box[p] = q ^ 0x63
        for shift in (1, 2, 3, 4):
            box[p] ^= (q << shift | q >> (8 - shift)) & 0xFF
        if p == 1:
            box[0] = 0x63
            return box


_SBOX = _sbox()


def aes256_block(key, block):
    words = [key[i : i + 4] for i in range(0, 32, 4)]
    constant = 1
    for i in range(8, 60):
        word = words[-1]
        if i % 8 == 0:
            word = bytes(_SBOX[b] for b in word[1:] + word[:1])
            word = bytes([word[0] ^ constant]) + word[1:]
            constant = _double(constant)
        elif i % 8 == 4:
            word = bytes(_SBOX[b] for b in word)
        words.append(bytes(a ^ b for a, b in zip(words[-8], word)))
    round_keys = [b"".join(words[i : i + 4]) for i in range(0, 60, 4)]
    state = [a ^ b for a, b in zip(block, round_keys[0])]
    for number, round_key in enumerate(round_keys[1:], 1):
        state = [_SBOX[state[(i + 4 * (i % 4)) % 16]] for i in range(16)]
        if number < 14:
            mixed = []
            for column in range(0, 16, 4):
                a = state[column : column + 4]
                for i in range(4):
                    mixed.append(_double(a[i] ^ a[(i + 1) % 4]) ^ a[(i + 1) % 4] ^ a[(i + 2) % 4] ^ a[(i + 3) % 4])
            state = mixed
        state = [a ^ b for a, b in zip(state, round_key)]
    return bytes(state)


def aes256_gcm(key, nonce, plain, aad=b""):
    """Ciphertext and tag."""
    h = int.from_bytes(aes256_block(key, bytes(16)), "big")

    def multiply(x):
        product, v = 0, h
        for bit in range(127, -1, -1):
            if x >> bit & 1:
                product ^= v
            v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
        return product

    def stream(counter):
        return aes256_block(key, nonce + struct.pack(">I", counter))

    sealed = bytearray()
    for at in range(0, len(plain), 16):
        sealed += bytes(a ^ b for a, b in zip(plain[at : at + 16], stream(2 + at // 16)))
    hashed = 0
    padded = b"".join(part + bytes(-len(part) % 16) for part in (aad, bytes(sealed)))
    padded += struct.pack(">QQ", 8 * len(aad), 8 * len(sealed))
    for at in range(0, len(padded), 16):
        hashed = multiply(hashed ^ int.from_bytes(padded[at : at + 16], "big"))
    tag = hashed ^ int.from_bytes(stream(1), "big")
    return bytes(sealed) + tag.to_bytes(16, "big")


def check():
    """Each primitive against a vector of its standard."""

    def expect(got, wanted):
        if got.hex() != wanted:
            raise AssertionError(f"a primitive is wrong: {got.hex()} instead of {wanted}")

    # RFC 5869 A.1, RFC 7748 6.1
    prk = hkdf_extract(bytes(range(13)), b"\x0b" * 22)
    expect(
        hkdf_expand(prk, bytes(range(0xF0, 0xFA)), 42),
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    )
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    expect(x25519(alice), "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    expect(x25519(alice, x25519(bob)), "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    # RFC 8439 2.8.2, draft-irtf-cfrg-xchacha-03 A.3.1
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    key, aad = bytes(range(0x80, 0xA0)), bytes.fromhex("50515253c0c1c2c3c4c5c6c7")
    sealed = chacha20_poly1305(key, bytes.fromhex("070000004041424344454647"), text, aad)
    expect(sealed[:16] + sealed[-16:], "d31a8d34648e60db7b86afbc53ef7ec21ae10b594f09e26a7e902ecbd0600691")
    sealed = xchacha20_poly1305(key, bytes(range(0x40, 0x58)), text, aad)
    expect(sealed[:16] + sealed[-16:], "bd6d179d3e83d43b9576579493c0e939c0875924c1c7987947deafd8780acf49")
    # FIPS 197 C.3, GCM specification test case 15
    expect(
        aes256_block(bytes(range(32)), bytes.fromhex("00112233445566778899aabbccddeeff")),
        "8ea2b7ca516745bfeafc49904b496089",
    )
    key = bytes.fromhex("feffe9928665731c6d6a8f9467308308") * 2
    plain = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
    )
    sealed = aes256_gcm(key, bytes.fromhex("cafebabefacedbaddecaf888"), plain)
    expect(sealed[:16] + sealed[-16:], "522dc1f099567d07f47f37a32a84427db094dac5d93471bdec1a502270e3cc6c")

