"""The judges of `adversary.py` are judged, by flows that are made up: `/usr/bin/python3 -B reference/test_adversary.py`."""

import json
import tempfile
import unittest
from pathlib import Path

try:
    import adversary
    import numpy as np
except ImportError:
    adversary = None

PAIRS, LIFE = 8, 8.0


def setUpModule():
    """Fewer rounds of learning: what is made up is plain, or not there."""
    if adversary:
        thorough = adversary.learner
        adversary.learner = lambda: thorough().set_params(max_iter=30)
        adversary.LOOKS, adversary.SAMPLES = 1, 10


def births(draw, weakness, seconds):
    """Begin and end of a pair's lanes: two at a time on average, each born and dead by chance alone."""
    if weakness == "own instants":
        begins = np.arange(-draw.uniform(0, LIFE), seconds, LIFE)
        return [(begin, begin + LIFE) for begin in begins]
    begins = np.sort(draw.uniform(-LIFE, seconds, draw.poisson(2 * (seconds + LIFE) / LIFE)))
    return [(begin, begin + draw.uniform(LIFE / 2, LIFE * 1.5)) for begin in begins]


def datagrams(draw, weakness, pair, begin, end, timer):
    """Times, directions and sizes of one flow: ten a second each way by chance, but for what is weak."""
    rows = [(at, side, 1000 + (pair if weakness == "a constant byte" else 0))
            for side in (0, 1) for at in draw.uniform(begin, end, draw.poisson(10 * (end - begin)))]
    if weakness == "a steady timer":
        ticks = np.arange(np.ceil((begin - timer) / 5) * 5 + timer, end, 5.0)
        rows += [(at, 0, 1500) for at in ticks]
    if weakness == "what pauses together":
        # Whether the pair sends in a half second, all its lanes alike.
        sends = np.random.default_rng(1000 + pair).random(200) < 0.5
        rows = [row for row in rows if sends[int(2 * row[0])]]
    return sorted(row for row in rows if row[0] > 0)


def made_up(weakness=None, seconds=48.0, seed=3):
    draw = np.random.default_rng(seed)
    flows = []
    for pair in range(PAIRS):
        timer = draw.uniform(0, 5)
        for begin, end in births(draw, weakness, seconds):
            rows = datagrams(draw, weakness, pair, begin, end, timer)
            # Drawn in any case, so that a seed gives the same births whatever is dropped.
            names = [int(x) for x in (*draw.integers(1024, 65536, 2), *draw.integers(0, 1 << 56, 2))]
            if len(rows) > 2:
                times, directions, sizes = (np.array(column) for column in zip(*rows))
                flows.append(adversary.Flow(pair, times, directions, sizes, "one", names))
    return flows


def asked(table, family=None):
    """AUC and part of right first choices of the judge of one family, or of all."""
    features, columns, truth, by, offered, query = table
    if family:
        features = features[:, [column == family for column in columns]]
    score = adversary.scores(features, truth, by, offered)
    found = adversary.verdict(family or "all", "made up", score, truth, by, query, PAIRS)
    return found["auc"], found["first"]


@unittest.skipUnless(adversary, "needs python3-sklearn")
class Judges(unittest.TestCase):
    def caught(self, weakness, family, question=None):
        table = adversary.table((question or adversary.successions)(made_up(weakness)))
        for judge in (family, None):
            area, first = asked(table, judge)
            self.assertGreater(area, 0.9, f"{weakness}: {judge or 'all'}")
            self.assertGreater(first, 3 / PAIRS, f"{weakness}: {judge or 'all'}")

    def test_ends_that_move_when_they_like_are_caught(self):
        self.caught("own instants", "instants")

    def test_a_byte_that_stays_is_caught(self):
        self.caught("a constant byte", "sizes")

    def test_a_timer_that_keeps_its_phase_is_caught(self):
        self.caught("a steady timer", "phase of probes")

    def test_lanes_that_pause_together_are_caught(self):
        self.caught("what pauses together", "at the same time", adversary.lanes)

    def test_nothing_is_found_in_flows_that_are_independent(self):
        # By chance a single set of so few flows is off by 0.03; the mean of several shows what a judge always finds.
        for question in (adversary.successions, adversary.lanes):
            tables = [adversary.table(question(made_up(seed=seed))) for seed in range(3)]
            for judge in ("instants", None):
                area, first = np.mean([asked(table, judge)for table in tables], axis=0)
                said = f"{question.__name__}, {judge or 'all'}: {area:.3f}, first {first:.3f}"
                self.assertLess(abs(area - 0.5), 0.06, said)
                self.assertLess(first, 2 / PAIRS, said)

    def test_neither_who_is_judged_nor_a_candidate_was_learned_from(self):
        truth = np.tile(np.eye(8, dtype=bool).ravel(), 4)
        by, offered = np.tile(np.repeat(np.arange(8), 8), 4), np.tile(np.tile(np.arange(8), 8), 4)
        judged = []

        class Learner:
            def fit(self, rows, _):
                self.learned = set(rows.ravel().astype(int))
                return self

            def decision_function(self, rows):
                judged.append(len(rows))
                assert not self.learned & set(rows.ravel().astype(int)), rows
                return np.zeros(len(rows))

        usual, adversary.learner = adversary.learner, Learner
        try:
            adversary.scores(np.stack([by, offered], axis=1).astype(float), truth, by, offered)
        finally:
            adversary.learner = usual
        self.assertEqual(sum(judged), adversary.LOOKS * len(truth))

    def test_a_pair_that_is_a_candidate_alone_is_judged_too(self):
        by, offered = np.repeat(np.arange(7), 8), np.tile(np.arange(8), 7)
        score = adversary.scores(np.zeros((56, 1)), by == offered, by, offered)
        self.assertTrue(np.isfinite(score).all())

    def test_ties_are_shared_among_those_that_tie(self):
        truth, query = np.array([True, False, False, True]), np.array([0, 0, 1, 1])
        right = adversary.first_choices(np.array([1.0, 1.0, 0.2, 0.9]), truth, query)
        self.assertEqual(right, {0: 0.5, 1: 1.0})

    def test_what_was_recorded_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            flow = {"pair": 3, "kind": "ssh", "ports": [1, 2], "identifiers": [3, 4]}
            recording = {"pairs": 8, "rotation": 2.0, "lanes": 3, "flows": [flow, {**flow, "pair": 5}]}
            (Path(folder) / "flows.json").write_text(json.dumps(recording))
            (Path(folder) / "datagrams.csv").write_text("0,0,0,100\n1,500000,1,90\n0,1500000,1,80\n")
            _, (one, other) = adversary.read(Path(folder))
        self.assertEqual((one.pair, one.end, list(one.sizes), one.names), (3, 1.5, [100, 80], [1, 2, 3, 4]))
        self.assertEqual((other.pair, other.begin, list(other.directions)), (5, 0.5, [1]))


if __name__ == "__main__":
    unittest.main()
