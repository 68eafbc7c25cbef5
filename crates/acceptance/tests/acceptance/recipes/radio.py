"""Makes a radio of mac80211_hwsim with this name in the namespace of this process, where its interface is a wlan."""

import socket
import struct
import sys

GET_FAMILY, FAMILY_ID, FAMILY_NAME, CONTROL = 3, 1, 2, 16
NEW_RADIO, RADIO_NAME = 4, 17
REQUEST_WITH_ACK, ERROR = 5, 2


def attribute(kind, value):
    return struct.pack("@HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def call(family, command, attributes):
    """The kernel's answers to a command, by their types; an error ends this."""
    body = struct.pack("@BBH", command, 1, 0) + attributes
    netlink.send(struct.pack("@IHHII", 16 + len(body), family, REQUEST_WITH_ACK, 1, 0) + body)
    answers = {}
    while ERROR not in answers:
        data = netlink.recv(65536)
        while data:
            length, kind = struct.unpack_from("@IH", data)
            answers[kind] = data[16:length]
            data = data[(length + 3) & ~3 :]
    error = struct.unpack_from("@i", answers[ERROR])[0]
    if error < 0:
        raise OSError(-error, "mac80211_hwsim")
    return answers


netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
netlink.bind((0, 0))
said = call(CONTROL, GET_FAMILY, attribute(FAMILY_NAME, b"MAC80211_HWSIM\0"))[CONTROL][4:]
family = None
while said:
    length, kind = struct.unpack_from("@HH", said)
    if kind == FAMILY_ID:
        family = struct.unpack_from("@H", said, 4)[0]
    said = said[(length + 3) & ~3 :]
call(family, NEW_RADIO, attribute(RADIO_NAME, sys.argv[1].encode() + b"\0"))
