#!/usr/bin/env python3
"""A second implementation of the SK payload of IKEv2: RFC 7296 section 3.14, RFC 5282, RFC 7634.

    reference/ike_sealed.py

Prints the messages that the tests of `crates/ike/src/crypto/encryption.rs` open. Needs the package `cryptography`.
"""

import hashlib
import hmac

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

INNER = bytes.fromhex("000000080000" + "4000")  # N(INITIAL_CONTACT), the only payload inside.


def message(sealed_length):
    """Header of an INFORMATIONAL request, and the generic header of SK, whose first payload inside is N (41)."""
    length = 28 + 4 + sealed_length
    header = bytes(range(16)) + bytes([46, 0x20, 37, 8]) + (7).to_bytes(4, "big") + length.to_bytes(4, "big")
    return header + bytes([41, 0]) + (4 + sealed_length).to_bytes(2, "big")


def aead(algorithm, key_length):
    key, salt, iv = bytes(range(key_length)), b"salt", bytes(8)
    aad = message(8 + len(INNER) + 1 + 16)
    return aad + iv + algorithm(key).encrypt(salt + iv, INNER + b"\0", aad)


def cbc():
    key, auth_key, iv = bytes(range(32)), bytes(range(48)), bytes(range(100, 116))
    padding = -(len(INNER) + 1) % 16
    start = message(16 + len(INNER) + padding + 1 + 24)
    encryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    sealed = start + iv + encryptor.update(INNER + bytes(padding) + bytes([padding]))
    return sealed + hmac.new(auth_key, sealed, hashlib.sha384).digest()[:24]


print("AES-128-GCM", aead(AESGCM, 16).hex())
print("ChaCha20-Poly1305", aead(ChaCha20Poly1305, 32).hex())
print("AES-256-CBC, HMAC-SHA-384-192", cbc().hex())
