# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A healthy fleet, certified again and again beside busy loops: nobody may be untested or accused.

    busy.py LAB [--rounds N] [--loops N] [--stages reach,local,pair,confirm]

LAB is the state directory of a lab in which a fleet is up (fleet.py up LAB 4). Every fifth round one slurmd is stopped
(it hangs) or killed, and has to be untested, as the only one. Ends with 1 unless all of that holds.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import fleet as fleets

STAGES = "reach,local,pair,confirm"
EVERY = 5
STATUSES = ("untested", "drained", "watched")


class Round(t.NamedTuple):
    """What one certification said, and what it should have."""

    seconds: float
    ailing: dict[str, str]  # node by what was done to its slurmd
    untested: dict[str, str]
    accused: dict[str, str]

    @property
    def right(self) -> bool:
        return set(self.untested) == set(self.ailing) and not self.accused


@contextlib.contextmanager
def loops(count: int) -> t.Iterator[None]:
    """Keep processors busy; these are ours, and end with us."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for dummy in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def certify(
    fleet: fleets.Fleet, stages: t.Sequence[str], ailments: t.Sequence[str] = (), hosts: t.Sequence[str] = ()
) -> Round:
    """Certify nodes once, with the slurmd of the last ones stopped or killed if asked for."""
    hosts = list(hosts) or fleet.nodes
    fleet.wait(lambda: set(hosts) <= set(fleet.idle()), fleets.LIMIT, f"{', '.join(hosts)} idle")
    victims = dict(zip(reversed(hosts), ailments))
    for victim, ailment in victims.items():
        fleet.room(ailment, victim)
    try:
        # A measurement between nodes may take its time here: nobody hangs in it.
        given = {"hosts": ",".join(hosts), "options": {"stages": list(stages)}, "timeout": 600}
        found = fleet.certify(run=f"busy-{time.time_ns()}", **given)
    finally:
        for victim, ailment in victims.items():
            fleet.room({"stop": "continue", "kill": "boot"}[ailment], victim)
    nodes = fleet.certificate(found["run"])["nodes"]
    of = {
        status: {name: one["reason"] for name, one in nodes.items() if one["status"] == status} for status in STATUSES
    }
    return Round(found["seconds"], victims, of["untested"], {**of["drained"], **of["watched"]})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lab", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--loops", type=int, default=4)
    parser.add_argument("--stages", default=STAGES)
    args = parser.parse_args()
    fleet, wrong = fleets.Fleet(args.lab), 0
    with loops(args.loops):
        for number in range(1, args.rounds + 1):
            rounds = [[]] if number % EVERY else [[], [("stop", "kill")[number // EVERY % 2]]]
            for ailments in rounds:
                one = certify(fleet, args.stages.split(","), ailments)
                wrong += not one.right
                said = f"untested {one.untested or 'none'}; accused {one.accused or 'none'}"
                what = "".join(f", {name}: {ailment}" for name, ailment in one.ailing.items())
                sys.stdout.write(f"round {number}{what}: {one.seconds:.1f} s; {said}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{args.rounds} rounds beside {args.loops} busy loops, {wrong} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
