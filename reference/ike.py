#!/usr/bin/env python3
"""A second implementation of the key derivation of IKEv2, written from RFC 7296 alone.

    reference/ike.py

Prints what the tests of `crates/ike/src/keys.rs` compare with. Needs nothing but Python's standard library.
"""

import hashlib
import hmac


def prf(key, data):
    return hmac.new(key, data, hashlib.sha384).digest()


def prf_plus(key, seed, length):
    """Section 2.13."""
    out, block, count = b"", b"", 0
    while len(out) < length:
        count += 1
        block = prf(key, block + seed + bytes([count]))
        out += block
    return out[:length]


def ike_keys(skeyseed, ni, nr, spi_i, spi_r):
    """Section 2.14, for PRF_HMAC_SHA2_384, AES-CBC-256 and AUTH_HMAC_SHA2_384_192."""
    stream = prf_plus(skeyseed, ni + nr + spi_i + spi_r, 3 * 48 + 2 * 48 + 2 * 32)
    keys = {}
    for name, length in [("d", 48), ("ai", 48), ("ar", 48), ("ei", 32), ("er", 32), ("pi", 48), ("pr", 48)]:
        keys[name], stream = stream[:length], stream[length:]
    return keys


def main():
    ni, nr = bytes(range(32)), bytes(range(100, 148))
    spi_i, spi_r = bytes(range(1, 9)), bytes(range(0x11, 0x19))
    shared = bytes(range(50, 82))
    keys = ike_keys(prf(ni + nr, shared), ni, nr, spi_i, spi_r)
    for name in ("d", "pi", "pr"):
        print(f"sk_{name}", keys[name].hex())

    # Section 2.15: ID_FQDN "a", the message and the nonce of the other end.
    octets = b"message" + b"nonce" + prf(keys["pi"], bytes([2, 0, 0, 0]) + b"a")
    print("auth", prf(prf(b"secret", b"Key Pad for IKEv2"), octets).hex())

    # Section 2.17, with a key exchange of the child's own.
    print("child", prf_plus(keys["d"], shared + ni + nr, 72).hex())

    # Section 2.18.
    rekeyed = ike_keys(prf(keys["d"], shared + ni + nr), ni, nr, spi_i, spi_r)
    print("rekeyed_sk_d", rekeyed["d"].hex())


if __name__ == "__main__":
    main()
