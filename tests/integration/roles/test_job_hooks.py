# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs that slurmd runs around jobs: three roles put theirs into the same directories through one module."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import play_here

ROOT = Path(__file__).resolve().parents[3]
# Of each role: what switches its programs on and off, and what they call.
PARTS: dict[str, tuple[dict[str, t.Any], dict[str, t.Any], str]] = {
    "node_health_check": ({}, {"node_health_check_state": "absent"}, "exec /usr/local/sbin/hpcai-node-health"),
    "enroot": ({"enroot_base_dir": "/scratch/enroot"}, {"enroot_base_dir": ""}, "10 /usr/local/sbin/hpcai-enroot"),
    "gpu_clocks": ({"gpu_clocks_when": "job"}, {"gpu_clocks_when": "boot"}, "30 /usr/local/sbin/hpcai-gpu-clocks"),
}
NAMES = {
    "node_health_check": "10-hpcai-health",
    "enroot": "50-hpcai-enroot",
    "gpu_clocks": "50-hpcai-gpu-clocks",
}
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the programs are root's")


class Node:
    """The directories of a node's prologs and epilogs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def apply(self, given: t.Mapping[str, t.Any], *options: str) -> int:
        """Run what the three roles do about their programs; return how many tasks changed something."""
        tasks = [
            {"include_role": {"name": f"hpcai.gpu_cluster.{role}", "tasks_from": "hooks"}} for role in sorted(PARTS)
        ]
        variables = {
            "job_hooks_prolog_dir": str(self.folder / "prolog.d"),
            "job_hooks_epilog_dir": str(self.folder / "epilog.d"),
            **given,
        }
        done = play_here(self.folder, tasks, variables, *options)
        changed = re.search(r"changed=(\d+)", done.stdout)
        assert changed
        return int(changed[1])

    def programs(self, event: str) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted((self.folder / f"{event}.d").glob("*"))}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def switched(on: t.Collection[str]) -> dict[str, t.Any]:
    given: dict[str, t.Any] = {}
    for role, (there, gone, dummy) in PARTS.items():
        given.update(there if role in on else gone)
    return given


def test_three_roles_share_the_directories_and_what_is_switched_off_goes(node: Node) -> None:
    everything = switched(PARTS)
    assert node.apply(everything, "--check") == 3
    assert not (node.folder / "prolog.d").exists()
    assert node.apply(everything) == 3
    assert node.apply(everything) == 0
    for event in ("prolog", "epilog"):
        programs = node.programs(event)
        assert list(programs) == ["00-hpcai", *sorted(NAMES.values())]
        for role, (dummy, dummy, calls) in PARTS.items():
            assert f"{calls} {event}" in programs[NAMES[role]]
    (node.folder / "prolog.d/20-site").write_text("#!/bin/sh\n")
    for left in ("enroot", "gpu_clocks"):
        node.apply(switched([left]))
        assert list(node.programs("prolog")) == ["00-hpcai", "20-site", NAMES[left]]
        assert list(node.programs("epilog")) == ["00-hpcai", NAMES[left]]


def test_no_other_role_writes_there() -> None:
    """The directories have one owner, whose inputs others hand on; slurm.conf names them. CycleCloud's are not ours."""
    named = re.compile(r"(prolog|epilog)\.d\b|(?<!job_hooks_)(prolog|epilog)_dir\b(?!:)")
    written = {
        path.relative_to(ROOT / "roles").parts[0]
        for path in ROOT.glob("roles/*/*/*")
        if path.is_file() and path.parent.name != "meta" and named.search(path.read_text())
    }
    assert written == {"cyclecloud_hooks", "job_hooks", "slurm"}
