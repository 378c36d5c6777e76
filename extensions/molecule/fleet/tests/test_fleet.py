# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What certification says of a fleet in which faults are hidden, and what it costs when something stops half way."""

from __future__ import annotations

import hashlib
import random
import subprocess
import time
import typing as t
from pathlib import Path

import faults
import fleet as fleets
import pytest
from conftest import Json

PATIENCE = 10.0  # seconds for a node that was given a task and is silent


def status(certificate: Json, nodes: t.Iterable[str]) -> dict[str, str]:
    return {node: certificate["nodes"][node]["status"] for node in nodes}


def test_every_node_is_accounted_for(fleet: fleets.Fleet, certificate: Json) -> None:
    assert certificate["planned"] == len(fleet.nodes) == len(certificate["nodes"])
    assert certificate["planned"] == certificate["reached"] + len(certificate["untested"])
    assert all(one["reason"] for one in certificate["untested"])


@pytest.mark.parametrize("kind", ["slow_gpu", "slow_rail", "wrong_results"])
def test_hidden_faults_are_found(fleet: fleets.Fleet, certificate: Json, kind: str) -> None:
    guilty = fleet.with_fault(kind)
    assert status(certificate, guilty) == dict.fromkeys(guilty, "drained")


@pytest.mark.parametrize("kind", ["dead", "hung"])
def test_who_does_not_answer_is_untested(fleet: fleets.Fleet, certificate: Json, kind: str) -> None:
    silent = fleet.with_fault(kind)
    assert status(certificate, silent) == dict.fromkeys(silent, "untested")


def test_nobody_else_is_accused(fleet: fleets.Fleet, certificate: Json) -> None:
    """A bad link is neither of its ends' fault: they may be watched, not drained."""
    guilty = faults.culprits(fleet.hidden)
    accused = [name for name, one in certificate["nodes"].items() if one["status"] == "drained" and name not in guilty]
    assert not accused, {name: certificate["nodes"][name]["reason"] for name in accused}


def results(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "results").glob("*.jsonl")}


def test_coordinator_killed_at_random_moments_loses_nothing(sound: fleets.Fleet) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")  # so that a failure can be repeated
    chance, name, kills, seen = random.Random(seed), "killed", 0, {}
    given: Json = {"hosts": ",".join(sound.idle()[:20]), "options": {"stages": ["reach", "pair"]}}
    command = sound.coordinator(run=name, **given)
    argv = sound.argv(["sh", "-c", command], fleets.USER)
    while True:
        child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            said = child.communicate(timeout=chance.uniform(1, 8) if kills < 4 else 300)[1]
            assert child.returncode == 0, said
        except subprocess.TimeoutExpired:
            sound.sh(f"kill -KILL $(cat {fleets.PID})", check=False)
            child.communicate()
            kills += 1
        now = results(sound.run_folder(name))
        assert {test: now.get(test) for test in seen} == seen, "a result was lost or measured again"
        seen = now
        if child.returncode == 0:
            break
    text = (sound.run_folder(name) / "records.jsonl").read_text()
    assert all(f'"{test[: -len(".jsonl")]}"' in text for test in seen)
    found = sound.certificate(name)
    assert kills
    assert {one["status"] for one in found["nodes"].values()} <= {"cleared", "watched", "untested"}


def test_one_hung_node_costs_little(sound: fleets.Fleet) -> None:
    hosts = sound.idle()[:16]
    quick: Json = {"suites": {"full": {"checks": ["infiniband_ports"], "budget": 60}}}
    node = {**sound.options()["node"], **quick}
    given: Json = {
        "hosts": ",".join(hosts),
        "options": {"stages": ["local"]},
        "node": node,
        "hold": 5,
        "patience": PATIENCE,
    }
    without = sound.certify(run="without", **given)["seconds"]
    sound.room("stop", hosts[7])
    try:
        more = sound.certify(run="hung", **given)["seconds"]
    finally:
        sound.room("continue", hosts[7])
    found = sound.certificate("hung")
    assert hosts[7] in [one["node"] for one in found["untested"]]
    assert set(status(found, set(hosts) - {hosts[7]}).values()) == {"cleared"}
    # The machine may be busy with something else; what must not happen is waiting for Slurm to give it up (300 s).
    assert more < 1.3 * without + 2 * PATIENCE, (without, more)


def test_a_clock_that_is_off_is_named(sound: fleets.Fleet) -> None:
    """All nodes here share one clock: the Python of one is told to be off, as if nobody kept its time."""
    hosts, place = sound.idle()[:4], "/var/lib/hpcai/shift"
    quick: Json = {"suites": {"full": {"checks": ["infiniband_ports"], "budget": 60}}}
    given: Json = {
        "hosts": ",".join(hosts),
        "options": {"stages": ["reach", "local"]},
        "node": {**sound.options()["node"], **quick},
        "interpreter": f"{fleets.INSIDE}/shifted",
    }
    sound.room("enter", hosts[2], "sh", "-c", f"echo -400 > {place}")
    try:
        sound.certify(run="clock", **given)
    finally:
        sound.room("enter", hosts[2], "rm", place)
    found = sound.certificate("clock")
    assert status(found, hosts) == {**dict.fromkeys(hosts, "cleared"), hosts[2]: "watched"}
    assert "clock_skew" in found["nodes"][hosts[2]]["reason"]
