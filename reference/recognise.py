"""Can Sidestep be told from other UDP?

    python3 reference/recognise.py --ours DIRECTORY --foreign DIRECTORY [--ndpi PROGRAM] [--seed N]

reads captures (pcap and pcapng), of Sidestep and of other programs, and prints what each judge says, as JSON: rules of a
few lines, nDPI, and a classifier that learns. Each capture of ours is one pair of gateways; the classifier never sees
flows of a capture that it is asked about, neither of ours nor of others.

A flow is all UDP between two addresses and ports. What a judge may look at is in `features` and in the rules: sizes of
payloads, directions, times, ports, and how random the first bytes are; never addresses or lifetimes of the captures.
"""

import argparse
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
from pathlib import Path

# Threads that wait for each other on a busy machine take longer than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Flows with fewer datagrams say nothing.
SHORTEST = 3

# As a rule sees it, a small datagram carries no packet of full size.
SMALL = 256

# Silence that a rule asks for, seconds.
SILENCE = 0.5

# What probes of the path once began with, as lengths of IPv6 packets, and the header of UDP and IPv6.
PROBES = (1500, 1492, 1480, 1400)
HEADERS = 48

ETHERNET, RAW, LINUX, LINUX_2, LOOPBACK = 1, (12, 14, 101), 113, 276, 0


class Flow:
    """All datagrams between two addresses and ports, in order: (time, by the one who began, size, first bytes)."""

    def __init__(self, source, destination):
        self.beginner = source
        self.ports = (source[1], destination[1])
        self.datagrams = []

    def sizes(self, first=None):
        return [size for _, _, size, _ in self.datagrams[:first]]

    def gaps(self, first=None):
        times = [time for time, _, _, _ in self.datagrams[:first]]
        return [max(0.0, later - earlier) for earlier, later in zip(times, times[1:])]


def network_layer(link, frame):
    """What follows the header of the link; None if it is not IP."""
    if link == ETHERNET:
        kind, start = int.from_bytes(frame[12:14], "big"), 14
        while kind in (0x8100, 0x88A8) and len(frame) >= start + 4:
            kind, start = int.from_bytes(frame[start + 2 : start + 4], "big"), start + 4
        return frame[start:] if kind in (0x0800, 0x86DD) else None
    if link in RAW:
        return frame
    if link == LINUX:
        return frame[16:]
    if link == LINUX_2:
        return frame[20:]
    if link == LOOPBACK:
        return frame[4:]
    return None


def datagram(packet):
    """Source, destination (address and port), size of the payload and its first bytes; None if it is no UDP."""
    if not packet:
        return None
    if packet[0] >> 4 == 4 and len(packet) >= 20:
        length, protocol = 4 * (packet[0] & 15), packet[9]
        fragment = int.from_bytes(packet[6:8], "big") & 0x3FFF
        source, destination, rest = packet[12:16], packet[16:20], packet[length:]
        if fragment:
            return None
    elif packet[0] >> 4 == 6 and len(packet) >= 40:
        protocol, source, destination, rest = packet[6], packet[8:24], packet[24:40], packet[40:]
    else:
        return None
    if protocol != 17 or len(rest) < 8:
        return None
    source_port, destination_port, length = struct.unpack("!HHH", rest[:6])
    if length < 8:
        return None
    return (source, source_port), (destination, destination_port), length - 8, bytes(rest[8:72])


def read(path):
    """The flows of a capture; of one that is cut off or broken, those before that."""
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapReader

    flows, reader = {}, None
    try:
        reader = RawPcapReader(str(path))
        for frame, metadata in reader:
            link = getattr(metadata, "linktype", None)
            parsed = datagram(network_layer(reader.linktype if link is None else link, frame))
            if parsed is None:
                continue
            source, destination, size, first = parsed
            flow = flows.setdefault(frozenset((source, destination)), Flow(source, destination))
            flow.datagrams.append((seconds(metadata, reader), source == flow.beginner, size, first))
    except (Scapy_Exception, EOFError, OSError, struct.error) as error:
        print(f"{path}: {error}", file=sys.stderr)
    finally:
        if reader is not None:
            reader.close()
    return [flow for flow in flows.values() if len(flow.datagrams) >= SHORTEST]


def seconds(metadata, reader):
    """The time of a record of pcap, in microseconds or nanoseconds, or pcapng."""
    if hasattr(metadata, "sec"):
        return metadata.sec + metadata.usec / (1e9 if reader.nano else 1e6)
    return ((metadata.tshigh << 32) | metadata.tslow) / (metadata.tsresol or 1e6)


# Rules.


def high_ports(flow):
    return min(flow.ports) >= 1024


def random_payloads(flow):
    """No byte of the first eight repeats much, half of all bits are set, as chance has it, and it is no text."""
    payloads = [first for _, _, _, first in flow.datagrams[:64] if len(first) >= 8]
    if len(payloads) < SHORTEST:
        return False
    distinct = set(payloads)
    for position in range(8):
        values = [payload[position] for payload in distinct]
        if max(values.count(value) for value in values) > max(2, len(values) / 2):
            return False
    together = b"".join(distinct)
    if sum(0x20 <= byte < 0x7F for byte in together) > len(together) / 2:
        return False
    return abs(ones(payloads) - 0.5) < 2.5 / (8 * sum(map(len, distinct))) ** 0.5 + 0.01


def ones(payloads):
    """The part of bits that are set."""
    together = b"".join(set(payloads))
    return int.from_bytes(together, "big").bit_count() / (8 * len(together)) if together else 0.0


def openers_then_silence(flow):
    """One small datagram from each end, then silence, then more."""
    first, second, *rest = flow.datagrams
    small = first[2] <= SMALL and second[2] <= SMALL
    return small and first[1] != second[1] and bool(rest) and rest[0][0] - second[0] >= SILENCE


def three_identical(flow):
    """One end repeats its first message, bit for bit, after a second or so, and once more."""
    first = flow.datagrams[:3]
    same = len({(by, size, payload) for _, by, size, payload in first}) == 1
    return same and all(0.7 <= gap <= 1.6 for gap in flow.gaps(3))


def probes_in_a_row(flow):
    """The sizes that a path is tried with, from one end, in the same hundredth of a second."""
    wanted = [length - HEADERS for length in PROBES]
    for end in (True, False):
        large = [(time, size) for time, by, size, _ in flow.datagrams if by == end and size >= wanted[-1]]
        for start in range(len(large) - len(wanted) + 1):
            run = large[start : start + len(wanted)]
            if [size for _, size in run] == wanted and run[-1][0] - run[0][0] < 0.01:
                return True
    return False


RULES = {
    "openers, then silence": openers_then_silence,
    "three identical first messages": three_identical,
    "1500, 1492, 1480, 1400 in a row": probes_in_a_row,
    "both ports high, payload random": lambda flow: True,
}


def suspicious(flow):
    """What every rule asks for first."""
    return high_ports(flow) and random_payloads(flow)


def judge_rules(ours, foreign):
    """How many flows of each kind each rule takes for ours."""
    verdicts = []
    for name, rule in RULES.items():
        hits = [sum(suspicious(flow) and rule(flow) for flow in flows) for flows in (ours, foreign)]
        verdicts.append(
            {
                "judge": f"rule: {name}",
                "hits": hits[0],
                "flows": len(ours),
                "false_hits": hits[1],
                "foreign_flows": len(foreign),
                "hit_rate": hits[0] / len(ours) if ours else 0.0,
                "interval": wilson(hits[0], len(ours)),
            }
        )
    return verdicts


def wilson(hits, count):
    """The 95 % confidence interval of a proportion."""
    if not count:
        return [0.0, 1.0]
    z, part = 1.96, hits / count
    middle = part + z * z / (2 * count)
    margin = z * (part * (1 - part) / count + z * z / (4 * count * count)) ** 0.5
    scale = 1 + z * z / count
    return [max(0.0, (middle - margin) / scale), min(1.0, (middle + margin) / scale)]


# nDPI.


def judge_ndpi(program, captures):
    """What nDPI calls the flows of our captures: it prints a line for each protocol."""
    named = {}
    for capture in captures:
        said = subprocess.run([program, "-i", str(capture)], capture_output=True, text=True, check=True)
        for name, count in ndpi_flows(said.stdout).items():
            named[name] = named.get(name, 0) + count
    flows, unknown = sum(named.values()), named.pop("Unknown", 0)
    return {"judge": "nDPI", "hits": flows - unknown, "flows": flows, "named": named,
            "hit_rate": (flows - unknown) / flows if flows else 0.0, "interval": wilson(flows - unknown, flows)}


def ndpi_flows(text):
    """Flows by protocol; neighbor discovery and the like are no flows of a tunnel."""
    found = re.findall(r"^\s+(\S+)\s+packets:\s*\d+\s+bytes:\s*\d+\s+flows:\s*(\d+)", text, re.MULTILINE)
    return {name: int(count) for name, count in found if name != "ICMPV6"}


# The judge that learns.


def features(flow):
    """A flow as numbers."""
    sizes, gaps = flow.sizes(), flow.gaps()
    forth = [by for _, by, _, _ in flow.datagrams]
    payloads = [first for _, _, _, first in flow.datagrams[:64]]
    numbers = [min(flow.ports), max(flow.ports), ones(payloads)]
    for position in (0, 1, 2, 3, 7):
        values = [payload[position] for payload in payloads if len(payload) > position]
        numbers.append(len(set(values)) / len(values) if values else 0.0)
    numbers += [len(sizes), sum(forth) / len(forth), statistics.fmean(sizes), statistics.pstdev(sizes)]
    numbers += quantiles(sizes) + quantiles(gaps) + [len(set(sizes)) / len(sizes)]
    for place in range(6):
        there = place < len(flow.datagrams)
        numbers += [(sizes[place] if forth[place] else -sizes[place]) if there else 0]
        numbers += [gaps[place] if place < len(gaps) else -1.0]
    numbers.append(flow.datagrams[-1][0] - flow.datagrams[0][0])
    return numbers


def quantiles(values):
    ordered = sorted(values)
    return [ordered[round(part * (len(ordered) - 1))] for part in (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)]


def judge_learned(ours, foreign, seed, name):
    """Gradient boosting over `features`; `ours` and `foreign` are lists of captures, each a list of flows."""
    import numpy
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedGroupKFold

    rows, truth, groups = [], [], []
    for is_ours, captures in ((1, ours), (0, foreign)):
        for capture in captures:
            for flow in capture:
                rows.append(features(flow))
                truth.append(is_ours)
                groups.append((is_ours, id(capture)))
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    groups = numpy.array([numbers[group] for group in groups])
    rows, truth = numpy.array(rows, dtype=float), numpy.array(truth)
    folds = min(4, len({*groups[truth == 1]}), len({*groups[truth == 0]}))
    if folds < 2:
        raise SystemExit(f"{name}: a judge that learns needs two captures of ours and two of others with flows")
    scores = numpy.full(len(truth), numpy.nan)
    split = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    for train, test in split.split(rows, truth, groups):
        if len({*truth[train]}) < 2:
            continue
        learned = HistGradientBoostingClassifier(random_state=seed).fit(rows[train], truth[train])
        scores[test] = learned.predict_proba(rows[test])[:, 1]
    judged = ~numpy.isnan(scores)
    truth, scores, groups = truth[judged], scores[judged], groups[judged]
    auc = roc_auc_score(truth, scores)
    drawn, found = random.Random(seed), []
    by_group = {group: numpy.flatnonzero(groups == group) for group in sorted({*groups})}
    kinds = [[group for group in by_group if truth[by_group[group][0]] == kind] for kind in (0, 1)]
    for _ in range(500):
        chosen = [group for kind in kinds for group in drawn.choices(kind, k=len(kind))]
        places = numpy.concatenate([by_group[group] for group in chosen])
        found.append(roc_auc_score(truth[places], scores[places]))
    found.sort()
    # Hits where at most one of a hundred others is taken for ours.
    threshold = numpy.quantile(scores[truth == 0], 0.99)
    hits = int((scores[truth == 1] > threshold).sum())
    flows = int((truth == 1).sum())
    return {"judge": name, "auc": auc, "chance": 0.5, "interval": [found[12], found[487]],
            "hits": hits, "flows": flows, "hit_rate": hits / flows,
            "false_hits": int((scores[truth == 0] > threshold).sum()), "foreign_flows": int((truth == 0).sum())}


def captures(directory):
    return sorted(path for path in Path(directory).iterdir() if path.suffix in (".pcap", ".pcapng", ".cap"))


def main():
    parser = argparse.ArgumentParser(description="Can Sidestep be told from other UDP?")
    parser.add_argument("--ours", required=True)
    parser.add_argument("--foreign", required=True)
    parser.add_argument("--ndpi")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    ours = [flows for flows in map(read, captures(options.ours)) if flows]
    foreign = [flows for flows in map(read, captures(options.foreign)) if flows]
    if not ours or not foreign:
        raise SystemExit("no flows of UDP in the captures: look at the directories")
    verdicts = judge_rules(sum(ours, []), sum(foreign, []))
    if options.ndpi:
        verdicts.append(judge_ndpi(options.ndpi, captures(options.ours)))
    verdicts.append(judge_learned(ours, foreign, options.seed, "learned, among all UDP"))
    alike = [kept for kept in ([flow for flow in flows if suspicious(flow)] for flows in foreign) if kept]
    if len(alike) > 1:
        verdicts.append(judge_learned(ours, alike, options.seed, "learned, among high ports and random payloads"))
    json.dump(verdicts, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
