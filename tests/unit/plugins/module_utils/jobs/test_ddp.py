# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import pwd
import signal
import typing as t
from pathlib import Path

import pytest
from patience import patience

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs import ddp
from ansible_collections.hpcai.gpu_cluster.plugins.modules import ddp_node_info

NODE: dict[str, t.Any] = {
    "torch": "2.9.0",
    "torch_problem": "",
    "python": "/shared/bin/python",
    "hostname": "c1",
    "user": "trainer",
    "cpus": 96,
    "gpus": 8,
    "missing": [],
    "script_sha256": "a" * 64,
    "unresolved": [],
    "port": 29400,
    "port_free": True,
    "jobs": [],
    "jobs_problem": "",
}
SPEC: dict[str, t.Any] = {
    "nodes": ["c1", "c2"],
    "addresses": {"c1": "c1", "c2": "10.0.0.2"},
    "endpoint": "c1:29400",
    "processes": 1,
    "python": "/shared/bin/python",
    "script": "{run}/train.py",
    "arguments": ["--steps", "10"],
    "environment": {"OMP_NUM_THREADS": 1},
    "chdir": "/shared",
    "timeout": 60,
}


def test_sound_nodes_are_not_refused() -> None:
    assert ddp.findings({"c1": NODE, "c2": {**NODE, "port_free": False}}, 8, "c1") == []


@pytest.mark.parametrize(
    "change, text",
    [
        ({"torch": "2.8.0"}, "version of PyTorch: 2.9.0 on c1; 2.8.0 on c2"),
        ({"torch": "", "torch_problem": "No module named 'torch'"}, "c2: /shared/bin/python cannot import torch"),
        ({"script_sha256": "b" * 64}, "content of the script"),
        ({"gpus": 4}, "c2: 8 processes per node are more than its 4 GPUs"),
        ({"gpus": 0, "cpus": 2}, "c2: 8 processes per node are more than its 2 CPUs"),
        ({"missing": ["/shared/data"]}, "c2: /shared/data is missing or not readable for trainer"),
        ({"unresolved": ["c1"]}, "c2: the name c1 does not resolve"),
        ({"jobs": ["7", "8"]}, "c2: Slurm has jobs there: 7, 8"),
        ({"jobs_problem": "Unable to contact slurm controller"}, "c2: Slurm does not say"),
    ],
)
def test_what_keeps_nodes_from_training_together(change: dict[str, t.Any], text: str) -> None:
    found = ddp.findings({"c1": NODE, "c2": {**NODE, **change}}, 8, "c1")
    assert any(text in line for line in found), found


def test_more_that_is_refused() -> None:
    assert "port 29400 is in use" in ddp.findings({"c1": {**NODE, "port_free": False}}, 8, "c1")[0]
    assert "c2: nothing is known" in ddp.findings({"c1": NODE, "c2": None}, 8, "c1")[0]
    assert "none of the nodes" in ddp.findings({"c1": NODE}, 8, "c9")[0]
    assert ddp.findings({"c1": {**NODE, "jobs": ["7"], "jobs_problem": "x"}}, 8, "c1", "ignore") == []


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": ["c1", "c 2"]},
        {"addresses": {"c1": "c1"}},
        {"addresses": {"c1": "c1", "c2": "-x"}},
        {"processes": 0},
        {"timeout": 0},
        {"environment": {"A B": "1"}},
    ],
)
def test_what_cannot_be_started_is_refused(change: dict[str, t.Any]) -> None:
    with pytest.raises(ddp.DdpError):
        ddp.validate({**SPEC, **change})


def test_the_unit_belongs_to_the_user_and_leaves_nothing() -> None:
    name = ddp.unit("/shared/x")
    argv = ddp.start_command("/bin/systemd-run", name, "trainer", SPEC, "/shared/x/run-1", "c2")
    assert argv[:3] == ["/bin/systemd-run", f"--unit={name}", "--uid=trainer"]
    assert "--property=KillMode=control-group" in argv
    assert argv[-4:] == ["/shared/x/run-1/ddp_node.py", "node", "/shared/x/run-1", "c2"]


def test_what_the_user_wrote_is_no_option_for_root() -> None:
    spec = {**SPEC, "python": "--uid=root"}
    argv = ddp.start_command("/bin/systemd-run", "x", "trainer", spec, "/shared/x/run-1", "c2")
    assert argv.index("--") < argv.index("--uid=root")


def test_runs_are_counted_and_completed_ones_stay(tmp_path: Path) -> None:
    programs = {"train.py": "print()"}
    texts = {**SPEC, "processes": str(SPEC["processes"]), "timeout": str(SPEC["timeout"])}
    assert ddp.prepare(tmp_path / "none", texts, programs, False, True) == (True, "run-1")
    assert ddp.prepare(tmp_path, SPEC, programs, False, True) == (True, "run-1")
    assert list(tmp_path.iterdir()) == []
    assert ddp.prepare(tmp_path, SPEC, programs, False, False) == (True, "run-1")
    assert json.loads((tmp_path / "run-1/spec.json").read_text())["environment"] == {"OMP_NUM_THREADS": "1"}
    # Somebody else's converge of the same training joins it, another training is refused.
    assert ddp.prepare(tmp_path, SPEC, programs, False, False) == (True, "run-1")
    with pytest.raises(ddp.DdpError, match="is going on with other settings"):
        ddp.prepare(tmp_path, {**SPEC, "processes": 2}, programs, False, False)
    _end(tmp_path / "run-1")
    found = ddp.wait(tmp_path, "run-1", 5)
    assert (found["state"], found["world_size"], found["seconds"]) == ("completed", 2, 4.0)
    assert found["ranks"][1]["output"] == str(tmp_path / "run-1/ranks/rank-1.txt")
    assert ddp.prepare(tmp_path, SPEC, programs, False, False) == (False, "run-1")
    assert ddp.prepare(tmp_path, SPEC, programs, True, False) == (True, "run-2")
    _end(tmp_path / "run-2", rc=1)
    assert ddp.wait(tmp_path, "run-2", 5)["state"] == "failed"
    assert ddp.prepare(tmp_path, SPEC, programs, False, False) == (True, "run-3")


def _end(run: Path, rc: int = 0) -> None:
    for number, node in enumerate(SPEC["nodes"]):
        (run / "nodes" / f"{node}.json").write_text(json.dumps({"rc": rc, "why": "", "seconds": 3.0 + number}))
        (run / "ranks" / f"rank-{number}.json").write_text(json.dumps({"rank": number, "node": node, "rc": rc}))


def test_a_failure_names_the_first_rank_and_its_last_lines(tmp_path: Path) -> None:
    ddp.prepare(tmp_path, SPEC, {}, False, False)
    run = tmp_path / "run-1"
    _end(run, rc=1)
    (run / "ranks/rank-1.txt").write_text("".join(f"line {number}\n" for number in range(100)))
    (run / "failed.json").write_text(json.dumps({"node": "c2", "rank": 1, "why": "was killed by SIGKILL", "time": 1}))
    found = ddp.wait(tmp_path, "run-1", 5)
    text = ddp.report(found, ddp.last_lines(found))
    assert text.startswith("run-1 failed: rank 1 on c2 was killed by SIGKILL. Its last lines:\nline 70\n")
    assert text.endswith("line 99")


def test_a_node_that_never_ends_is_named(tmp_path: Path) -> None:
    ddp.prepare(tmp_path, SPEC, {}, False, False)
    times = iter([0.0, 1000.0])
    found = ddp.wait(tmp_path, "run-1", 5, poll=0, clock=lambda: next(times))
    assert "never told how they ended: c1, c2" in ddp.report(found, "")


def test_a_directory_that_is_not_shared_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ddp.DdpError, match="do all nodes see the same directory"):
        ddp.read(tmp_path / "run-9")


@pytest.mark.parametrize(
    "answer, want",
    [
        ((0, "7\n7\n8\n", ""), (["7", "8"], "")),
        ((0, "", ""), ([], "")),
        ((1, "", "slurm_load_jobs error: Invalid node name specified"), ([], "")),
        ((1, "", "Unable to contact slurm controller"), ([], "Unable to contact slurm controller")),
    ],
)
def test_jobs_of_slurm(answer: tuple[int, str, str], want: tuple[list[str], str]) -> None:
    assert ddp_node_info.slurm_jobs(lambda argv: answer, "/usr/bin/squeue", "c1") == want


def test_facts_of_a_machine_without_torch(tmp_path: Path) -> None:
    params = {
        "python": "/nonexistent/python",
        "script": str(tmp_path / "train.py"),
        "paths": [str(tmp_path)],
        "addresses": ["localhost", "no-such-host.invalid"],
        "port": 0,
    }
    found = ddp_node_info.facts(params, lambda argv: (127, "", "No such file"), None)
    assert (found["torch"], found["torch_problem"]) == ("", "No such file")
    assert found["missing"] == [str(tmp_path / "train.py")]
    assert (found["unresolved"], found["port_free"]) == (["no-such-host.invalid"], True)


def test_facts_are_read_past_what_torch_prints() -> None:
    said = 'a warning\n{"torch": "2.9.0", "gpus": 8}\n'
    found = ddp_node_info._torch(lambda argv: (0, said, ""), "python")
    assert found == {"torch": "2.9.0", "gpus": 8, "torch_problem": ""}


def test_a_rank_that_failed_for_a_lost_node_is_not_all_that_is_told(tmp_path: Path) -> None:
    ddp.prepare(tmp_path, SPEC, {}, False, False)
    _end(tmp_path / "run-1", rc=1)
    (tmp_path / "run-1/nodes/c2.json").unlink()
    (tmp_path / "run-1/failed.json").write_text(json.dumps({"node": "c1", "rank": 0, "why": "ended with 1"}))
    times = iter([0.0, 1.0, 2.0, 1000.0, 1001.0])
    found = ddp.wait(tmp_path, "run-1", 5, poll=0, clock=lambda: next(times))
    assert ddp.report(found, "").endswith("ended with 1. c2 never told how it ended and may be what was lost.")


@pytest.mark.parametrize("spec", [{}, *({**SPEC, name: None} for name in ("nodes", "processes", "timeout"))])
def test_a_run_without_what_it_needs_is_refused_by_name(tmp_path: Path, spec: dict[str, t.Any]) -> None:
    with pytest.raises(ddp.DdpError, match=r"spec has no .*; needed are addresses, endpoint, nodes"):
        ddp.prepare(tmp_path, spec, {}, False, False)


@pytest.mark.parametrize("change", [{"processes": "many"}, {"timeout": "1m"}, {"environment": ["A=1"]}])
def test_a_run_with_values_of_another_kind_is_refused(tmp_path: Path, change: dict[str, t.Any]) -> None:
    with pytest.raises(ddp.DdpError, match=next(iter(change))):
        ddp.prepare(tmp_path, {**SPEC, **change}, {}, False, False)


class _Module:
    """What start_unit needs of AnsibleModule; the unit does not run yet."""

    check_mode = False

    def __init__(self, folder: Path) -> None:
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.params = {"path": str(folder), "run": "run-1", "node": "c1", "user": user}
        self.started: list[list[str]] = []

    def get_bin_path(self, name: str, required: bool) -> str:
        return f"/bin/{name}"

    def run_command(self, argv: list[str], check_rc: bool = False) -> tuple[int, str, str]:
        self.started += [argv] if check_rc else []
        return (0 if check_rc else 3), "", ""


@pytest.fixture
def impatient() -> t.Iterator[None]:
    """End a test that waits for somebody who never writes."""

    def end(*dummy: t.Any) -> None:
        raise AssertionError("it waits for the other end of a pipe")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(round(patience(5)))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("impatient")
def test_a_pipe_in_the_place_of_the_specification_is_refused_by_root(tmp_path: Path) -> None:
    module = _Module(tmp_path)
    ddp.prepare(tmp_path, SPEC, {"train.py": "print()"}, False, False)
    (tmp_path / "run-1/spec.json").unlink()
    os.mkfifo(tmp_path / "run-1/spec.json")
    with pytest.raises(ddp.DdpError, match="no regular file"):
        ddp.start_unit(module, "hpcai-ddp-x")
    assert module.started == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", ["spec.json", "nodes/c1.json", "ranks/rank-0.json", "failed.json", "../ddp.json"])
def test_a_pipe_among_the_records_of_a_run_holds_nobody(tmp_path: Path, name: str) -> None:
    """Whoever waits for the run may be root, and everything in it is the user's."""
    ddp.prepare(tmp_path, SPEC, {"train.py": "print()"}, False, False)
    _end(tmp_path / "run-1")
    path = (tmp_path / "run-1" / name).resolve() if name != "../ddp.json" else tmp_path / ddp.RECORD
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    if name == "spec.json":
        with pytest.raises(ddp.DdpError, match="not readable"):
            ddp.read(tmp_path / "run-1")
    else:
        assert ddp.wait(tmp_path, "run-1", -60)["run"] == "run-1"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_the_last_lines_are_those_of_a_file_in_the_run(tmp_path: Path, kind: str) -> None:
    """A link to a file that root alone can read had its end shown as the output of a rank."""
    (tmp_path / "secret").write_text("root:$6$secret\n")
    (tmp_path / "run-1/ranks").mkdir(parents=True)
    output = tmp_path / "run-1/ranks/rank-0.txt"
    training = {"directory": str(tmp_path / "run-1"), "failed": {"rank": 0}}
    output.write_text("a\nlast\n")
    assert ddp.last_lines(training) == "a\nlast"
    output.unlink()
    os.mkfifo(output) if kind == "pipe" else output.symlink_to(tmp_path / "secret")
    assert ddp.last_lines(training) == ""
