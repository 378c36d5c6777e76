# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import random
import typing as t
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import coordinator, journal, module
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.campaign import CampaignPlan, replay
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.coordinator import Coordinator
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.journal import Journal, JournalError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.module import (
    SPEC,
    CampaignRequestError,
    read_request,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm import CampaignSlurm, JobRow
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.certify.slurm_world import (
    START,
    FakeSlurm,
    Json,
    Killed,
    World,
)
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.certify.test_certify_evidence import (
    FLOOR,
    hostile,
)

NODES = [f"n{number}" for number in range(1, 7)]


def request(nodes: t.Sequence[str] = NODES, **params: t.Any) -> Json:
    given = {name: spec.get("default") for name, spec in SPEC.items()}
    given.update(run="r", agent="/agent.pyz", dir="/dir", hold=5.0, patience=4.0, wait=60.0, **params)
    wanted = read_request({**given, "cluster": "lab"})
    idle = [{"name": name, "state": "IDLE", "flags": [], "reason": ""} for name in nodes]
    slurm: t.Any = SimpleNamespace(nodes=lambda: idle, topology=lambda: "")
    saved = module.find_run(wanted, slurm, 1000, None)
    return {**saved, "digests": {"agent_sha256": "a", "profile_sha256": "p"}}


def certify(
    world: World, folder: Path, asked_for: Json | None = None, slurm: type[FakeSlurm] = FakeSlurm
) -> tuple[CampaignPlan, list[Json]]:
    """Go on with a run until it is over."""
    asked_for = asked_for or request(world.names)
    journal = Journal(folder)
    journal.create()
    campaign = CampaignPlan(asked_for["fleet"], asked_for["options"])
    coordinator = Coordinator(journal, asked_for, slurm(world, folder), world.clock())  # type: ignore[arg-type]
    coordinator.run(campaign)
    return campaign, coordinator.records


def test_everybody_is_tested_and_nothing_is_left_behind(tmp_path: Path) -> None:
    world = World(NODES)
    campaign, records = certify(world, tmp_path)
    certificate = campaign.certificate()
    assert certificate["reached"] == len(NODES)
    assert not world.tasks
    assert len({record["context"]["test"] for record in records}) == sum(len(p["tests"]) for p in certificate["rounds"])


def test_one_hung_slurmd_costs_its_patience_and_no_result_of_others(tmp_path: Path) -> None:
    well, hung = World(NODES), World(NODES, n4="hung")
    certify(well, tmp_path / "well")
    campaign, dummy = certify(hung, tmp_path / "hung")
    nodes = campaign.certificate()["nodes"]
    assert {name for name, one in nodes.items() if one["status"] == "untested"} == {"n4"}
    assert "does not answer" in nodes["n4"]["reason"]
    assert nodes["n4"]["class"] == "infra"
    assert hung.now - well.now < 8


def test_patience_runs_while_the_others_work(tmp_path: Path) -> None:
    """A hung node costs a long stage nothing: its patience is counted from when the others began."""
    wanted = request(options={"stages": ["local"]})
    wanted["how"]["patience"] = 10.0
    worlds = [World(NODES), World(NODES, n4="hung")]
    for number, world in enumerate(worlds):
        world.seconds = {"local": 40.0}
        certify(world, tmp_path / str(number), wanted)
    well, hung = (world.now - START for world in worlds)
    assert well > 40
    assert hung < well + 1


def test_who_answers_and_what_it_says_of_itself_come_of_one_job(tmp_path: Path) -> None:
    world = World(NODES, n4="hung")
    world.seconds = {"reach": 1.0, "local": 40.0}
    options = {"stages": ["reach", "local"]}
    campaign, records = certify(world, tmp_path, request(options=options))
    certificate = campaign.certificate()
    assert len(world.submitted) == 1
    assert [one["stage"] for one in certificate["rounds"]] == ["reach", "local"]
    assert [one["node"] for one in certificate["untested"]] == ["n4"]
    assert certificate["untested"][0]["reason"].startswith("did not answer: ")
    # A clock is judged by the first answer, which does not wait for the second.
    seen = {record["node"]: record["time"] for record in records if record["check"] == "reach"}
    assert all(moment < START + 5 for name, moment in seen.items() if name != "n4")
    assert replay(request(options=options), records).certificate() == certificate


def test_node_that_never_answered_is_not_asked_again(tmp_path: Path) -> None:
    alone = {"stages": ["local"]}
    well, hung = World(NODES), World(NODES, n4="hung")
    certify(well, tmp_path / "well", request(options=alone))
    campaign, records = certify(hung, tmp_path / "hung", request(options=alone))
    certificate = campaign.certificate()
    assert [one["stage"] for one in certificate["rounds"]] == ["local"]
    assert [one["node"] for one in certificate["untested"]] == ["n4"]
    assert certificate["nodes"]["n4"]["class"] == "infra"
    assert hung.now - well.now < 8
    # What stands for the missing result says so: whoever judges the records again asks for no second try either.
    again = replay(request(options=alone), records).certificate()
    assert (again["untested"], len(again["rounds"])) == (certificate["untested"], 1)


def test_first_node_that_hangs_takes_no_other_with_it(tmp_path: Path) -> None:
    world = World(NODES, n1="hung")
    certificate = certify(world, tmp_path, request(options={"stages": ["reach", "local"]}))[0].certificate()
    assert [one["node"] for one in certificate["untested"]] == ["n1"]
    assert "does not answer" in certificate["nodes"]["n1"]["reason"]
    assert certificate["reached"] == len(NODES) - 1


def test_slow_start_of_everybody_is_not_silence_of_anybody(tmp_path: Path) -> None:
    world = World(NODES)
    world.late = 20.0
    assert certify(world, tmp_path)[0].certificate()["reached"] == len(NODES)


@pytest.mark.parametrize(("seconds", "jobs"), [(3.0, 1), (12.0, 1), (25.0, 2)])
@pytest.mark.parametrize("names", [NODES, NODES[:2]])
def test_who_is_slow_to_begin_is_asked_again_and_not_called_silent(
    tmp_path: Path, names: list[str], seconds: float, jobs: int
) -> None:
    """A slow file server, a busy machine: many times as long as the patience of 4 s that it was asked for."""
    world = World(names, n2="tardy")
    world.tardy = seconds
    certificate = certify(world, tmp_path, request(names, options={"stages": ["reach", "local"]}))[0].certificate()
    assert {one["status"] for one in certificate["nodes"].values()} == {"cleared"}
    assert len(world.submitted) == jobs


def test_who_leads_a_round_and_is_slow_to_begin_it_takes_no_test_with_it(tmp_path: Path) -> None:
    world = World(NODES, n1="tardy")
    world.tardy = 30.0
    records = certify(world, tmp_path, request(options={"stages": ["pair"]}))[1]
    assert {record["verdict"] for record in records} == {"pass"}


def test_hung_slurmd_of_which_slurm_takes_no_notice_is_found_all_the_same(tmp_path: Path) -> None:
    world = World(NODES, n4="deaf")
    certificate = certify(world, tmp_path, request(options={"stages": ["reach", "local"]}))[0].certificate()
    assert [one["node"] for one in certificate["untested"]] == ["n4"]
    assert "does not answer" in certificate["nodes"]["n4"]["reason"]
    assert len(world.submitted) == 2, "it was not asked again"


def test_nodes_that_slurm_has_not_tidied_away_yet_are_not_taken_by_others(tmp_path: Path) -> None:
    """An epilog that takes its time, or a controller that is busy: our own last job still has the nodes."""
    world = World(NODES)
    world.tidy = 25.0
    certificate = certify(world, tmp_path, request(options={"stages": ["reach", "pair"]}))[0].certificate()
    assert {one["status"] for one in certificate["nodes"].values()} == {"cleared"}


class SlowSlurm(FakeSlurm):
    """A busy machine's: what squeue says is a second old when it has said it."""

    def queue(self, names: t.Container[str]) -> list[JobRow]:
        rows = super().queue(names)
        self.world.sleep(1.0)
        return rows


@pytest.mark.parametrize("tidy", [20.0 + half / 2 for half in range(14)])
def test_nodes_that_our_own_job_has_just_been_given_are_not_taken_by_others(tmp_path: Path, tidy: float) -> None:
    """It waited for our last job to be tidied away, and began between two questions."""
    world = World(NODES)
    world.tidy = tidy
    asked_for = request(options={"stages": ["reach", "pair"]})
    certificate = certify(world, tmp_path, asked_for, SlowSlurm)[0].certificate()
    assert {one["status"] for one in certificate["nodes"].values()} == {"cleared"}


def test_what_comes_after_a_test_was_given_up_sends_nobody_another_way(tmp_path: Path) -> None:
    options = {"stages": ["reach", "local"]}
    first = certify(World(NODES, n4="hung"), tmp_path, request(options=options))[0].certificate()
    late = [test["id"] for part in first["rounds"] for test in part["tests"] if test["nodes"] == ["n4"]]
    for name in late:
        Journal(tmp_path).answer(name, [])
    assert certify(World(NODES), tmp_path, request(options=options))[0].certificate() == first


@pytest.mark.parametrize("mood", ["busy", "down"])
def test_who_is_taken_meanwhile_is_left_out_with_the_reason(tmp_path: Path, mood: str) -> None:
    world = World(NODES, n2=mood)
    nodes = certify(world, tmp_path)[0].certificate()["nodes"]
    assert {name for name, one in nodes.items() if one["status"] == "untested"} == {"n2"}
    assert mood in nodes["n2"]["reason"]
    assert not [one for one in world.tasks if "n2" in world.nodes_of(one)], "its job still waits"


def test_head_of_a_round_that_hangs_takes_only_its_own_tests_with_it(tmp_path: Path) -> None:
    world = World(NODES)
    asked_for = request(options={"stages": ["pair"]})
    world.moods["n1"] = "hung"
    records = certify(world, tmp_path, asked_for)[1]
    lost = [record for record in records if record["verdict"] == "error"]
    assert lost
    assert all("n1" in record["scope"]["group"] for record in lost)
    ok = [record for record in records if record["verdict"] == "pass"]
    assert ok
    assert all("n1" not in record["scope"]["group"] for record in ok)


def test_slow_node_is_convicted(tmp_path: Path) -> None:
    nodes = certify(World([f"n{n}" for n in range(1, 25)], n7="slow"), tmp_path)[0].certificate()["nodes"]
    assert {name for name, one in nodes.items() if one["status"] == "drained"} == {"n7"}


@pytest.mark.parametrize("moods", [{}, {"n3": "hung", "n6": "hung", "n9": "busy"}])
def test_no_more_nodes_at_once_than_allowed(tmp_path: Path, moods: dict[str, str]) -> None:
    names = [f"n{number}" for number in range(1, 13)]
    world = World(names, **moods)
    campaign, dummy = certify(world, tmp_path, request(names, nodes_at_once=4, options={"stages": ["reach", "local"]}))
    nodes = campaign.certificate()["nodes"]
    assert {name for name, one in nodes.items() if one["status"] == "untested"} == set(moods)
    assert world.most <= 4


def test_controller_that_is_away_is_waited_for(tmp_path: Path) -> None:
    world = World(NODES)
    world.away = 12
    assert certify(world, tmp_path)[0].certificate()["reached"] == len(NODES)


def test_clock_is_judged_by_submission_and_sight(tmp_path: Path) -> None:
    limit = {"check": "clock_skew", "metric": "skew", "op": "<=", "value": 5, "unit": "s", "source": "test"}
    world = World(NODES)
    world.skew = {"n3": 90.0, "n5": -90.0}
    asked_for = request(profile={"profile": "x", "expect": [limit]}, options={"stages": ["reach"]})
    records = [record for record in certify(world, tmp_path, asked_for)[1] if record["check"] == "clock_skew"]
    found = {record["node"]: record for record in records}
    assert {name for name, record in found.items() if record["verdict"] == "fail"} == {"n3", "n5"}
    assert found["n3"]["class"] == "config"
    assert all(85 <= found[name]["metrics"][0]["value"] <= 90 for name in ("n3", "n5"))


@pytest.mark.parametrize(("skew", "verdict", "status"), [(90.0, "warn", "cleared"), (200.0, "fail", "watched")])
def test_clock_that_is_off_needs_no_limit_of_the_profile(
    tmp_path: Path, skew: float, verdict: str, status: str
) -> None:
    world = World(NODES)
    world.skew = {"n3": skew}
    campaign, records = certify(world, tmp_path)
    found = {one["node"]: one["verdict"] for one in records if one["check"] == "clock_skew"}
    assert found == {**dict.fromkeys(NODES, "pass"), "n3": verdict}
    nodes = campaign.certificate()["nodes"]
    assert {name: one["status"] for name, one in nodes.items()} == {**dict.fromkeys(NODES, "cleared"), "n3": status}
    assert status == "cleared" or "clock_skew" in nodes["n3"]["reason"]


class Hostile(World):
    """Its nodes write what they like, or nothing at all."""

    def answer(self, test: Json) -> list[Json]:
        good, dice = super().answer(test), random.Random(test["id"])
        junk = [hostile(dice) for dummy in range(dice.randint(0, 3))]
        return good if dice.random() < 0.6 else junk + good * (dice.random() < 0.5)


@pytest.mark.parametrize("nodes", [2, 5, 8, 9])
def test_hostile_results_end_no_run_and_its_records_say_the_same_again(tmp_path: Path, nodes: int) -> None:
    names = [f"n{number}" for number in range(nodes)]
    campaign, records = certify(Hostile(names), tmp_path)
    found = json.loads(json.dumps(campaign.certificate()))
    kept = [json.loads(line) for line in sorted(json.dumps(one, sort_keys=True) for one in records)]
    assert json.loads(json.dumps(replay(request(names), kept).certificate())) == found
    # Judged by another profile none of them is in the way of the others.
    assert replay(request(names), kept, {"expect": [FLOOR]}).certificate()["planned"] == nodes


class Late(World):
    """What n2 wrote in the first attempt is seen in the second one: a shared file system may take that long."""

    def work(self, task: t.Any) -> None:
        mine = [test for test in task.tests if test["nodes"] == ["n2"]]
        if not mine:
            super().work(task)
        elif "-reach-1." in task.name:
            self.kept = self.answer(mine[0])
            task.tests.remove(mine[0])
        else:
            Journal(self.folder).answer(task.tests[0]["id"], self.kept)
            task.state = "GONE"


def test_what_comes_late_of_an_earlier_attempt_accuses_no_clock(tmp_path: Path) -> None:
    world = Late(NODES)
    records = certify(world, tmp_path, request(options={"stages": ["reach"]}))[1]
    skews = {one["node"]: one["metrics"][0]["value"] for one in records if one["check"] == "clock_skew"}
    assert len(world.submitted) == 2
    assert skews == dict.fromkeys(NODES, 0.0)


@pytest.mark.parametrize("seed", range(60))
def test_killed_at_any_moment_it_goes_on_and_keeps_every_result(tmp_path: Path, seed: int) -> None:
    """The clock of the world goes on while nobody leads; no test is measured twice, whatever was killed when."""
    dice = random.Random(seed)
    moods = {dice.choice(NODES): dice.choice(["hung", "busy", "slow"])} if seed % 3 else {}
    world = World(NODES, **moods)
    kills = 0
    while True:
        world.kill_at = world.events + dice.randrange(1, 40) if kills < 8 else None
        try:
            campaign, records = certify(world, tmp_path)
            break
        except Killed:
            kills += 1
            world.kill_at = None
            before = Journal(tmp_path).answered()
            world.sleep(dice.choice([0.0, 1.0, 30.0]))
            assert before <= Journal(tmp_path).answered()
    certificate = campaign.certificate()
    names = {test["id"] for part in certificate["rounds"] for test in part["tests"]}
    answered = Journal(tmp_path).answered()
    assert world.measured == len(answered)
    taken = {record["context"]["test"] for record in records if record["verdict"] != "error"}
    assert answered & names == taken
    assert len(world.submitted) == len(set(world.submitted)), "a job was submitted twice"
    assert certificate["planned"] == certificate["reached"] + len(certificate["untested"])


def test_run_that_is_complete_is_read_again_to_the_same_certificate(tmp_path: Path) -> None:
    world = World(NODES, n4="hung", n2="slow")
    first = certify(world, tmp_path)
    jobs = len(world.submitted)
    again = certify(world, tmp_path)
    assert len(world.submitted) == jobs
    assert again[0].certificate() == first[0].certificate()
    as_text = [sorted(json.dumps(record, sort_keys=True) for record in found[1]) for found in (first, again)]
    assert as_text[0] == as_text[1]


def test_task_plans_leads_resumes_and_returns_what_is_done(tmp_path: Path) -> None:
    agent = tmp_path / "agent.pyz"
    agent.write_bytes(b"agent")
    params = {name: spec.get("default") for name, spec in SPEC.items()}
    params.update(dir=str(tmp_path / "runs"), agent=str(agent), hosts="n[1-3]", options={"stages": ["reach"]})
    slurm: t.Any = FakeSlurm(World(NODES), tmp_path)
    plan = module.perform(params, slurm, check_mode=True)
    assert plan.certificate is None
    assert plan.plan["text"]
    assert not (tmp_path / "runs").exists()
    with pytest.raises(CampaignRequestError, match="is no file"):
        module.perform({**params, "agent": str(tmp_path / "none")}, slurm, check_mode=False)


def test_results_that_no_request_asked_for_are_not_taken_in(tmp_path: Path) -> None:
    agent, world = tmp_path / "agent.pyz", World(NODES)
    agent.write_bytes(b"agent")
    params = {name: spec.get("default") for name, spec in SPEC.items()}
    params.update(dir=str(tmp_path / "runs"), agent=str(agent), run="old")
    journal = Journal(tmp_path / "runs/old")
    journal.create()
    journal.answer("00-reach-00000", [])
    with pytest.raises(JournalError, match="nothing says of what run"):
        module.perform(params, _slurm(world), check_mode=False)
    assert not world.submitted


def test_task_goes_on_with_what_was_cut_short_unless_that_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, base = tmp_path / "agent.pyz", tmp_path / "runs"
    agent.write_bytes(b"agent")
    params = {name: spec.get("default") for name, spec in SPEC.items()}
    params.update(dir=str(base), agent=str(agent), hosts="n[1-3]", hold=2.0)
    world = World(NODES)
    monkeypatch.setattr(coordinator, "Coordinator", lambda journal, wanted, slurm: _lead(journal, wanted, slurm, world))
    world.kill_at = 12
    with pytest.raises(Killed):
        module.perform(params, _slurm(world), check_mode=False)
    world.kill_at = None
    assert module.perform({**params, "timeout": 5.0}, _slurm(world), check_mode=True).resumed is False
    done = module.perform(params, _slurm(world), check_mode=False)
    assert (done.resumed, done.changed, len(list(base.glob("[!.]*")))) == (True, True, 1)
    assert done.certificate is not None
    assert done.certificate["planned"] == 3
    again = module.perform({**params, "run": done.run}, _slurm(world), check_mode=False)
    assert (again.changed, again.certificate) == (False, json.loads(json.dumps(done.certificate)))
    assert list(again.records) == list(done.records)
    with pytest.raises(journal.JournalError, match="other options"):
        (base / done.run / "certificate.json").unlink()
        module.perform({**params, "run": done.run, "timeout": 5.0}, _slurm(world), check_mode=False)
    monkeypatch.setattr(journal, "RESUMABLE", -1.0)
    assert module.perform(params, _slurm(world), check_mode=True).resumed is False
    with pytest.raises(journal.JournalError, match="no proof of today"):
        module.perform({**params, "run": done.run}, _slurm(world), check_mode=False)


class Refusing(FakeSlurm):
    """Says no to every job, with these words."""

    said = ""

    def submit(self, options: t.Sequence[str], script: Path) -> int:
        return CampaignSlurm(lambda argv: (1, "", self.said)).submit(options, script)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified", 0),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", 300),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", 300),
        ("sbatch: error: AssocMaxSubmitJobLimit", 300),
    ],
)
def test_what_slurm_will_never_take_is_not_asked_for_again(tmp_path: Path, said: str, seconds: float) -> None:
    world, journal, wanted = World(NODES), Journal(tmp_path), request()
    journal.create()
    slurm: t.Any = Refusing(world, tmp_path)
    slurm.said = said
    with pytest.raises(SlurmError, match="sbatch refused"):
        Coordinator(journal, wanted, slurm, world.clock()).run(CampaignPlan(wanted["fleet"], wanted["options"]))
    assert seconds <= world.now - START <= seconds + 10


def _slurm(world: World) -> t.Any:
    return FakeSlurm(world, world.folder)


def _lead(journal: Journal, wanted: Json, slurm: t.Any, world: World) -> Coordinator:
    world.folder = journal.folder
    return Coordinator(journal, wanted, slurm, world.clock())
