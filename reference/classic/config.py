"""The files of the thesis: mt6d.ini, users, ethers, profiles. docs/classic.md section 11."""

import ipaddress
import pathlib
from typing import NamedTuple

from .derive import Host, Rotation
from .packet import CIPHERS
from .stream import Settings

DAY = 86400


class Config(NamedTuple):
    internal_nic: str
    external_nic: str
    bridging_nic: str  # empty: hashed addresses are routed here, and not bound
    firewall: bool
    log_file: str
    profiles: pathlib.Path
    streams: list


def lines(path):
    """Lines without comments, split at white space."""
    for line in path.read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            yield words


def read_ini(path):
    settings = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].split(";")[0].strip()
        if line and not line.startswith("["):
            name, _, value = line.partition("=")
            settings[name.strip().lower()] = value.strip()
    return settings


def is_true(text):
    return text.lower() in ("1", "true", "yes", "on")


def address_first(words):
    """An address and something else, which stand in either order."""
    first, second = words
    return (first, second) if ":" in first and len(first.split(":")) != 6 else (second, first)


def read_users(path):
    return {name: ipaddress.IPv6Address(text).packed for text, name in map(address_first, lines(path))}


def read_ethers(path):
    pairs = map(address_first, lines(path))
    return {ipaddress.IPv6Address(text).packed: bytes.fromhex(mac.replace(":", "")) for text, mac in pairs}


def read(path):
    path = pathlib.Path(path)
    ini = read_ini(path)

    def location(name):
        return path.parent / ini.get(f"{name}_location", name)

    users = read_users(location("users"))
    ethers = read_ethers(location("ethers")) if location("ethers").exists() else {}
    rotation = Rotation(int(ini.get("rotation_time", 10)), int(ini.get("rotation_spread", 1)))
    crypt_type = ini.get("crypt_type", "aes-256-cbc").lower()
    cipher = CIPHERS[crypt_type] if is_true(ini.get("encrypt", "true")) else 0
    lifetime = int(ini.get("lifetime", 3 * rotation.longest()))
    exchange = int(ini.get("regen_interval", DAY)), int(ini.get("regen_window", 30))

    streams = []
    for source, destination, key in lines(location("profiles")):
        addresses = [users[source], users[destination]]
        macs = [ethers.get(address) for address in addresses]
        if None in macs:
            macs = [b"", b""]
        ends = [Host(*end) for end in zip(addresses, macs)]
        streams.append(Settings(*ends, bytes.fromhex(key), cipher, rotation, lifetime, *exchange))
    return Config(
        ini["internal_nic"],
        ini["external_nic"],
        ini.get("bridging_nic", ""),
        is_true(ini.get("firewall", "true")),
        ini.get("log_file", ""),
        location("profiles"),
        streams,
    )
