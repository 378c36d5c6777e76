# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node applies a bundle to itself: gate, result, budget; commands are answered by a table."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import apply
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.apply import NodeHost

DIGEST = "ab" * 32


class Node:
    """A machine in a directory; slurmd is a word in it."""

    def __init__(self, root: Path) -> None:
        self.slurmd, self.enabled, self.jobs = False, False, False
        self.calls: list[str] = []
        for folder in ("etc/systemd/system", "var/log", "opt/cycle/jetpack/bin"):
            (root / folder).mkdir(parents=True)
        (root / "etc/machine-id").write_text("m1\n")
        self.host = NodeHost(str(root), self.command)
        self.bundle = root / "tmp/hpcai-node-x"
        (self.bundle / "site").mkdir(parents=True)
        (self.bundle / "manifest.json").write_text('{"budget": 50}')
        (self.bundle / "inventory.yml").write_text('{"all": {"children": {"slurm_compute": {}, "gpu": {}}}}')
        (self.bundle / "vars.yml").write_text('{"cluster_name": "lab"}')

    def command(self, argv: t.Sequence[str], timeout: float) -> Outcome:
        line = " ".join(argv)
        self.calls.append(line)
        answers = {
            "pgrep": self.jobs,
            "systemctl is-active": self.slurmd,
            "systemctl is-enabled": self.enabled,
        }
        good = next((answer for words, answer in answers.items() if line.startswith(words)), True)
        if " slurmd" in line and "is-" not in line:
            self.slurmd = "start" in line
        return Outcome(0 if good else 1, "", "", 0.0)

    def run(self, *words: str) -> int:
        return apply.main([str(self.bundle), DIGEST, *words], self.host)

    def result(self) -> dict[str, t.Any]:
        return apply.load(self.host.result)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def playbook(monkeypatch: pytest.MonkeyPatch, node: Node) -> t.Callable[..., list[float]]:
    """Have the playbook end in a given way; the list gets the seconds that it was given."""

    def prepare(rc: int | None, progress: dict[str, t.Any], said: str = "", seconds: float = 0.0) -> list[float]:
        given: list[float] = []

        def run(argv: t.Sequence[str], timeout: float, path: Path, environment: t.Mapping[str, str]) -> Outcome:
            given.append(timeout)
            node.host.progress.write_text(json.dumps(progress))
            if rc == 0:
                node.host.gate.touch()  # as node.yml does
            return Outcome(rc, said, "", seconds)

        monkeypatch.setattr(apply._process, "run_to_file", run)
        return given

    return prepare


def test_a_node_that_applied_its_bundle_is_open(node: Node, playbook: t.Any) -> None:
    given = playbook(0, {"changed": 7, "hosts": 1})
    assert node.run() == 0
    told = node.result()
    assert (told["status"], told["digest"], told["machine"], told["changed"]) == ("ok", DIGEST, "m1", 7)
    assert node.host.gate.exists()
    assert 45 < given[0] <= 50  # what the bundle says, less what went before
    assert (node.host.current / "vars.yml").is_file()
    assert not node.slurmd
    inventory = json.loads((node.host.run / "node-inventory/hosts.yml").read_text())["all"]["children"]
    assert {*inventory} == {"slurm_compute", "gpu"}
    assert "systemctl enable hpcai-node.service" in node.calls


def test_a_slurmd_whose_start_was_passed_over_is_started_and_one_that_somebody_stopped_is_not(
    node: Node, playbook: t.Any
) -> None:
    playbook(0, {"hosts": 1})
    node.enabled = True
    assert node.run() == 0
    assert node.slurmd
    node.slurmd = False  # by an administrator
    assert node.run() == node.run("--force") == 0
    assert not node.slurmd
    node.host.gate.unlink()  # a reboot, at which the gate was closed when slurmd was to start
    assert node.run("--boot") == 0
    assert node.slurmd


def test_the_second_time_it_only_opens_the_gate(node: Node, playbook: t.Any) -> None:
    given = playbook(0, {"hosts": 1})
    node.run()
    node.host.gate.unlink()  # a reboot
    before = node.host.result.read_text()
    assert node.run() == node.run("--boot") == 0
    assert node.host.gate.exists()
    assert (len(given), node.host.result.read_text()) == (1, before)
    node.run("--force", "--budget", "9")
    assert given[1] <= 9


def test_another_machine_made_from_its_disk_applies_it_again(node: Node, playbook: t.Any) -> None:
    given = playbook(0, {"hosts": 1})
    node.run()
    (node.host.root / "etc/machine-id").write_text("m2\n")
    node.run()
    assert len(given) == 2


def test_at_boot_what_was_not_applied_is_applied_by_another_unit(node: Node, playbook: t.Any) -> None:
    given = playbook(0, {"hosts": 1})
    assert node.run("--boot") == 0
    assert node.calls == ["systemctl start --no-block hpcai-node-apply.service"]
    assert not given
    assert not node.host.gate.exists()


def test_a_task_that_fails_closes_the_gate_and_is_named(node: Node, playbook: t.Any) -> None:
    node.host.run.mkdir(parents=True)
    node.host.gate.touch()
    node.slurmd = True
    jetpack = node.host.root / "opt/cycle/jetpack/bin/jetpack"
    jetpack.touch(mode=0o755)
    playbook(2, {"task": "b", "failed_task": "Mount scratch", "message": "no disk", "changed": 2, "hosts": 1})
    assert node.run() == 1
    told = node.result()
    assert (told["status"], told["failed_task"], told["message"]) == ("failed", "Mount scratch", "no disk")
    assert not node.host.gate.exists()
    assert not node.slurmd
    assert any("Mount scratch: no disk --level=error --priority=high" in line for line in node.calls)
    # What it stopped, it starts when the node is repaired; whose slurmd it is does not count.
    playbook(0, {"hosts": 1})
    node.run()
    assert node.slurmd


def test_a_slurmd_with_jobs_keeps_them(node: Node, playbook: t.Any) -> None:
    node.slurmd = node.jobs = True
    playbook(2, {"failed_task": "x"})
    assert node.run() == 1
    assert node.slurmd


def test_a_budget_that_is_over_is_late_and_nothing_goes_on(
    node: Node, playbook: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    playbook(None, {"task": "Install munge", "changed": 1})
    clock = iter([0.0, 1.0, *[50.0] * 9])
    monkeypatch.setattr(apply.time, "monotonic", lambda: next(clock))
    assert node.run() == 3
    told = node.result()
    assert (told["status"], told["failed_task"], told["seconds"]) == ("late", "Install munge", 50.0)
    assert "systemctl kill --signal=KILL hpcai-node-run.scope" in node.calls
    assert not node.host.gate.exists()


def test_a_disk_that_is_full_is_a_failure(node: Node, playbook: t.Any) -> None:
    playbook(0, {"hosts": 1})
    (node.bundle / "vars.yml").unlink()
    assert node.run() == 1
    assert "vars.yml" in node.result()["message"]
    assert not node.host.gate.exists()


def test_at_boot_nobody_waits_for_a_run_that_may_start_slurmd(node: Node, playbook: t.Any) -> None:
    playbook(0, {"hosts": 1})
    node.run()
    code = (
        f"import fcntl, sys; f = open({str(node.host.run / 'node.lock')!r}, 'a'); fcntl.lockf(f, fcntl.LOCK_EX);"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        assert node.run("--boot") == 0
        other.communicate()


def test_ansible_that_does_not_start_says_why(node: Node, playbook: t.Any) -> None:
    playbook(4, {}, "Traceback\nModuleNotFoundError: jinja2\n")
    assert node.run() == 1
    assert node.result()["message"] == "ModuleNotFoundError: jinja2"


def test_the_next_bundle_replaces_the_last(node: Node, playbook: t.Any) -> None:
    playbook(0, {"hosts": 1})
    node.run()
    apply.main([str(node.bundle), "cd" * 32], node.host)
    assert [path.name for path in (node.host.state / "bundles").iterdir()] == ["cd" * 6]
    assert node.host.current.resolve().name == "cd" * 6


@pytest.mark.parametrize(
    ("late", "rc", "progress", "status"),
    [
        (False, 0, {"hosts": 1}, "ok"),
        (False, 0, {"hosts": 0}, "failed"),
        (False, 0, {}, "failed"),
        (False, 2, {"failed_task": "x"}, "failed"),
        (False, None, {}, "failed"),
        (True, None, {"task": "x"}, "late"),
    ],
)
def test_judge(late: bool, rc: int | None, progress: dict[str, t.Any], status: str) -> None:
    told = apply.judge(late, rc, "", progress)
    assert told["status"] == status
    assert status == "ok" or told["message"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_result_that_is_no_document_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "r").write_text(text)
    assert apply.load(tmp_path / "r") == {}
    assert not apply.applied({}, "d", "m")
