# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mailboxes and configurations that somebody broke: no crash, nobody drained for what nobody found."""

from __future__ import annotations

import json
import os
import random
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import latches, mailbox, reconcile, request
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.drain.drain_world import NOW, World, fault

GOOD = {"schema": 1, "mailbox": "/shared/.hpcai/health"}
WORDS: list[t.Any] = [
    None,
    True,
    -1,
    1e308,
    float("nan"),
    "",
    "fail",
    "hardware",
    "\x00",
    [],
    {},
    [[]],
    "x" * 5000,
    {"a": 1},
]


@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_broken_letters_drain_nobody(tmp_path: Path, seed: int) -> None:
    """A record with a verdict that is none, a class that is none, or a hole in it is no reason to drain."""
    rng = random.Random(seed)
    keys = ["check", "verdict", "class", "reason", "time", "context"]
    for dummy in range(50):
        record = fault()
        record[rng.choice(["verdict", "class"])] = rng.choice(
            [word for word in WORDS if word not in ("fail", "hardware")]
        )
        for key in rng.sample(keys, rng.randrange(3)):
            record[key] = rng.choice(WORDS)
        if record["verdict"] == "fail" and record["class"] == "hardware":
            continue
        text = json.dumps(
            {"schema": 1, "node": "n1", "time": NOW, "records": [record], "physical_host": rng.choice(WORDS)}
        )
        cut = text[: rng.randrange(len(text))] if rng.random() < 0.3 else text
        found = request.read("n1", cut, NOW)
        world_faults = [item for item in found.records if item["verdict"] == "fail" and item["class"] == "hardware"]
        assert world_faults == []


@pytest.mark.parametrize("seed", range(5))
def test_faults_with_anything_in_their_fields_are_drained_with_a_sound_reason(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    world = World(tmp_path, 200)
    for name in world.nodes:
        context = {key: rng.choice(WORDS) for key in ("code", "action", "suite", "latched", "physical_host")}
        labels = {key: rng.choice(WORDS) for key in ("name", "expected", "unit", "path")}
        metrics = rng.choice([*WORDS, [rng.choice(WORDS), {"verdict": "fail", **labels}]])
        world.say(name, {**fault(), "context": context, "metrics": metrics, "run": rng.choice(WORDS), "scope": 1})
    told = world.reconcile(max_share=1.0)
    assert len(told.drained) == 200
    assert all(re.fullmatch(r"hpcai:xid:[ -~]*[!-~]", reason) for reason in told.drained.values())
    assert world.reconcile(max_share=1.0).commands == []


def test_what_lies_in_the_mailbox_is_not_trusted(tmp_path: Path) -> None:
    world = World(tmp_path, 8)
    world.everybody_is_well()
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"schema": 1, "node": "n1", "time": NOW, "records": [fault()]}))
    for name in ("n1", "n2", "n3"):
        (world.mailbox / f"{name}.json").unlink()
    (world.mailbox / "n1.json").symlink_to(secret)
    os.mkfifo(world.mailbox / "n2.json")
    (world.mailbox / "n3.json").write_bytes(b"[" * 100_000)
    (world.mailbox / ".n4.json").write_text(secret.read_text())
    (world.mailbox / "n5.json").write_bytes(b"\xff" * 100)
    found = mailbox.reports(str(world.mailbox))
    assert {name for name, item in found.items() if item.broken} == {"n1", "n2", "n3", "n5"}
    assert world.reconcile(dry_run=True).drained == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "schema is 2"),
        ({"mailbox": "here"}, "absolute path"),
        ({"mailbox": None}, "absolute path"),
        ({"max_shares": 0.1}, "unknown keys max_shares"),
        ({"max_share": "5%"}, "max_share is '5%'"),
        ({"max_share": 5}, "max_share is 5, 0 to 1"),
        ({"max_share": float("nan")}, "a number is needed"),
        ({"max_leaf": 0}, "max_leaf is 0"),
        ({"max_leaf": True}, "max_leaf is True"),
        ({"stale": 1}, "stale is 1, 60 to"),
        ({"latch_days": -1}, "latch_days is -1"),
        ({"dry_run": "no"}, "dry_run is 'no'"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused(tmp_path: Path, change: dict[str, t.Any], said: str) -> None:
    path = tmp_path / "reconcile.json"
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(request.DrainError, match=r"reconcile\.json: ") as caught:
        request.load(str(path))
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "reconcile.json"
    path.write_text(text)
    with pytest.raises(request.DrainError, match=str(path)):
        request.load(str(path))


def test_defaults_are_those_of_the_specification() -> None:
    found = request.settings(GOOD)
    assert (found.max_share, found.max_leaf, found.latch_days, found.stale) == (0.05, 3, 30.0, 900.0)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"schema": 1, "latches": [], "releases": {}},
        {"schema": 1, "latches": {"a": {}}, "releases": {}},
        {"schema": 1, "latches": {"a": []}, "releases": {}},
        {"schema": 1, "latches": {}, "releases": {"n1": "now"}},
    ],
)
def test_a_memory_that_is_none_is_refused(document: t.Any) -> None:
    with pytest.raises(ValueError, match=r"it |latch|release"):
        latches.read(document)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, 8)
    world.everybody_is_well()
    world.say("n3", fault())
    config = tmp_path / "reconcile.json"
    config.write_text(json.dumps({"schema": 1, "mailbox": str(world.mailbox), "state_dir": str(world.state)}))
    done = reconcile.perform
    monkeypatch.setattr(reconcile, "perform", lambda settings, dry: done(settings, dry, world, NOW))
    options = ["--config", str(config)]
    assert (reconcile.main([*options, "--dry-run"]), capsys.readouterr().out) == (
        0,
        "would drain n3: hpcai:xid:xid is bad\n",
    )
    assert (reconcile.main(options), world.reasons()) == (0, {"n3": "hpcai:xid:xid is bad"})
    assert capsys.readouterr().out.startswith("drained n3: hpcai:xid:xid is bad\n")
    assert (reconcile.main(options), capsys.readouterr().out) == (0, "")  # what the journal knows is not told again
    assert reconcile.main([*options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["drained"] == {}
    assert reconcile.main([*options, "--release", "n[3-4]"]) == 0
    assert capsys.readouterr().out == "released: node:n3|xid\n"
    assert reconcile.main([*options, "--release", "n[3"]) == 2
    assert reconcile.main(["--config", str(tmp_path / "none")]) == 2
    assert "nothing was done: configuration" in capsys.readouterr().err
    world.answer = lambda argv: mailbox.run(["false"], 5) if argv[1] == "update" else None
    world.say("n5", fault("ecc"))
    world.resume("n3")
    world.say("n3")
    assert reconcile.main(options) == 2
    assert "nodename=n5 state=drain" in capsys.readouterr().err


def test_a_node_that_makes_up_checks_and_hosts_fills_no_disk(tmp_path: Path) -> None:
    """Each pass it has failed other checks and is on another host; what is remembered of others stays."""
    world = World(tmp_path, 40)
    world.everybody_is_well()
    world.say("n9", fault("xid"), host="H9")
    world.say("n3", fault("first"), host="H3")
    world.reconcile()
    sizes = []
    for minute in range(1, 60):
        world.now = NOW + 60 * minute
        made_up = [fault(f"made-up-{minute}-{number}", time=world.now) for number in range(30)]
        world.say("n3", *made_up, host=f"H3-{minute}")
        told = world.reconcile()
        sizes.append(len((world.state / "latches.json").read_bytes()))
    remembered = latches.read(json.loads((world.state / "latches.json").read_text()))
    assert latches.count(remembered) == {"n9": 1, "n3": latches.MOST}
    assert "host:H9|xid" in remembered.latches and "host:H3|first" in remembered.latches
    assert sizes[-1] == sizes[10]
    (full,) = [item for item in told.findings if "latched faults, further ones are not kept" in item["text"]]
    assert (full["nodes"], full in told.new) == ("n3", False)


def test_what_grew_before_there_was_a_limit_is_cut_and_the_oldest_stays(tmp_path: Path) -> None:
    world = World(tmp_path, 40)
    entry = {"node": "n3", "class": "hardware", "cause": "bad", "neighbours": [], "last": NOW}
    grown = {
        f"node:n3|c{number}": {**entry, "place": "node:n3", "check": f"c{number}", "first": NOW - 9000 + number}
        for number in range(5000)
    }
    left = latches.expired(latches.Memory(grown, {}), NOW, 30).latches
    assert sorted(left) == sorted(f"node:n3|c{number}" for number in range(latches.MOST))
    assert world.nodes


def test_nodes_that_all_say_they_are_on_one_host_are_no_list_without_an_end(tmp_path: Path) -> None:
    world = World(tmp_path, 300)
    for name in world.nodes:
        world.say(name, host="H1")
    world.say("n3", fault(), host="H1")
    world.reconcile()
    (latch,) = json.loads((world.state / "latches.json").read_text())["latches"].values()
    assert len(latch["neighbours"]) == latches.MOST


def test_a_report_with_a_thousand_new_reasons_each_minute_does_not_fill_the_journal(tmp_path: Path) -> None:
    world = World(tmp_path, 40)
    world.everybody_is_well()
    world.say("n3", *[fault("disk", verdict="error", reason=f"reason {number}") for number in range(1000)])
    told = world.reconcile()
    assert len(told.new) < 100
    assert [item["nodes"] for item in told.findings if "further ones are not listed" in item["text"]] == ["n3"]


def test_the_evidence_of_drains_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Records name users and their processes; what an older reconciler wrote for everybody is closed as well."""
    world = World(tmp_path, 40)
    (world.state / "drains.jsonl").write_text("")
    (world.state / "drains.jsonl").chmod(0o644)
    world.say("n3", fault())
    world.reconcile()
    assert {path.stat().st_mode & 0o077 for path in world.state.iterdir() if path.name != "lock"} == {0}
