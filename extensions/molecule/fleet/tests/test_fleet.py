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

import busy
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


@pytest.mark.parametrize("kind", ["slow_gpu", "slow_rail", "wrong_results", "bad_partners"])
def test_hidden_faults_are_found(fleet: fleets.Fleet, certificate: Json, kind: str) -> None:
    guilty = fleet.with_fault(kind)
    assert guilty
    assert status(certificate, guilty) == dict.fromkeys(guilty, "drained")
    # Wrong values and a slow GPU are the node's own; what is slow only between nodes may be its cables.
    own = "hardware" if kind in ("slow_gpu", "wrong_results") else "fabric"
    assert {certificate["nodes"][node]["class"] for node in guilty} == {own}


@pytest.mark.parametrize("kind", ["dead", "hung", "hang"])
def test_who_does_not_answer_is_untested(fleet: fleets.Fleet, certificate: Json, kind: str) -> None:
    silent = fleet.with_fault(kind)
    assert silent
    assert status(certificate, silent) == dict.fromkeys(silent, "untested")
    assert {certificate["nodes"][node]["class"] for node in silent} == {"infra"}


def test_nobody_else_is_accused(fleet: fleets.Fleet, certificate: Json) -> None:
    """A bad link is neither of its ends' fault, a slow leaf is none of its nodes': they may be watched, not drained."""
    guilty = faults.culprits(fleet.hidden)
    accused = [name for name, one in certificate["nodes"].items() if one["status"] == "drained" and name not in guilty]
    assert not accused, {name: certificate["nodes"][name]["reason"] for name in accused}


def test_a_slow_leaf_and_a_bad_link_that_was_seen_twice_are_findings_that_name_them(
    fleet: fleets.Fleet, certificate: Json
) -> None:
    found = [one for one in certificate["findings"] if one["kind"] == "fabric"]
    leaf, link = fleet.with_fault("slow_leaf"), fleet.with_fault("bad_link")
    switch = certificate["nodes"][leaf[0]]["leaf"]
    assert [one["nodes"] for one in found if one["suspects"] == [f"uplink {switch}"]] == [leaf]
    # Its ends may never have met, or others may be bad beside them: benchmarks/isolation.py --mixed tells how often.
    met = [test for part in certificate["rounds"] for test in part["tests"] if sorted(test["nodes"]) == link]
    seen = sum(test["verdict"] == "fail" for test in met)
    print(f"{link} were slow together {seen} times: {[one['nodes'] for one in found]}")
    assert seen < 2 or [one["nodes"] for one in found if one["nodes"] == link] == [link]
    assert "drained" not in status(certificate, link).values()


def test_who_was_bad_twice_for_no_other_reason_is_not_cleared(fleet: fleets.Fleet, certificate: Json) -> None:
    (flaky,) = fleet.with_fault("flaky")
    others = {node for fault in fleet.hidden if fault["kind"] != "flaky" for node in fault["nodes"]}
    tests = [test for part in certificate["rounds"] if part["stage"] in ("pair", "confirm") for test in part["tests"]]
    bad = [test for test in tests if flaky in test["nodes"] and test["verdict"] == "fail"]
    alone = [test for test in bad if not others & set(test["nodes"])]
    told = certificate["nodes"][flaky]["status"]
    print(f"{flaky}: {told} after bad tests of its own: {[test['nodes'] for test in alone]}")
    # Slow twice with one partner and well with all others is what a bad link looks like, and then the finding.
    links = [one["nodes"] for one in certificate["findings"] if one["kind"] == "fabric"]
    pairs = sorted({tuple(sorted(test["nodes"])) for test in alone})
    like_a_link = len(pairs) == 1 and list(pairs[0]) in links
    assert len(alone) < 2 or like_a_link or told in ("watched", "drained")


def test_explain_tells_the_tests_that_convicted(fleet: fleets.Fleet, certificate: Json) -> None:
    node = fleet.with_fault("bad_partners")[0]
    folder = f"/shared/certification/{certificate['run']}"
    said = fleet.exec(["python3", "-IS", f"{folder}/agent.pyz", "certificate", "explain", folder, node]).splitlines()
    assert said[0].startswith(f"{node}: drained, at fault with ")
    meetings = [test for part in certificate["rounds"] for test in part["tests"] if node in test["nodes"]]
    bad = [test for test in meetings if test["verdict"] == "fail"]
    assert len(bad) > 1
    for test in bad:
        (line,) = [line for line in said if line.endswith(f"[{test['id']}]")]
        assert ": bad" in line and all(other in line for other in test["nodes"] if other != node), line


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
        given_up = "down" in sound.sh(f"sinfo -h -N -n {hosts[7]} -o %T")
    finally:
        sound.room("continue", hosts[7])
    found = sound.certificate("hung")
    assert hosts[7] in [one["node"] for one in found["untested"]]
    assert set(status(found, set(hosts) - {hosts[7]}).values()) == {"cleared"}
    # What must not happen is waiting for Slurm to give it up (300 s). A machine that is busy takes longer by itself.
    assert not given_up or more < 1.3 * without + 2 * PATIENCE, (without, more)


@pytest.mark.parametrize("ailments", [(), ("stop", "kill")], ids=["sound", "two silent"])
def test_a_busy_machine_makes_nobody_silent_but_who_is(sound: fleets.Fleet, ailments: t.Sequence[str]) -> None:
    """The short form of busy.py, which does this twenty times."""
    hosts = sound.idle()[: 4 + len(ailments)]
    with busy.loops(4):
        found = busy.certify(sound, ["reach", "local"], ailments, hosts)
    assert found.right, found


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
