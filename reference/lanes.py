#!/usr/bin/env python3
"""What the times alone of a pair's lanes tell an observer: docs/protocol.md, "Lanes".

    reference/lanes.py [--write]

Draws the lanes of many pairs, as that section says, and judges them: given the moment at which one flow ends, which of two
pairs was it, by when their other flows begin? One is the pair that it belonged to, one is another; a judge that is right
half the time knows nothing. Compares the table that comes of it with the one in the document, or with --write puts it there.
Needs nothing but Python's standard library.
"""

import bisect
import itertools
import math
import pathlib
import sys

from vectors import lives

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs/protocol.md"
BEGIN, END = "<!-- what reference/lanes.py finds -->\n", "<!-- end of it -->\n"
INTERVAL = 10_000
NUMBERS = (1, 2, 3, 4, 8, 16)
PAIRS, LANES = 64, 300
# What happens within so long of a death counts.
WINDOW = 2 * INTERVAL
BINS = 40


class Pair:
    """The flows of one pair, from when on nothing remembers how the session began."""

    def __init__(self, number, lanes):
        drawn = list(itertools.islice(lives(number.to_bytes(32, "big"), INTERVAL, lanes), LANES + 40 * lanes))
        self.end = drawn[LANES][0] - WINDOW
        self.begin = 10 * INTERVAL
        self.births = [birth for birth, _ in drawn]
        self.deaths = sorted(death for _, death in drawn)
        self.flows = [(birth, death) for birth, death in drawn if self.begin <= death < self.end]

    def alive(self):
        """How many lanes, on average; and for how much of the time only one."""
        steps = sorted([(at, 1) for at in self.births] + [(at, -1) for at in self.deaths])
        alive, before, area, alone = 0, self.begin, 0, 0
        for at, step in steps:
            if self.begin < at <= self.end:
                area += alive * (at - before)
                alone += (at - before) * (alive == 1)
                before = at
            alive += step
        return area / (before - self.begin), alone / (before - self.begin)

    def born_about(self, at, but):
        """When lanes are born around a moment, relative to it, without that of one flow."""
        first = bisect.bisect_left(self.births, at - WINDOW)
        last = bisect.bisect_left(self.births, at + WINDOW)
        gaps = [birth - at for birth in self.births[first:last]]
        if but is not None and abs(but - at) <= WINDOW:
            gaps.remove(but - at)
        return gaps


def next_after(times, at):
    return times[bisect.bisect_right(times, at)] - at


def area_under_curve(same, other):
    """How often what is the same scores higher than what is not; ties count half."""
    scores = sorted([(score, 1) for score in same] + [(score, 0) for score in other])
    rank, won = 0, 0.0
    for _, group in itertools.groupby(scores, key=lambda pair: pair[0]):
        group = [mark for _, mark in group]
        won += sum(group) * (rank + (len(group) - sum(group)) / 2)
        rank += len(group) - sum(group)
    return won / (len(same) * len(other))


def histogram(gaps):
    counts = [1.0] * BINS
    for gap in gaps:
        counts[min(int((gap + WINDOW) * BINS / (2 * WINDOW)), BINS - 1)] += 1
    return counts


def learn(same, other):
    """What a birth at each distance from a death speaks for."""
    same, other = histogram(itertools.chain(*same)), histogram(itertools.chain(*other))
    return [math.log(one / two) for one, two in zip(same, other)]


def judged(weights, cases):
    return [sum(weights[min(int((gap + WINDOW) * BINS / (2 * WINDOW)), BINS - 1)] for gap in gaps) for gaps in cases]


def row(lanes):
    pairs = [Pair(number, lanes) for number in range(PAIRS)]
    means, alones = zip(*(pair.alive() for pair in pairs))
    nearest, following, births, deaths = ([], []), ([], []), ([], []), ([], [])
    # Pairs that the judge learns from, and those that it judges, are never the same.
    sides = {"learned": ([], []), "judged": ([], [])}
    for number, pair in enumerate(pairs):
        other = pairs[number ^ 2]
        side = sides["learned" if number & 1 else "judged"]
        for birth, death in pair.flows:
            if death >= other.end:
                continue
            for at, (who, but) in enumerate(((pair, birth), (other, None))):
                gaps = who.born_about(death, but)
                side[at].append(gaps)
                nearest[at].append(-min(map(abs, gaps), default=WINDOW))
                following[at].append(-next_after(who.births, death))
                births[at].append(-next_after(who.births, birth))
                deaths[at].append(-next_after(who.deaths, death))
    weights = learn(*sides["learned"])
    best = [judged(weights, cases) for cases in sides["judged"]]
    mean, alone = sum(means) / PAIRS, sum(alones) / PAIRS
    ages = sorted(death - birth for pair in pairs for birth, death in pair.flows)
    longest = ages[len(ages) * 99 // 100] / INTERVAL
    aucs = [area_under_curve(*scores) for scores in (nearest, following, births, deaths, best)]
    return f"| {lanes} | {mean:.1f} | {100 * alone:.0f} % | {longest:.1f}·T | " + " | ".join(f"{auc:.2f}" for auc in aucs) + " |\n"


def table():
    head = (
        "| n | alive on average | only one alive | one life in 100 is longer than | nearest birth to a death | next birth after a death "
        "| next birth after a birth | next death after a death | all births about a death, learned |\n"
    )
    return head + "|---" * 9 + "|\n" + "".join(map(row, NUMBERS))


def main():
    text, found = DOCUMENT.read_text("utf-8"), f"{BEGIN}\n{table()}\n{END}"
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    if sys.argv[1:] == ["--write"]:
        DOCUMENT.write_text(before + found + after, "utf-8")
    elif text != before + found + after:
        sys.exit(f"the table in {DOCUMENT} is not what comes of it:\n{found}")


if __name__ == "__main__":
    main()
