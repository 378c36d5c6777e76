# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A record that tells of the future certifies nobody."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.boot import use

MOUNT = "/mnt/resource_nvme"


def found(verdict: str = "pass", reason: str = "", **changes: t.Any) -> dict[str, t.Any]:
    """A result of nvme_scratch on a node where all is well, but for the changes."""
    metrics = [metric("disks", 8, "disks")]
    context = {"tool": "mdadm", "profile": "x"}
    check = record("nvme_scratch", "n1", time=1.0, verdict=verdict, metrics=metrics, reason=reason, context=context)
    return {"check": check, "commands": [], "path": MOUNT, "source": "array", **changes}


def test_scratch_that_stands_is_measured() -> None:
    got = use(found())
    assert got == {"check": found()["check"], "path": MOUNT, "skipped": None}
    assert use(found("warn", source="adopted"))["path"] == MOUNT


@pytest.mark.parametrize(
    "commands, said",
    [
        (
            [["mdadm", "--create"], ["mark"], ["mkfs.xfs", "-m"], ["mount", "-t"]],
            "would run mdadm --create; mark; mkfs.xfs -m and 1 more",
        ),
        ([["mount", "/dev/md/scratch", MOUNT]], f"would run mount /dev/md/scratch {MOUNT}"),
    ],
)
def test_scratch_that_would_have_to_be_made_is_none(commands: list[list[str]], said: str) -> None:
    got = use(found(commands=commands))
    assert (got["check"]["verdict"], got["check"]["class"], got["path"]) == ("fail", "config", None)
    assert got["check"]["reason"].endswith(said)
    assert said in got["skipped"]["reason"]


def test_other_mount_options_keep_nobody_from_scratch() -> None:
    got = use(found(commands=[["mount", "-o", "remount,noatime", MOUNT], ["unmark"]]))
    assert (got["check"]["verdict"], got["path"]) == ("pass", MOUNT)


def test_a_directory_s_mode_keeps_nobody_from_scratch() -> None:
    got = use(found(commands=[["directory", f"{MOUNT}/tmp", "root:root", "1777"]]))
    assert (got["check"]["verdict"], got["path"]) == ("pass", MOUNT)


@pytest.mark.parametrize("verdict", ["fail", "error"])
def test_a_finding_is_kept(verdict: str) -> None:
    got = use(found(verdict, "S3 holds an LVM volume", commands=[["mount"]], path=None))
    assert got["check"]["reason"] == "S3 holds an LVM volume"
    assert (got["path"], got["skipped"]["verdict"]) == (None, "skipped")


@pytest.mark.parametrize(
    "changes, reason",
    [
        (
            {"verdict": "skipped", "reason": "in a container", "path": None},
            "no scratch on local disks: in a container",
        ),
        ({"source": "fallback", "path": "/mnt/x"}, "no scratch on local disks: it is at /mnt/x"),
        ({"source": "", "path": None}, "no scratch on local disks"),
    ],
)
def test_what_is_not_measured_says_why(changes: dict[str, t.Any], reason: str) -> None:
    got = use(found(**changes))["skipped"]
    assert (got["verdict"], got["reason"], got["metrics"], got["class"]) == ("skipped", reason, [], None)
    assert (got["check"], got["node"], got["context"]) == ("storage_bandwidth", "n1", {"tool": "fio", "profile": "x"})
    assert set(got) == set(found()["check"])
