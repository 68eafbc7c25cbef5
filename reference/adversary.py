#!/usr/bin/python3
"""Judges who try to follow pairs of gateways by what an observer of the path between them saw (docs/unlinkability.md).

    reference/adversary.py FOLDER           reads FOLDER/flows.json and FOLDER/datagrams.csv, prints verdicts as JSON
    reference/adversary.py FOLDER --quick   the same, by judges that learn for a tenth of the time

`test_adversary.py` asks the judges about flows that were made up: weak ones, which they must catch, and independent ones.

The question of *succession*: of each flow, which pair's flow is its pair's next? Candidates are one flow of each pair, the
one that begins nearest to the flow's end and after its beginning. The question of *lanes*: which flow that lives at the same
time is of the same pair? Candidates are one flow of each pair, the one that shares most time with it. A judge that learns
never saw the pair that it is examined with, neither as the one in question nor as a candidate.

A verdict is the area under the curve (chance: 0.5), and how often the right candidate is the first choice (chance: one in as
many as there are pairs), each with an interval of 95 % from 200 samples of pairs with replacement.
"""

import functools
import json
import os
import pathlib
import sys

# The library's threads wait for each other, for minutes where others compute, and the problems are small.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

# How many judges of other halves of the pairs look at a candidate.
LOOKS = 2
SAMPLES = 200
# How often a judge corrects himself. Less tells less, and is for trying the tool.
ROUNDS = 150
# Judges without any knowledge who are asked what chance is.
CHANCES = 20
# Seconds that are cut off at both ends of a recording: flows that were there before, or that go on behind it.
MARGIN = 2.0


class Flow:
    """The datagrams between two endpoints; direction 0 is from the first site."""

    def __init__(self, pair, times, directions, sizes, kind="", names=()):
        self.pair, self.kind, self.names = pair, kind, names
        self.times, self.directions, self.sizes = times, directions, sizes
        self.begin, self.end = times[0], times[-1]
        self.at = [times[directions == d] for d in (0, 1)]
        self.size = [sizes[directions == d] for d in (0, 1)]


def read(folder):
    recording = json.loads((folder / "flows.json").read_text())
    data = np.loadtxt(folder / "datagrams.csv", delimiter=",", dtype=np.int64, ndmin=2)
    data = data[np.lexsort((data[:, 1], data[:, 0]))]
    ends = np.searchsorted(data[:, 0], np.arange(len(recording["flows"]) + 1))
    flows = []
    for number, flow in enumerate(recording["flows"]):
        rows = data[ends[number]:ends[number + 1]]
        flows.append(Flow(flow["pair"], rows[:, 1] / 1e6, rows[:, 2], rows[:, 3], flow["kind"],
                          flow["ports"] + flow["identifiers"]))
    return recording, flows


# Features. Each is a function of a flow and a candidate; a family is what one weakness would show in.

def quantiles(values, parts=(0.1, 0.5, 0.9)):
    return np.quantile(values, parts) if len(values) else np.full(len(parts), np.nan)


def first(values, count):
    return np.concatenate([values[:count].astype(float), np.full(max(0, count - len(values)), np.nan)])


def log_ratio(a, b):
    return np.log((a + 1e-3) / (b + 1e-3))


@functools.cache
def pause(flow, d):
    """The median pause of a flow or of one direction, and the mean."""
    times = flow.times if d is None else flow.at[d]
    if len(times) < 2:
        return np.nan, np.nan
    return np.median(np.diff(times)), (times[-1] - times[0]) / (len(times) - 1)


def instants(f, c):
    """When one ends and the other begins, also in terms of how long such a flow pauses anyway."""
    values = [c.begin - f.end, abs(c.begin - f.end), c.begin - f.begin, c.end - f.end]
    for d in (None, 0, 1):
        before, after = (flow.times if d is None else flow.at[d] for flow in (f, c))
        if not len(before) or not len(after):
            values += [np.nan] * 7
            continue
        gap = after[0] - before[-1]
        median, mean = pause(f, d)
        values += [gap, gap / (median + 1e-4), gap / (mean + 1e-4), gap / (pause(c, d)[1] + 1e-4),
                   log_ratio(abs(gap), mean), np.sum(after < before[-1]), np.sum(before > after[0])]
    # Behind the openers of both ends.
    return values + [c.times[min(n, len(c.times) - 1)] - f.end for n in (2, 4)]


def openers(f, c):
    """The first datagrams of both."""
    values = []
    for flow in (f, c):
        values.append([*first(flow.size[0], 2), *first(flow.size[1], 2), *first(np.diff(flow.times[:3]), 2)])
    return [*(np.array(values[0]) - np.array(values[1])), *values[1]]


def beat(times):
    """The period of a sender that keeps one, and how well it does."""
    gaps = np.diff(times[-200:])
    if len(gaps) < 8:
        return np.nan, np.nan
    # Pauses, in which the flow was elsewhere, are whole numbers of periods.
    period = np.quantile(gaps, 0.3)
    if period <= 1e-4:
        return np.nan, np.nan
    phases = np.exp(2j * np.pi * (times[-200:] / period))
    return period, abs(phases.mean())


@functools.cache
def beat_of(flow, d):
    return beat(flow.at[d])


def phase(f, c):
    """Whether a steady sender goes on with the same beat."""
    values = []
    for d in (0, 1):
        period, steady = beat_of(f, d)
        other, _ = beat_of(c, d)
        offset = np.nan
        if period == period and len(c.at[d]):
            before = np.angle(np.exp(2j * np.pi * f.at[d][-50:] / period).mean())
            after = np.angle(np.exp(2j * np.pi * c.at[d][:50] / period).mean())
            offset = abs(np.angle(np.exp(1j * (after - before))))
        values += [log_ratio(period, other), steady, offset]
    return values


@functools.cache
def rates(flow, d):
    life = max(flow.end - flow.begin, 0.05)
    return np.array([len(flow.at[d]) / life, flow.size[d].sum() / life])


def rate(f, c):
    values = []
    for d in (0, 1):
        values += list(log_ratio(rates(f, d), rates(c, d)))
        near = [np.sum(f.at[d] > f.end - 2), np.sum(c.at[d] < c.begin + 2)]
        values += [log_ratio(*near), log_ratio(np.sum(f.at[d] > f.end - 0.5), np.sum(c.at[d] < c.begin + 0.5))]
    return values


@functools.cache
def sizes_of(flow, d):
    """Shares of sizes in bins of 16 bytes; quantiles, the largest, and the most frequent."""
    values = flow.size[d]
    if not len(values):
        return np.full(100, np.nan), np.full(5, np.nan)
    shares = np.bincount(values // 16, minlength=100)[:100] / len(values)
    return shares, np.array([*quantiles(values), values.max(), np.bincount(values).argmax()])


def sizes(f, c):
    values = []
    for d in (0, 1):
        (one, a), (other, b) = sizes_of(f, d), sizes_of(c, d)
        values += [np.abs(one - other).sum(), *(a - b)]
    return values


@functools.cache
def pauses_of(flow, d):
    return quantiles(np.diff(flow.at[d]))


def pauses(f, c):
    values = []
    for d in (0, 1):
        values += list(log_ratio(pauses_of(f, d), pauses_of(c, d)))
    return values


def ratio(f, c):
    values = []
    for measure in (0, 1):
        one, other = (log_ratio(rates(flow, 0)[measure], rates(flow, 1)[measure]) for flow in (f, c))
        values.append(one - other)
    return values


PERIODS = (1, 5, 10, 25)


@functools.cache
def rare(flow):
    """Times of what stands alone, by size and by time, and where they are in periods that a timer might have."""
    picks = [flow.times[flow.sizes > max(1279, 0.95 * flow.sizes.max())],
             flow.times[np.diff(flow.times, prepend=flow.times[0] - 1) > 0.25]]
    return [(times, [np.exp(2j * np.pi * times / period).mean() if len(times) else np.nan for period in PERIODS])
            for times in picks]


def probes(f, c):
    """What stands alone in size or time, and whether it comes back after a fixed time."""
    values = []
    for (one, a), (other, b) in zip(rare(f), rare(c)):
        values.append(np.abs(one[-5:, None] - other[None, :5]).min() if len(one) and len(other) else np.nan)
        for before, after in zip(a, b):
            turn = before * np.conj(after)
            values += [abs(np.angle(turn)), abs(turn)]
    return values


def names(f, c):
    """Ports and addresses."""
    values = []
    for a, b in zip(f.names, c.names):
        values += [float(abs(a - b)), float(bin(a ^ b).count("1")), float(a % 256 - b % 256)]
    return values


def counts(times, begin, width, bins):
    return np.bincount(((times - begin) / width).astype(int), minlength=bins)[:bins].astype(float)


def together(f, c):
    """While both live: whether one pauses where the other sends."""
    begin, end = max(f.begin, c.begin), min(f.end, c.end)
    values = [end - begin]
    for d in (None, 0, 1):
        if end - begin < 1:
            values += [np.nan] * 6
            continue
        one, other = ((flow.times if d is None else flow.at[d]) for flow in (f, c))
        one, other = (t[np.searchsorted(t, begin):np.searchsorted(t, end)] for t in (one, other))
        if len(one) < 3 or len(other) < 3:
            values += [np.nan] * 6
            continue
        for width in (0.03, 0.125, 0.5):
            bins = int((end - begin) / width) + 1
            a, b = counts(one, begin, width, bins), counts(other, begin, width, bins)
            spread = a.std() * b.std()
            values.append(((a - a.mean()) * (b - b.mean())).mean() / spread if spread else np.nan)
        both = np.sort(np.concatenate([one, other]))
        gaps = np.diff(both)
        values += [gaps.std() / (gaps.mean() + 1e-9), beat(both)[1], np.quantile(gaps, 0.05)]
    return values


FAMILIES = {
    "instants": instants, "openers": openers, "beat of a sender": phase, "rate": rate, "sizes": sizes,
    "pauses": pauses, "directions": ratio, "phase of probes": probes, "ports and addresses": names,
    "at the same time": together,
}


# Questions.

def successions(flows):
    """Of each flow with a successor: a candidate of each pair, or none."""
    pairs = sorted({flow.pair for flow in flows})
    of = {pair: sorted((f for f in flows if f.pair == pair), key=lambda f: f.begin) for pair in pairs}
    for flow in flows:
        candidates = []
        for pair in pairs:
            later = [c for c in of[pair] if c is not flow and c.begin > flow.begin]
            candidates.append(min(later, key=lambda c: abs(c.begin - flow.end), default=None))
        own = candidates[pairs.index(flow.pair)]
        if own is not None and all(c is not None for c in candidates):
            yield flow, candidates


def lanes(flows):
    """Of each flow that lives beside another of its pair: that candidate of each pair that shares most time with it."""
    pairs = sorted({flow.pair for flow in flows})
    of = {pair: [f for f in flows if f.pair == pair] for pair in pairs}

    def shared(flow, other):
        return min(flow.end, other.end) - max(flow.begin, other.begin)

    for flow in flows:
        candidates = [max((c for c in of[pair] if c is not flow), key=lambda c: shared(flow, c), default=None)
                      for pair in pairs]
        if all(c is not None and shared(flow, c) > 0.5 for c in candidates):
            yield flow, candidates


def table(question):
    """Features of all candidates, which family each column is of, which are true, pairs of both."""
    rows, truth, asked, offered, query = [], [], [], [], []
    columns = []
    for number, (flow, candidates) in enumerate(question):
        for candidate in candidates:
            row, columns = [], []
            for family, features in FAMILIES.items():
                values = features(flow, candidate)
                row += list(values)
                columns += [family] * len(values)
            rows.append(row)
            truth.append(candidate.pair == flow.pair)
            asked.append(flow.pair)
            offered.append(candidate.pair)
            query.append(number)
    return (np.array(rows, dtype=float), columns, *(np.array(x) for x in (truth, asked, offered, query)))


def learner():
    return HistGradientBoostingClassifier(max_iter=ROUNDS, learning_rate=0.08, max_leaf_nodes=15, min_samples_leaf=10,
                                          l2_regularization=1.0, random_state=0)


def scores(features, truth, asked, offered):
    """What judges think of each row that learned from other pairs alone, on average over LOOKS of them.

    Half of the pairs are learned from, with each other as candidates, and the others are judged. A candidate that was learned
    from looks different to a judge that learns, even where nothing is to be found: the right one is always new to him.
    """
    draw = np.random.default_rng(0)
    # Also those that nothing is asked about, whose flows are candidates all the same.
    pairs = np.unique([asked, offered])
    result, looks = np.zeros(len(truth)), np.zeros(len(truth), dtype=int)
    while len(pairs) > 3 and looks.min() < LOOKS:
        mixed = draw.permutation(pairs)
        for held in (mixed[::2], mixed[1::2]):
            train = ~np.isin(asked, held) & ~np.isin(offered, held)
            test = np.isin(asked, held) & np.isin(offered, held) & (looks < LOOKS)
            if not test.any():
                continue
            if truth[train].any() and not truth[train].all():
                result[test] += learner().fit(features[train], truth[train]).decision_function(features[test])
            looks[test] += 1
    # Between 0 and 1: `matching` takes anything else for worse than no candidate.
    return 1 / (1 + np.exp(-result / LOOKS))


def first_choices(score, truth, query):
    """Of each question, the part of the first choices that is right: ties are shared."""
    right = {}
    for number in np.unique(query):
        rows = query == number
        best = score[rows] == score[rows].max()
        right[number] = (best & truth[rows]).sum() / best.sum()
    return right


def interval(measure, groups):
    """95 % of a measure of samples of groups (arrays of rows)."""
    draw = np.random.default_rng(0)
    values = []
    for _ in range(SAMPLES):
        rows = np.concatenate([groups[i] for i in draw.integers(0, len(groups), len(groups))])
        value = measure(rows)
        if value == value:
            values.append(value)
    return [float(np.quantile(values, q)) for q in (0.025, 0.975)] if values else [0.0, 1.0]


def area(truth, score):
    return roc_auc_score(truth, score) if truth.any() and not truth.all() else float("nan")


def verdict(judge, question, score, truth, asked, query, pairs):
    groups = [np.flatnonzero(asked == pair) for pair in np.unique(asked)]
    right = first_choices(score, truth, query)
    share = np.array([right[q] for q in query])
    return {
        "question": question, "judge": judge, "asked": int(len(right)),
        "auc": float(area(truth, score)), "auc_95": interval(lambda rows: area(truth[rows], score[rows]), groups),
        "first": float(share.mean()), "first_95": interval(lambda rows: share[rows].mean(), groups),
        "first_chance": 1 / pairs,
    }


def linking(name, question, pairs):
    question = list(question)
    if len(question) < 2 * pairs or pairs < 8:
        return []
    features, columns, truth, asked, offered, query = table(question)
    verdicts = []
    nearest = -np.abs(features[:, columns.index("instants")])
    verdicts.append(verdict("nearest beginning", name, nearest, truth, asked, query, pairs))
    for family in FAMILIES:
        chosen = features[:, [i for i, c in enumerate(columns) if c == family]]
        score = scores(chosen, truth, asked, offered)
        verdicts.append(verdict(family, name, score, truth, asked, query, pairs))
    score = scores(features, truth, asked, offered)
    verdicts.append(verdict("all", name, score, truth, asked, query, pairs))
    verdicts.append(matching(name, question, score, pairs))
    return verdicts


def matching(name, question, score, pairs):
    """Each candidate for one flow only: those that end within the same time are matched one to one. Its chance is measured, by
    judges who draw their scores: a candidate that no other flow asks for is the right one more often than one in so many."""
    score = score.reshape(len(question), pairs)
    share, rows = matched(question, score)
    draw = np.random.default_rng(0)
    chance = np.mean([matched(question, draw.random(score.shape))[0].mean() for _ in range(CHANCES)])
    return {"question": name, "judge": "all, one to one", "asked": len(question), "auc": None, "auc_95": None,
            "first": float(share.mean()), "first_95": interval(lambda picked: share[picked].mean(), rows),
            "first_chance": float(chance)}


def matched(question, score):
    """Which flows got their own pair's candidate, and which flows are of one pair."""
    by_time = {}
    span = max(1.0, np.median([f.end - f.begin for f, _ in question]) / 2)
    for number, (flow, _) in enumerate(question):
        by_time.setdefault(int(flow.end / span), []).append(number)
    share, groups = np.zeros(len(question)), {}
    for numbers in by_time.values():
        targets = {}
        for number in numbers:
            for candidate in question[number][1]:
                targets.setdefault(id(candidate), len(targets))
        cost = np.zeros((len(numbers), len(targets)))
        for row, number in enumerate(numbers):
            for at, candidate in enumerate(question[number][1]):
                cost[row, targets[id(candidate)]] = -score[number, at] - 1
        for row, column in zip(*linear_sum_assignment(cost)):
            flow, candidates = question[numbers[row]]
            own = next(c for c in candidates if c.pair == flow.pair)
            share[numbers[row]] = targets[id(own)] == column
            groups.setdefault(flow.pair, []).append(numbers[row])
    return share, [np.array(numbers) for numbers in groups.values()]


def alone(flow):
    """What one flow shows of the traffic in it."""
    values = [flow.end - flow.begin]
    for d in (0, 1):
        values += list(rates(flow, d)) + list(quantiles(flow.size[d], (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)))
        values += list(quantiles(np.diff(flow.at[d]), (0.05, 0.25, 0.5, 0.75, 0.95))) + list(beat(flow.at[d]))
        counts = np.histogram(flow.at[d], np.arange(flow.begin, flow.end + 0.1, 0.1))[0]
        values += [counts.std() / (counts.mean() + 1e-9)] if len(counts) else [np.nan]
    return values


def kinds(flows):
    """Which kind of traffic is inside: for kinds that several pairs carry."""
    carried = {}
    for flow in flows:
        carried.setdefault(flow.kind, set()).add(flow.pair)
    flows = [flow for flow in flows if len(carried[flow.kind]) > 1]
    labels = sorted({flow.kind for flow in flows})
    if len(labels) < 2:
        return None
    features, truth = np.array([alone(f) for f in flows]), np.array([labels.index(f.kind) for f in flows])
    asked = np.array([f.pair for f in flows])
    # Of each kind some pairs are learned from, and the others are judged.
    fold = {pair: sorted(carried[kind]).index(pair) % 2 for kind in labels for pair in carried[kind]}
    fold = np.array([fold[pair] for pair in asked])
    right = np.zeros(len(flows))
    chance = np.zeros(len(flows))
    for held in (0, 1):
        train, test = fold != held, fold == held
        guess = learner().fit(features[train], truth[train]).predict(features[test])
        right[test] = guess == truth[test]
        # The best that somebody knows who saw nothing: the most frequent kind.
        chance[test] = truth[test] == np.bincount(truth[train]).argmax()
    groups = [np.flatnonzero(asked == pair) for pair in np.unique(asked)]
    # Each kind counts alike: some have more flows.
    weight = 1 / np.bincount(truth)[truth]

    def share(rows):
        return float((right * weight)[rows].sum() / weight[rows].sum())

    everything = np.arange(len(flows))
    return {"question": "kind of traffic", "judge": "all", "asked": len(flows), "auc": None, "auc_95": None,
            "first": share(everything), "first_95": interval(share, groups),
            "first_chance": max(1 / len(labels), float((chance * weight).sum() / weight.sum()))}


def counting(recording, flows, begin, end):
    """How many pairs there are, by how many flows live at a time."""
    n = recording["lanes"]
    # What docs/protocol.md 4.4 says of how many of a pair are alive.
    expected = float(np.interp(n, [1, 2, 3, 4, 8, 16], [1.7, 2.5, 3.4, 4.3, 8.4, 16.7]))
    moments = np.linspace(begin, end, 200)
    alive = np.mean([sum(f.begin <= t <= f.end for f in flows) for t in moments])
    return {"pairs": recording["pairs"], "estimate": float(alive / expected)}


def judge(recording, flows):
    begin, end = min(f.begin for f in flows), max(f.end for f in flows)
    whole = [f for f in flows if f.begin > begin + MARGIN and f.end < end - MARGIN and len(f.times) > 2]
    pairs = len({f.pair for f in whole})
    verdicts = linking("succession", successions(whole), pairs) + linking("lanes", lanes(whole), pairs)
    guessed = kinds(whole)
    return {
        "flows": len(whole), "datagrams": int(sum(len(f.times) for f in whole)),
        "bytes": int(sum(f.sizes.sum() for f in whole)),
        "verdicts": verdicts + ([guessed] if guessed else []),
        "counting": counting(recording, flows, begin + MARGIN, end - MARGIN),
    }


if __name__ == "__main__":
    if sys.argv[2:] == ["--quick"]:
        ROUNDS, SAMPLES = 15, 50
    json.dump(judge(*read(pathlib.Path(sys.argv[1]))), sys.stdout, indent=1)
