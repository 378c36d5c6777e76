# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as a process, with a scontrol that is one, too."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import record
from ansible_collections.hpcai.gpu_cluster.plugins.modules import node_reconcile
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import Machine, documented

REASON = "hpcai:munge:key differs"


class Controller(Machine):
    """Three nodes, of which n2 has another key."""

    module = "node_reconcile"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        stand_in(self.bin / "scontrol", "scontrol_nodes.py")
        answer(self.bin / "munge", "MUNGE:abc:\n")
        self.nodes({"n1": ["IDLE", ""], "n2": ["MIXED", ""], "n3": ["IDLE+DRAIN", "ops: cable swap"]})
        for name in ("mailbox", "state"):
            (folder / name).mkdir()
        config = {"schema": 1, "mailbox": str(folder / "mailbox"), "state_dir": str(folder / "state")}
        self.config = folder / "reconcile.json"
        self.config.write_text(json.dumps(config))
        for node in ("n1", "n2", "n3"):
            self.say(node, "fail" if node == "n2" else "pass")

    def nodes(self, nodes: object) -> None:
        (self.folder / "nodes.json").write_text(json.dumps(nodes))

    def say(self, node: str, verdict: str) -> None:
        now = time.time()
        found = record("munge", node, time=now, verdict=verdict, blame="config", reason="key differs")
        letter = {"schema": 1, "node": node, "physical_host": "", "time": now, "records": [found]}
        (self.folder / "mailbox" / f"{node}.json").write_text(json.dumps(letter))

    @property
    def updates(self) -> list[str]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if line.startswith("update")]


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path)


def test_check_real_check_real(controller: Controller) -> None:
    config = str(controller.config)
    found = [controller(check, config=config, _ansible_diff=True) for check in (True, False, True, False)]
    assert [one["changed"] for one in found] == [True, True, False, False]
    check, real = found[:2]
    assert (check["drained"], check["commands"]) == (real["drained"], real["commands"])
    assert real["drained"] == {"n2": REASON}
    assert real["diff"]["before"] == {"n2": {"drained": False, "reason": ""}}
    assert real["diff"]["after"] == check["diff"]["after"] == {"n2": {"drained": True, "reason": REASON}}
    assert controller.updates == [f"update nodename=n2 state=drain reason={REASON}"]


def test_a_dry_run_of_the_configuration_is_no_change(controller: Controller) -> None:
    controller.config.write_text(json.dumps({**json.loads(controller.config.read_text()), "dry_run": True}))
    found = controller(config=str(controller.config))
    assert (found["changed"], found["drained"], controller.updates) == (False, {"n2": REASON}, [])


def test_release(controller: Controller) -> None:
    config = str(controller.config)
    controller(config=config)
    found = controller(config=config, release="n2")
    assert (found["changed"], found["released"]) == (False, [])  # a wrong key is not latched
    assert "n2" in json.loads((controller.folder / "state/latches.json").read_text())["releases"]


def test_hold(controller: Controller) -> None:
    config = str(controller.config)
    controller(config=config)
    found = [controller(check, config=config, hold="n[1-3]") for check in (True, False, True, False)]
    assert [one["changed"] for one in found] == [True, True, False, False]
    assert [one["held"] for one in found] == [{"n2": REASON}] * 4  # what a person drained is none of ours
    assert "mutually exclusive" in controller(config=config, hold="n2", release="n2")["msg"]


def test_refusals(controller: Controller) -> None:
    found = controller(config="/nowhere/reconcile.json")
    assert (found["failed"], "No nodes were reconciled: configuration /nowhere/" in found["msg"]) == (True, True)
    assert "without" in controller(config=str(controller.config), release="n[1")["msg"]
    answer(controller.bin / "scontrol", err="slurm_load_node error: no contact\n", status=1)
    found = controller(config=str(controller.config))
    assert "scontrol show node -a -o failed: exit status 1: slurm_load_node error: no contact" in found["msg"]
    controller.nodes({"n2": ["IDLE", ""]})
    stand_in(controller.bin / "scontrol", "scontrol_no_update.sh")
    found = controller(config=str(controller.config))
    assert (found["failed"], "Slurm did not drain everything: scontrol update nodename=n2" in found["msg"]) == (
        True,
        True,
    )


def test_documentation() -> None:
    options = documented(node_reconcile)
    assert options == {
        "config": {"type": "path", "default": "/etc/hpcai/reconcile.json"},
        "release": {"type": "str"},
        "hold": {"type": "str"},
    }
