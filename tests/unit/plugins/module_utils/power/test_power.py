# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The power programs: what is decided, what Slurm and the cloud are told, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power import program
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.program import Actions
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.provider import (
    CloudInstance,
    CloudNode,
    PowerError,
    PowerSlurm,
    Provider,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import nodes_from_text
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _node_program

# The rehearsal's own provider, as somebody else's would be: a file that is not in the collection.
LAB = Path(__file__).resolve().parents[5] / "lab/roles/lab_cloud/files/lab.py"
_SPEC = importlib.util.spec_from_file_location("lab_cloud_provider", LAB)
assert _SPEC is not None and _SPEC.loader is not None
lab = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(lab)
NOW = time.mktime((2026, 11, 22, 1, 0, 0, 0, 0, -1))


class Cloud(Provider):
    """A cloud in memory."""

    SETTINGS: t.ClassVar[dict[str, bool]] = {"zone": True}
    MACHINE: t.ClassVar[dict[str, bool]] = {"type": False}

    def __init__(self, settings: t.Mapping[str, t.Any], cluster: str) -> None:
        super().__init__(settings, cluster)
        self.there: dict[str, str] = {}
        self.copies: dict[str, str] = {}
        self.number = 1
        self.refused: dict[str, str] = {}
        self.broken = ""

    def create(self, nodes: t.Sequence[CloudNode]) -> dict[str, str]:
        if self.broken:
            raise PowerError(self.broken)
        self.there.update({node.name: "starting" for node in nodes if node.name not in self.refused})
        return {node.name: self.refused.get(node.name, "") for node in nodes}

    def delete(self, names: t.Sequence[str]) -> dict[str, str]:
        for name in names:
            self.there.pop(name, None)
        return dict.fromkeys(names, "")

    def instances(self) -> dict[str, CloudInstance]:
        if self.broken:
            raise PowerError(self.broken)
        return {
            name: CloudInstance(state, str(self.number), self.copies.get(name, ""))
            for name, state in self.there.items()
        }


class Ctld:
    """scontrol: shows what it was given, remembers what it was told."""

    def __init__(self, **nodes: str) -> None:
        self.nodes = nodes
        self.told: list[list[str]] = []

    def __call__(self, argv: list[str], timeout: float, environment: t.Any = None) -> Outcome:
        if argv[1] == "show":
            lines = [f"NodeName={name} State={rest}" for name, rest in self.nodes.items()]
            return Outcome(0, "\n".join(lines), "", 0.0)
        self.told.append(argv[2:])
        return Outcome(0, "", "", 0.0)


def document(**more: t.Any) -> dict[str, t.Any]:
    groups = [{"nodes": "e[1-4]", "machine": {}, "user_data": "/u"}]
    known = {"cluster": "lab", "settings": {"zone": "a"}, "groups": groups, "state_dir": "/x", "retry_after": 60}
    known["stray_after"] = 300
    return {**known, "log": "/l", **more}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud({"zone": "a"}, "lab")


def actions(cloud: Cloud, ctld: Ctld, state: Path = Path("/x")) -> tuple[Actions, list[str]]:
    said: list[str] = []
    settings = program.read(document(state_dir=str(state)), "p", Cloud)
    return Actions(settings, cloud, PowerSlurm(ctld), said.append), said


def test_what_is_created_is_created(cloud: Cloud) -> None:
    ctld = Ctld()
    act, said = actions(cloud, ctld)
    assert act.resume(["e1", "e2"])
    assert (sorted(cloud.there), ctld.told, said) == (["e1", "e2"], [], ["created e1 e2"])


def test_a_refused_node_is_reported_and_the_others_go_on(cloud: Cloud) -> None:
    cloud.refused = {"e2": "Quota 'CPUS' exceeded", "e3": "Quota 'CPUS' exceeded"}
    ctld = Ctld()
    act, dummy = actions(cloud, ctld)
    assert not act.resume(["e1", "e2", "e3"])
    reason = "reason=hpcai:power:not created: Quota CPUS exceeded"
    assert ctld.told == [["nodename=e[2-3]", "state=DOWN", reason], ["nodename=e[2-3]", "state=POWER_DOWN"]]
    assert list(cloud.there) == ["e1"]


def test_a_cloud_that_does_not_answer_fails_every_node(cloud: Cloud) -> None:
    cloud.broken = "no answer"
    ctld = Ctld()
    act, dummy = actions(cloud, ctld)
    assert not act.resume(["e1", "x9"])
    assert [words[0] for words in ctld.told] == 2 * ["nodename=e1"] + 2 * ["nodename=x9"]


def test_only_configured_nodes_are_removed(cloud: Cloud) -> None:
    cloud.there = {"e1": "running", "c1": "running"}
    act, dummy = actions(cloud, Ctld())
    assert act.suspend(["e1", "c1"])
    assert list(cloud.there) == ["c1"]


LATE = "DOWN+CLOUD+POWERED_DOWN Reason=ResumeTimeout reached [slurm@2026-11-22T00:59:13]"


def test_a_node_that_did_not_come_says_why_and_a_person_s_reason_stays(cloud: Cloud) -> None:
    cloud.there = {"e1": "running", "e2": "running"}
    ctld = Ctld(e1=LATE, e2="DOWN+CLOUD+DRAIN Reason=ops: cable [root@2026-11-22T00:59:13]")
    act, dummy = actions(cloud, ctld)
    assert act.resume_fail(["e1", "e2"])
    reason = "reason=hpcai:power:not ready within ResumeTimeout, its instance was running"
    assert (ctld.told, cloud.there) == ([["nodename=e1", reason]], {})


FAILED = "Reason=hpcai:power:not created: x [slurm@2026-11-22T00:{}:00]"
CASES = [
    # what Slurm says, the instance, what shall be done with e1
    ("IDLE+CLOUD+POWERED_DOWN", "", ""),
    ("IDLE+CLOUD+POWERED_DOWN", "running", "stray"),
    ("IDLE+CLOUD+POWERED_DOWN", "stopping", ""),
    ("ALLOCATED+CLOUD+POWERING_UP", "starting", ""),
    ("ALLOCATED+CLOUD+POWERING_UP", "", ""),
    ("IDLE+CLOUD+POWERING_DOWN", "running", ""),
    ("ALLOCATED+CLOUD", "running", ""),
    ("ALLOCATED+CLOUD", "", "gone"),
    ("DOWN*+CLOUD Reason=Not responding [slurm@2026-11-22T00:59:13]", "stopped", "gone"),
    ("IDLE+CLOUD+DRAIN Reason=ops: cable [root@2026-11-22T00:59:13]", "", ""),
    ("DOWN+CLOUD+DRAIN+POWERED_DOWN Reason=hpcai:power:x [slurm@2026-11-22T00:10:13]", "", ""),
    (f"DOWN+CLOUD {FAILED.format(10)}", "", "off"),
    (f"DOWN+CLOUD+POWERING_DOWN {FAILED.format(10)}", "", ""),
    (f"DOWN+CLOUD+POWERED_DOWN {FAILED.format(10)}", "", "back"),
    (f"DOWN+CLOUD+POWERED_DOWN {FAILED.format(59)}", "", ""),
    (LATE.replace("00:59:13", "00:50:00"), "", "back"),
    (LATE, "running", ""),
    ("DOWN*+CLOUD+POWERED_DOWN Reason=Not responding [slurm@2026-11-22T00:10:00]", "", "back"),
    ("DOWN*+CLOUD Reason=Not responding [slurm@2026-11-22T00:10:00]", "running", ""),
    ("DOWN+CLOUD+POWERED_DOWN Reason=ops: broken [root@2026-11-22T00:10:00]", "", ""),
]


@pytest.mark.parametrize(("slurm", "instance", "wanted"), CASES)
def test_what_differs_is_put_right(slurm: str, instance: str, wanted: str) -> None:
    nodes = [{**node, "retry": _retry(node)} for node in nodes_from_text(f"NodeName=e1 State={slurm}")]
    found = program.decide(nodes, {"e1": CloudInstance(instance)} if instance else {}, {"e1"}, NOW)
    assert {key for key, names in found._asdict().items() if "e1" in names} == ({wanted} if wanted else set())


def _retry(node: t.Mapping[str, t.Any]) -> float:
    given = node["reason_time"]
    return time.mktime(time.strptime(given, "%Y-%m-%dT%H:%M:%S")) + 300 if given else 0.0


def test_a_static_node_is_never_touched() -> None:
    nodes = nodes_from_text("NodeName=c1 State=DOWN Reason=hpcai:power:x [slurm@2026-11-22T00:10:00]")
    assert not any(program.decide(nodes, {}, {"e1"}, NOW))


def test_an_instance_that_no_node_stands_for_is_a_stray() -> None:
    assert program.decide([], {"e9": CloudInstance("running")}, {"e1"}, NOW).stray == ["e9"]


def test_an_instance_that_may_be_a_copy_is_no_stray() -> None:
    decision = program.decide([], {"e9": CloudInstance("running", "", "no metadata")}, {"e1"}, NOW)
    assert (decision.stray, decision.copies) == ([], {"e9": "no metadata"})


def test_a_node_whose_instance_does_not_prove_itself_keeps_its_job() -> None:
    """An earlier version made it, and Slurm counts on it."""
    nodes = nodes_from_text("NodeName=e1 State=ALLOCATED+CLOUD")
    assert not any(program.decide(nodes, {"e1": CloudInstance("running", "", "no metadata")}, {"e1"}, NOW))


def test_a_node_that_left_the_configuration_keeps_its_job() -> None:
    nodes = nodes_from_text("NodeName=e9 State=ALLOCATED+CLOUD")
    assert program.decide(nodes, {"e9": CloudInstance("running")}, {"e1"}, NOW).stray == []


def test_one_wrong_answer_of_a_cloud_costs_no_job(cloud: Cloud, tmp_path: Path) -> None:
    ctld = Ctld(e1="ALLOCATED+CLOUD")
    act, dummy = actions(cloud, ctld, tmp_path)
    act.sweep(NOW)
    assert ctld.told == []
    act.sweep(NOW)
    assert ctld.told[0] == ["nodename=e1", "state=DOWN", "reason=hpcai:power:its instance is gone"]


def test_a_sweep_tries_again_and_removes_strays(cloud: Cloud, tmp_path: Path) -> None:
    cloud.there = {"e2": "running"}
    ctld = Ctld(e1=f"DOWN+CLOUD+POWERED_DOWN {FAILED.format(10)}", e2="IDLE+CLOUD+POWERED_DOWN")
    act, dummy = actions(cloud, ctld, tmp_path)
    act.sweep(NOW)
    assert (ctld.told, cloud.there) == ([["nodename=e1", "state=RESUME"]], {"e2": "running"})
    act.sweep(NOW + 299)
    assert cloud.there == {"e2": "running"}
    act.sweep(NOW + 300)
    assert cloud.there == {}


def test_a_stray_of_yesterday_does_not_count_for_another_instance_of_its_name(cloud: Cloud, tmp_path: Path) -> None:
    ctld = Ctld(e2="IDLE+CLOUD+POWERED_DOWN")
    act, dummy = actions(cloud, ctld, tmp_path)
    cloud.there = {"e2": "running"}
    act.sweep(NOW)
    cloud.number = 2
    act.sweep(NOW + 86400)
    assert cloud.there == {"e2": "running"}
    cloud.there = {}
    act.sweep(NOW + 86460)
    cloud.there = {"e2": "running"}
    act.sweep(NOW + 86900)
    assert cloud.there == {"e2": "running"}


def test_one_sweep_deletes_nothing_even_without_a_time_of_grace(cloud: Cloud, tmp_path: Path) -> None:
    cloud.there = {"e2": "running"}
    act, dummy = actions(cloud, Ctld(e2="IDLE+CLOUD+POWERED_DOWN"), tmp_path)
    act.config = act.config._replace(stray_after=0)
    act.sweep(NOW)
    assert cloud.there == {"e2": "running"}
    act.sweep(NOW)
    assert cloud.there == {}


def test_a_clock_that_was_set_back_or_a_broken_note_starts_the_grace_anew(cloud: Cloud, tmp_path: Path) -> None:
    cloud.there = {"e2": "running"}
    act, dummy = actions(cloud, Ctld(e2="IDLE+CLOUD+POWERED_DOWN"), tmp_path)
    act.sweep(NOW + 9000)
    act.sweep(NOW)
    act.sweep(NOW + 299)
    (tmp_path / "stray.json").write_text('["e2"]')
    act.sweep(NOW + 9000)
    assert cloud.there == {"e2": "running"}


def test_a_copy_is_told_once_and_stays(cloud: Cloud, tmp_path: Path) -> None:
    """Somebody cloned a node: the clone has its labels, and no node of Slurm's stands for it."""
    cloud.there, cloud.copies = {"annas": "running"}, {"annas": "its metadata names e1"}
    act, said = actions(cloud, Ctld(e1="IDLE+CLOUD+POWERED_DOWN"), tmp_path)
    for later in (0, 60, 600, 90000):
        act.sweep(NOW + later)
    assert cloud.there == {"annas": "running"}
    assert said == ["nobody wants annas, and it is left: its metadata names e1"]


def test_a_cloud_that_does_not_answer_changes_nothing_in_a_sweep(cloud: Cloud, tmp_path: Path) -> None:
    cloud.broken = "no answer"
    ctld = Ctld(e1="ALLOCATED+CLOUD")
    act, dummy = actions(cloud, ctld, tmp_path)
    with pytest.raises(PowerError):
        act.sweep(NOW)
    assert ctld.told == []


def test_a_reason_is_one_short_line_that_slurm_can_show() -> None:
    text = program.reason_for("not created: a\nb [x] 'q' " + "y" * 300)
    assert text.startswith("hpcai:power:not created: a b x q yyy") and len(text) <= 180 and text.endswith("...")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"cluster": 1}, "cluster is not str"),
        ({"site": "x"}, "site is unknown"),
        ({"settings": {}}, "settings lacks zone"),
        ({"settings": {"zone": "a", "region": "b"}}, "settings has region; accepted: zone"),
        ({"groups": [{"nodes": "e1"}]}, "group 1 is no dictionary of machine, nodes, user_data"),
        ({"groups": [{"nodes": "e[1", "machine": {}, "user_data": "/u"}]}, "group 1: "),
        ({"groups": 2 * [{"nodes": "e1", "machine": {}, "user_data": "/u"}]}, "e1 is in two groups"),
        ({"groups": [{"nodes": "e1", "machine": {"cpus": 1}, "user_data": "/u"}]}, "machine of group 1 has cpus"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(more: dict[str, t.Any], said: str) -> None:
    with pytest.raises(PowerError, match="p: ") as caught:
        program.read(document(**more), "p", Cloud)
    assert said in str(caught.value)


@pytest.mark.parametrize("argv", [[], ["c"], ["resume", "c"], ["sweep", "e1", "c"], ["destroy", "e1", "c"]])
def test_a_call_without_sense_says_how_to(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(argv, Cloud) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_the_program_logs_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = document(state_dir=str(tmp_path), log=str(tmp_path / "log"))
    (tmp_path / "c").write_text(json.dumps(given))
    assert program.main(["resume", "e[1-2]", str(tmp_path / "c")], Cloud) == 0
    assert (tmp_path / "log").read_text().rstrip().endswith("resume: created e1 e2")
    assert program.main(["status", str(tmp_path / "c")], Cloud) == 0
    assert program.main(["resume", "e[1", str(tmp_path / "c")], Cloud) == 1
    assert program.main(["status", str(tmp_path / "absent")], Cloud) == 1
    capsys.readouterr()


def test_the_lab_s_cloud_says_what_is_wrong_with_its_files(tmp_path: Path) -> None:
    cloud = lab.Lab(
        {"host": "127.0.0.1", "port": 9, "ca": str(tmp_path / "ca"), "token_file": str(tmp_path / "t")}, "lab"
    )
    with pytest.raises(PowerError, match="cannot be read"):
        cloud.instances()
    (tmp_path / "t").write_text("x\n")
    with pytest.raises(PowerError, match="does not answer"):
        cloud.instances()


SHIPPED = sorted((_node_program.SOURCES / "power/providers").glob("[a-z]*.py"))


@pytest.mark.parametrize(("name", "own"), [*((path.stem, None) for path in SHIPPED), ("lab", str(LAB))])
def test_a_provider_s_file_is_a_program(name: str, own: str | None, tmp_path: Path) -> None:
    """As role slurm_power installs it, started as Slurm does: without site packages and without a terminal."""
    program, settings = str(tmp_path / "hpcai-power"), str(tmp_path / "power.json")
    options = {
        "library": str(tmp_path / "lib"),
        "program": program,
        "function": "main",
        "arguments": [settings],
        "file": own,
    }
    for file in _node_program.files(f"power.providers.{name}", {**options, "interpreter": sys.executable}):
        Path(file["path"]).parent.mkdir(parents=True, exist_ok=True)
        Path(file["path"]).write_text(file["content"])
    Path(settings).write_text(json.dumps(document(settings={})))
    argv = [sys.executable, "-IS", program, "resume", "e1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, "settings lacks" in done.stderr) == (1, True), done.stderr


def test_without_standard_streams_the_program_still_works(tmp_path: Path) -> None:
    """Slurm closes them."""
    log = program._log(str(tmp_path / "log"), "resume")
    before, sys.stderr = sys.stderr, None  # type: ignore[assignment]
    try:
        log("created e1")
    finally:
        sys.stderr = before
    assert "created e1" in (tmp_path / "log").read_text()
