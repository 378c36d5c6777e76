# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who finds the bad nodes: python benchmarks/isolation.py [--nodes 1000] [--seeds 100] [--jobs 2] [--leaf 16].

The planner that certifies clusters and the methods that others use, on the same fault sets: a share of the nodes at
fault, each showing it in a test with chance q, and tests that look bad for nothing with chance e. The planner is driven
through a simulated fleet and its check records; the others are given bare outcomes. Printed per run: healthy nodes
accused, bad ones missed, rounds and tests. Exit status 1 if the planner misses a target.

--mixed: 32 nodes in leaves of 8 with all that tests/fleet/faults.py can hide at once, and how often each is not found.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import random
import sys
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / ".build" / "collections"), str(ROOT / "tests" / "fleet")]

import anchors  # noqa: E402
import faults as hidden  # noqa: E402
import simulated  # noqa: E402


class Case(t.NamedTuple):
    """One kind of fleet, and what is asked of the planner there (None: nothing)."""

    share: float
    shows: float
    noise: float
    accused: float | None = None
    missed: float | None = None
    of_two_pass: float | None = None
    rounds: int = 7


class Result(t.NamedTuple):
    """What one method made of one fleet."""

    accused: int
    missed: int
    watched_bad: int
    watched: int
    rounds: int
    tests: int
    seconds: float


CASES = (
    Case(0.02, 1.0, 0.0, accused=0.0, missed=0.0),
    Case(0.02, 1.0, 0.005, accused=0.1, missed=0.0),
    Case(0.05, 0.5, 0.01, of_two_pass=0.5),
    Case(0.10, 0.8, 0.01, missed=0.02),
)
OURS, TWO_PASS = "ours", "two-pass swap"


def ours(names: t.Sequence[str], faults: t.Mapping[str, float], case: Case, seed: int, leaf: int) -> Result:
    """Run the planner on a simulated fleet."""
    begin = time.perf_counter()
    fleet = simulated.Fleet(len(names), seed, noise=case.noise, leaf=leaf)
    fleet.faults = {name: simulated.Fault("slow", shows) for name, shows in faults.items()}
    found = simulated.certify(fleet, {"stages": ["pair", "confirm"]}).certificate()
    status = {name: node["status"] for name, node in found["nodes"].items()}
    tests = sum(len(one["tests"]) for one in found["rounds"])
    drained = {name for name in names if status[name] == "drained"}
    watched = {name for name in names if status[name] == "watched"}
    seconds = time.perf_counter() - begin
    counts = (len(drained - set(faults)), len(set(faults) - drained), len(watched & set(faults)))
    return Result(*counts, len(watched - set(faults)), len(found["rounds"]), tests, seconds)


def fleet_of(job: tuple[int, int, int, int]) -> dict[str, Result]:
    """Return what every method makes of one fleet."""
    number, nodes, seed, leaf = job
    case = CASES[number]
    dice = random.Random(f"{number} {nodes} {seed}")  # noqa: S311 - a simulation
    names = [f"n{n:05d}" for n in range(nodes)]
    faults = dict.fromkeys(dice.sample(names, round(case.share * nodes)), case.shows)
    found = {OURS: ours(names, faults, case, seed, leaf)}
    for name, method in anchors.METHODS.items():
        world = anchors.World(names, faults, case.noise, f"{name} {number} {seed}")
        begin = time.perf_counter()
        accused, rounds = method(world)
        wrong, missed = len(accused - set(faults)), len(set(faults) - accused)
        found[name] = Result(wrong, missed, 0, 0, rounds, world.tests, time.perf_counter() - begin)
    return found


# What a fleet of slurmd shows of a hidden fault, as a simulated one does.
SHOWN = {
    hidden.FLAKY: simulated.Fault("flaky", hidden.CHANCE),
    hidden.PARTNERS: simulated.Fault("slow"),
    hidden.HANG: simulated.Fault("hang pair"),
    hidden.WRONG: simulated.Fault("wrong"),
    hidden.SLOW_RAIL: simulated.Fault("slow"),
    hidden.SLOW_GPU: simulated.Fault("local"),
    hidden.DEAD: simulated.Fault("dead"),
    hidden.HUNG: simulated.Fault("dead"),
}


def mixed(seed: int, nodes: int = 32, leaf: int = 8) -> set[str]:
    """Return the kinds of faults that a certification of a fleet with all of them does not name."""
    fleet = simulated.Fleet(nodes, seed, leaf=leaf)
    drawn = {one["kind"]: one["nodes"] for one in hidden.draw(seed, hidden.KINDS, fleet.names, leaf)}
    for kind, names in drawn.items():
        if kind == hidden.LEAF:
            fleet.uplinks.add(fleet.leaf[names[0]])
        elif kind == hidden.LINK:
            fleet.links.add(frozenset(names))
        else:
            fleet.faults.update(dict.fromkeys(names, SHOWN[kind]))
    found = simulated.certify(fleet).certificate()
    status = {name: one["status"] for name, one in found["nodes"].items()}
    named = [one for one in found["findings"] if one["kind"] == "fabric"]
    missed = {
        kind
        for kind in (hidden.SLOW_GPU, hidden.SLOW_RAIL, hidden.WRONG, hidden.PARTNERS)
        if any(status[name] != "drained" for name in drawn[kind])
    }
    missed |= {kind for kind in (hidden.DEAD, hidden.HUNG, hidden.HANG) if status[drawn[kind][0]] != "untested"}
    if not [one for one in named if one["suspects"] == [f"uplink {fleet.leaf[drawn[hidden.LEAF][0]]}"]]:
        missed.add(hidden.LEAF)
    if not [one for one in named if one["nodes"] == drawn[hidden.LINK]]:
        missed.add(hidden.LINK)
        met = [
            test for part in found["rounds"] for test in part["tests"] if sorted(test["nodes"]) == drawn[hidden.LINK]
        ]
        if sum(test["verdict"] == "fail" for test in met) > 1:
            missed.add("a bad link that was seen twice")
    guilty = hidden.culprits([{"kind": kind, "nodes": names} for kind, names in drawn.items()])
    if any(one == "drained" and name not in guilty for name, one in status.items()):
        missed.add("accused")
    return missed


def show(case: Case, results: t.Sequence[dict[str, Result]], bad: int) -> list[str]:
    """Print one table and return the targets that were missed."""
    say = sys.stdout.write
    say(f"\n{case.share:.0%} of nodes at fault, q={case.shows:g}, e={case.noise:g}; {len(results)} fleets\n")
    say(f"{'':16}{'accused':>9}{'missed':>9}{'of them':>9}{'healthy':>9}{'rounds':>10}{'tests':>9}{'seconds':>9}\n")
    say(f"{'':16}{'per run':>9}{'':>9}{'watched':>9}{'watched':>9}\n")
    means = {}
    for name in results[0]:
        rows = [one[name] for one in results]
        mean = [sum(values) / len(rows) for values in zip(*rows)]
        means[name] = (mean[0], mean[1] / bad, max(row.rounds for row in rows))
        least = min(row.rounds for row in rows)
        rounds = f"{least}-{means[name][2]}" if least < means[name][2] else f"{least}"
        share = f"{mean[1] / bad:>9.2%}{mean[2] / bad:>9.2%}{mean[3]:>9.1f}"
        say(f"{name:16}{mean[0]:>9.3f}{share}{rounds:>10}{mean[5]:>9.0f}{mean[6]:>9.3f}\n")
    sys.stdout.flush()
    return list(short_of(case, means))


def short_of(case: Case, means: t.Mapping[str, tuple[float, float, int]]) -> t.Iterator[str]:
    """Yield the targets that the planner misses."""
    accused, missed, rounds = means[OURS]
    limit = case.missed if case.of_two_pass is None else case.of_two_pass * means[TWO_PASS][1]
    about = f"{case.share:.0%} at fault, q={case.shows:g}: "
    if case.accused is not None and accused > case.accused:
        yield f"{about}{accused:.3f} healthy nodes accused per run, {case.accused:g} are allowed"
    if limit is not None and missed > limit:
        yield f"{about}{missed:.2%} missed, {limit:.2%} are allowed"
    if rounds > case.rounds:
        yield f"{about}{rounds} rounds, {case.rounds} are allowed"


def main(argv: t.Sequence[str]) -> int:
    """Print the tables; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--leaf", type=int, default=16, help="nodes per leaf; 0: the planner knows no topology")
    parser.add_argument("--mixed", action="store_true")
    args = parser.parse_args(argv)
    if args.mixed:
        with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
            count = collections.Counter(kind for missed in pool.map(mixed, range(args.seeds)) for kind in missed)
        sys.stdout.write("".join(f"{kind}: {number} of {args.seeds}\n" for kind, number in sorted(count.items())))
        return int(count["accused"] > 0)
    short: list[str] = []
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for number, case in enumerate(CASES):
            work = [(number, args.nodes, seed, args.leaf) for seed in range(args.seeds)]
            short += show(case, list(pool.map(fleet_of, work)), round(case.share * args.nodes))
    for line in short:
        sys.stdout.write(f"MISSED: {line}\n")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
