# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stays of a run, what it says of the agent that it ran, and which runs go when there are too many."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import multiprocessing
import os
import subprocess
import sys
import time
import typing as t
import zipfile
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import command, coordinator, journal, module
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.coordinator import Coordinator
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.journal import Journal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.module import SPEC, CampaignRequestError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.certify.slurm_world import FakeSlurm, World

Json = t.Dict[str, t.Any]
DAY = 86400.0


def run(base: Path, name: str, days: float, nodes: t.Sequence[str] = ("n1",), done: bool = True) -> Path:
    """Make a run that ended so many days ago."""
    folder = base / name
    Journal(folder).create()
    (folder / "results/00-reach-00000.jsonl").write_text("{}\n")
    (folder / "request.json").write_text(json.dumps({"schema": 1, "run": name, "fingerprint": "f"}))
    if done:
        (folder / "certificate.json").write_text(json.dumps({"nodes": {key: {"status": "cleared"} for key in nodes}}))
    moment = time.time() - days * DAY
    for file in folder.glob("*.json"):
        os.utime(file, (moment, moment))
    return folder


def old(base: Path, keep: int, name: str = "now", reasons: t.Sequence[str] = ()) -> list[str]:
    return [path.name for path in journal.old(base, keep, name, lambda: reasons)]


@pytest.mark.parametrize(("keep", "gone"), [(0, []), (1, ["a", "b", "c"]), (2, ["a", "b"]), (4, []), (9, [])])
def test_so_many_stay_and_this_one_is_among_them(tmp_path: Path, keep: int, gone: list[str]) -> None:
    for days, name in enumerate(("now", "c", "b", "a")):
        run(tmp_path, name, days)
    assert old(tmp_path, keep) == gone


def test_in_check_mode_this_one_is_not_there_yet_and_counts_all_the_same(tmp_path: Path) -> None:
    for days, name in enumerate(("c", "b", "a"), 1):
        run(tmp_path, name, days)
    # Nothing newer speaks of the node yet, so the last one that does stays.
    assert old(tmp_path, 1) == ["a", "b"]
    assert old(tmp_path, 3) == ["a"]


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    run(tmp_path, "now", 0)
    run(tmp_path, "ours", 9)
    (tmp_path / "notes").mkdir()
    (tmp_path / "hpcai-agent.pyz").write_text("")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/request.json").write_text('{"run": "theirs"}')
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn/request.json").write_text("{half")
    run(tmp_path, "copy", 9).rename(tmp_path / "copied by hand")
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    assert old(tmp_path, 1) == ["ours"]


def test_who_has_the_last_word_on_a_node_stays(tmp_path: Path) -> None:
    run(tmp_path, "fleet", 9, ["n1", "n2", "n3"])
    run(tmp_path, "older", 10, ["n1", "n2"])
    for days, name in enumerate(("now", "repair2", "repair1")):
        run(tmp_path, name, days, ["n2"])
    assert old(tmp_path, 1) == ["older", "repair1", "repair2"]
    torn = run(tmp_path, "torn", 20)
    (torn / "certificate.json").write_text("{half")
    assert "torn" not in old(tmp_path, 1)


def test_what_a_drained_node_is_drained_for_stays(tmp_path: Path) -> None:
    for days, name in enumerate(("now", "r12", "r1")):
        run(tmp_path, name, days)
    assert old(tmp_path, 1, reasons=["hpcai:certification:hardware fault, run r12"]) == ["r1"]
    assert old(tmp_path, 1, reasons=["ops: run r1"]) == ["r12"]


def _hold(path: str, ready: t.Any, over: t.Any) -> None:
    with Path(path).open("a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        ready.set()
        over.wait(30)


def test_what_may_go_on_or_does_stays(tmp_path: Path) -> None:
    run(tmp_path, "now", 0)
    run(tmp_path, "cut short", 0.1, done=False)
    run(tmp_path, "given up", 1, done=False)
    led = run(tmp_path, "led", 2)
    ready, over = multiprocessing.Event(), multiprocessing.Event()
    other = multiprocessing.Process(target=_hold, args=(str(led / "lock"), ready, over))
    other.start()
    try:
        assert ready.wait(20)
        assert old(tmp_path, 1) == ["given up"]
    finally:
        over.set()
        other.join(20)
    assert old(tmp_path, 1) == ["led", "given up"]


def test_a_removal_that_was_cut_short_is_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "now", 0)
    folder, kept = run(tmp_path, "a", 3), tmp_path / "elsewhere"
    kept.mkdir()
    (kept / "file").touch()
    (folder / "logs/link").symlink_to(kept)
    (folder / "outward").symlink_to(kept)
    unlink = Path.unlink

    def torn(path: Path, *args: t.Any) -> None:
        if path.name == "request.json":
            raise OSError("server does not answer")
        unlink(path, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", torn)
        with pytest.raises(OSError, match="does not answer"):
            journal.remove(folder)
    assert [path.name for path in folder.iterdir()] == ["request.json"]
    assert old(tmp_path, 1) == ["a"]
    journal.remove(folder)
    assert not folder.exists()
    assert (kept / "file").exists()


class Known(FakeSlurm):
    """Nodes, of which one is drained for an earlier run."""

    why = ""

    def nodes(self) -> list[Json]:
        return [{**node, "reason": self.why} for node in super().nodes()]


def _params(base: Path, agent: Path, **more: t.Any) -> Json:
    params = {name: spec.get("default") for name, spec in SPEC.items()}
    return {**params, "dir": str(base), "agent": str(agent), "hosts": "n[1-3]", "hold": 2.0, **more}


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("__main__.py", "print(1)\n")
    path = tmp_path / "hpcai-agent.pyz"
    path.write_bytes(made.getvalue())

    def lead(journal: Journal, wanted: Json, slurm: t.Any) -> Coordinator:
        slurm.world.folder = journal.folder
        return Coordinator(journal, wanted, slurm, slurm.world.clock())

    monkeypatch.setattr(coordinator, "Coordinator", lead)
    return path


def test_old_runs_go_when_a_run_has_ended_and_check_mode_says_so_before(tmp_path: Path, agent: Path) -> None:
    base, slurm = tmp_path / "runs", Known(World(["n1", "n2", "n3"]), tmp_path)
    for days, name in enumerate(("b", "a", "named"), 1):
        run(base, name, days)
    run(base, "fleet", 9, ["n1", "n9"])
    params: t.Any = _params(base, agent, keep=2)
    Known.why = "hpcai:certification:hardware fault, run named"
    planned = module.perform(params, slurm, check_mode=True)  # type: ignore[arg-type]
    assert planned.removed == ["a"]
    assert len(list(base.iterdir())) == 4
    done = module.perform(params, slurm, check_mode=False)  # type: ignore[arg-type]
    assert list(done.removed) == list(planned.removed)
    assert {path.name for path in base.iterdir()} == {".lock", "fleet", "named", "b", done.run}


def test_no_other_run_begins_while_one_is_looked_for(
    tmp_path: Path, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose connection was lost may still run when it is begun again; it finds the run, and waits for that."""
    begins: list[bool] = []
    leads: list[tuple[bool, bool, bool]] = []
    ask = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    def held(path: Path) -> bool:
        if not path.exists():
            return False
        done = subprocess.run([sys.executable, "-c", ask, str(path)], capture_output=True, text=True)
        assert done.returncode == 0 or "BlockingIOError" in done.stderr, done.stderr
        return done.returncode != 0

    class Watched(Known):
        def nodes(self) -> list[Json]:
            begins.append(held(base / ".lock"))
            return super().nodes()

    def lead(journal: Journal, wanted: Json, slurm: t.Any) -> Coordinator:
        leads.append((held(base / ".lock"), held(journal.folder / "lock"), (journal.folder / "request.json").exists()))
        slurm.world.folder = journal.folder
        return Coordinator(journal, wanted, slurm, slurm.world.clock())

    base, slurm = tmp_path / "runs", t.cast("t.Any", Watched(World(["n1", "n2", "n3"]), tmp_path))
    monkeypatch.setattr(coordinator, "Coordinator", lead)
    module.perform(_params(base, agent), slurm, check_mode=True)
    assert not base.exists()
    begins.clear()
    module.perform(_params(base, agent), slurm, check_mode=False)
    assert begins[0] is True and leads == [(False, True, True)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what is somebody else's")
def test_a_lock_that_somebody_else_left_is_not_taken(tmp_path: Path, agent: Path) -> None:
    base, victim = tmp_path / "runs", tmp_path / "victim"
    base.mkdir()
    (base / ".lock").symlink_to(victim)
    os.lchown(base / ".lock", 65534, 65534)
    slurm: t.Any = Known(World(["n1", "n2", "n3"]), tmp_path)
    with pytest.raises(journal.JournalError, match=r"runs cannot be kept in .*\.lock"):
        module.perform(_params(base, agent), slurm, check_mode=False)
    assert not victim.exists()


def test_without_slurm_s_reasons_nothing_goes(tmp_path: Path) -> None:
    class Away(Known):
        def nodes(self) -> list[Json]:
            raise SlurmError("no controller")

    for days, name in enumerate(("now", "a")):
        run(tmp_path, name, days)
    slurm: t.Any = Away(World(["n1"]), tmp_path)
    assert journal.clear(tmp_path, 1, "now", slurm.nodes, False) == []
    assert (tmp_path / "a").exists()


def test_a_certificate_names_the_agent_that_ran_and_the_file_it_was_made_of(
    tmp_path: Path, agent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm: t.Any = Known(World(["n1", "n2", "n3"]), tmp_path)
    done = module.perform(_params(tmp_path / "runs", agent), slurm, check_mode=False)
    assert done.certificate is not None
    ran = Path(done.folder, "agent.pyz").read_bytes()
    assert done.certificate["agent_sha256"] == hashlib.sha256(ran).hexdigest()
    assert done.certificate["agent_source_sha256"] == hashlib.sha256(agent.read_bytes()).hexdigest()
    assert done.certificate["agent_sha256"] != done.certificate["agent_source_sha256"]
    assert command.main(["rejudge", done.folder]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(done.certificate))


def test_another_agent_between_two_starts_of_a_run_changes_nothing(tmp_path: Path, agent: Path) -> None:
    world = World(["n1", "n2", "n3"])
    slurm: t.Any = Known(world, tmp_path)
    folder = tmp_path / "runs/r"
    Journal(folder).create()
    (folder / "agent.pyz").write_bytes(b"left by a start that was cut short before it had asked for anything")
    done = module.perform(_params(tmp_path / "runs", agent, run="r"), slurm, check_mode=False)
    assert done.certificate is not None
    assert done.certificate["agent_sha256"] == hashlib.sha256((folder / "agent.pyz").read_bytes()).hexdigest()
    assert zipfile.is_zipfile(folder / "agent.pyz")


def test_less_than_nothing_cannot_be_kept(tmp_path: Path, agent: Path) -> None:
    slurm: t.Any = Known(World(["n1"]), tmp_path)
    with pytest.raises(CampaignRequestError, match="keep must not be negative"):
        module.perform(_params(tmp_path, agent, keep=-1), slurm, check_mode=True)


class Elastic(FakeSlurm):
    """Nodes that Slurm creates when jobs want them; these are switched off, and n4 failed to resume."""

    off: t.ClassVar[set[str]] = {"n2", "n3", "n4"}

    def nodes(self) -> list[Json]:
        marked = {name: {"flags": ["CLOUD", "POWERED_DOWN"]} for name in self.off}
        failed = {"n4": {"state": "DOWN", "reason": "ResumeTimeout reached"}}
        return [{**node, **marked.get(node["name"], {}), **failed.get(node["name"], {})} for node in super().nodes()]


def test_nodes_that_power_saving_has_switched_off_are_no_part_of_a_run(tmp_path: Path, agent: Path) -> None:
    slurm: t.Any = Elastic(World(["n1", "n2", "n3", "n4"]), tmp_path)
    done = module.perform(_params(tmp_path / "runs", agent, hosts=""), slurm, check_mode=False)
    assert done.certificate is not None
    status = {name: node["status"] for name, node in done.certificate["nodes"].items()}
    assert status == {"n1": "cleared", "n4": "untested"}
    assert [one["text"] for one in module.refused(done.certificate)] == [
        "n4 is not certified: untested: down: ResumeTimeout reached"
    ]


def test_a_node_that_is_named_and_switched_off_is_untested(tmp_path: Path, agent: Path) -> None:
    slurm: t.Any = Elastic(World(["n1", "n2", "n3", "n4"]), tmp_path)
    done = module.perform(_params(tmp_path / "runs", agent, hosts="n[1-2]"), slurm, check_mode=False)
    assert done.certificate is not None
    assert done.certificate["nodes"]["n2"]["status"] == "untested"


def test_a_certification_that_tested_no_node_says_why(tmp_path: Path, agent: Path) -> None:
    slurm: t.Any = Elastic(World(["n1", "n2", "n3", "n4"]), tmp_path)
    done = module.perform(_params(tmp_path / "runs", agent, hosts="n4"), slurm, check_mode=False)
    assert done.certificate is not None
    assert [(one["status"], one["text"]) for one in module.refused(done.certificate)] == [
        ("untested", "n4 is not certified: untested: down: ResumeTimeout reached"),
        ("error", "no node was tested: nothing is known of any of the 1; n4: down: ResumeTimeout reached"),
    ]


def test_a_cluster_without_a_node_says_how_to_get_some(tmp_path: Path, agent: Path) -> None:
    slurm: t.Any = Elastic(World(["n2", "n3"]), tmp_path)
    with pytest.raises(SlurmError, match=r"switched off all of n\[2-3\].*cluster_nodes"):
        module.perform(_params(tmp_path / "runs", agent, hosts=""), slurm, check_mode=True)
