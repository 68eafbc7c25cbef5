"""What `recognise.py` reads and judges, on captures and flows that are made up: `python3 -B reference/test_recognise.py`."""

import random
import struct
import tempfile
import unittest
from pathlib import Path

import recognise
from recognise import Flow

try:
    import sklearn
except ImportError:
    sklearn = None
try:
    import scapy
except ImportError:
    scapy = None

DRAWN = random.Random(7)


def flow(*datagrams, ports=(40_000, 50_000), payload=None):
    """Of (time, by the one who began, size)."""
    made = Flow((b"a", ports[0]), (b"b", ports[1]))
    for time, by, size in datagrams:
        made.datagrams.append((time, by, size, payload or DRAWN.randbytes(min(64, size))))
    return made


def drawn(pattern, random):
    """A flow of random sizes at random times; with the pattern, every third datagram is of one size."""
    time, datagrams = 0.0, []
    for number in range(20):
        time += random.expovariate(20)
        size = 777 if pattern and number % 3 == 0 else random.randrange(30, 1000)
        datagrams.append((time, random.random() < 0.5, size))
    return flow(*datagrams)


class Reading(unittest.TestCase):
    def packet(self, version, payload=b"12345678", source=1000, destination=2000):
        udp = struct.pack("!HHHH", source, destination, 8 + len(payload), 0) + payload
        if version == 6:
            return bytes([0x60, 0, 0, 0, 0, len(udp), 17, 64]) + bytes(15) + b"\1" + bytes(15) + b"\2" + udp
        return bytes([0x45, 0, 0, 20 + len(udp), 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]) + udp

    def test_datagrams_of_both_versions_are_read(self):
        for version in (4, 6):
            (_, source), (_, destination), size, first = recognise.datagram(self.packet(version))
            self.assertEqual((source, destination, size, first), (1000, 2000, 8, b"12345678"))

    def test_what_is_cut_or_no_datagram_is_left(self):
        for version in (4, 6):
            whole = self.packet(version)
            for length in range(len(whole) - 8):
                self.assertIsNone(recognise.datagram(whole[:length]))
        for length in range(80):
            for _ in range(20):
                recognise.datagram(DRAWN.randbytes(length))
                recognise.network_layer(DRAWN.choice([0, 1, 12, 113, 276, 147]), DRAWN.randbytes(length))

    def test_headers_of_links_are_skipped(self):
        packet = self.packet(6)
        vlan = bytes(12) + b"\x81\x00\x00\x05\x86\xdd" + packet
        for link, frame in ((1, bytes(12) + b"\x86\xdd" + packet), (1, vlan), (101, packet), (113, bytes(16) + packet)):
            self.assertEqual(recognise.network_layer(link, frame), packet)
        self.assertIsNone(recognise.network_layer(1, bytes(60)))

    @unittest.skipUnless(scapy, "needs python3-scapy")
    def test_both_directions_of_a_capture_are_one_flow_and_a_cut_end_is_left(self):
        there, back = self.packet(6), self.packet(6, source=2000, destination=1000)
        back = back[:8] + back[24:40] + back[8:24] + back[40:]
        for magic, half in ((0xA1B2C3D4, 500_000), (0xA1B23C4D, 500_000_000)):
            text = struct.pack("<IHHIIII", magic, 2, 4, 0, 0, 65535, 101)
            for second, packet in enumerate((there, back, there, back)):
                text += struct.pack("<IIII", second, half, len(packet), len(packet)) + packet
            with tempfile.TemporaryDirectory() as directory:
                capture = Path(directory) / "one.pcap"
                capture.write_bytes(text + b"\0\0")
                (one,) = recognise.read(capture)
                (Path(directory) / "none.pcap").write_bytes(b"no capture")
                self.assertEqual(recognise.read(Path(directory) / "none.pcap"), [])
            self.assertEqual([(time, by) for time, by, _, _ in one.datagrams], [(0.5, 1), (1.5, 0), (2.5, 1), (3.5, 0)])


class Rules(unittest.TestCase):
    def test_openers_then_silence(self):
        self.assertTrue(recognise.openers_then_silence(flow((0, 1, 60), (0.1, 0, 70), (5, 1, 900), (5.1, 0, 900))))
        self.assertFalse(recognise.openers_then_silence(flow((0, 1, 60), (0.1, 0, 70), (0.2, 1, 900), (5, 0, 9))))
        self.assertFalse(recognise.openers_then_silence(flow((0, 1, 60), (0.1, 1, 70), (5, 1, 900), (5.1, 0, 9))))

    def test_three_identical_first_messages(self):
        times = [(0, 1, 90), (1.0, 1, 90), (2.2, 1, 90), (9, 0, 90)]
        self.assertTrue(recognise.three_identical(flow(*times, payload=b"\x5a" * 64)))
        self.assertFalse(recognise.three_identical(flow(*times)))
        self.assertFalse(recognise.three_identical(flow((0, 1, 90), (0.1, 1, 90), (0.2, 1, 90), payload=b"\x5a" * 64)))

    def test_probes_in_a_row(self):
        sizes = [size - 48 for size in recognise.PROBES]
        probes = [(1 + place / 1000, 1, size) for place, size in enumerate(sizes)]
        self.assertTrue(recognise.probes_in_a_row(flow((0, 1, 60), *probes, (1.002, 0, 50))))
        late = [(place, 1, size) for place, size in enumerate(sizes)]
        self.assertFalse(recognise.probes_in_a_row(flow(*late)))
        self.assertFalse(recognise.probes_in_a_row(flow(*reversed(probes))))

    def test_text_and_headers_are_not_random(self):
        times = [(second, 1, 64) for second in range(8)]
        self.assertTrue(recognise.random_payloads(flow(*times)))
        self.assertFalse(recognise.random_payloads(flow(*times, payload=b"M-SEARCH * HTTP/1.1 HOST: somebody")))
        header = flow(*times)
        header.datagrams = [(time, by, size, b"\x80\x60" + first) for time, by, size, first in header.datagrams]
        self.assertFalse(recognise.random_payloads(header))

    def test_protocols_that_ndpi_names_are_counted(self):
        text = "Detected protocols:\n\tUnknown              packets: 90  bytes: 80  flows: 7  \n" \
               "\tICMPV6               packets: 9             bytes: 8             flows: 3            \n" \
               "\tQUIC                 packets: 9             bytes: 8             flows: 2            \n"
        self.assertEqual(recognise.ndpi_flows(text), {"Unknown": 7, "QUIC": 2})

    def test_an_interval_of_a_part_holds_it(self):
        low, high = recognise.wilson(0, 40)
        self.assertTrue(abs(low) < 1e-9 and 0.08 < high < 0.1)
        self.assertEqual(recognise.wilson(0, 0), [0.0, 1.0])


@unittest.skipUnless(sklearn, "needs python3-sklearn")
class Learned(unittest.TestCase):
    def judged(self, seed, pattern):
        drawing = random.Random(seed)
        ours, foreign = ([[drawn(kind, drawing) for _ in range(20)] for _ in range(8)] for kind in (pattern, False))
        return recognise.judge_learned(ours, foreign, seed, "learned")

    def test_a_habit_is_found(self):
        verdict = self.judged(1, True)
        self.assertGreater(verdict["auc"], 0.95)
        self.assertGreater(verdict["hit_rate"], 0.5)

    def test_where_flows_are_alike_nothing_is_found(self):
        found = [self.judged(seed, False)["auc"] for seed in range(3)]
        self.assertTrue(0.4 < sum(found) / 3 < 0.6, found)


if __name__ == "__main__":
    unittest.main()
