# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a node's scratch stands, and where its disks can be measured. Pure; private."""

from __future__ import annotations

import typing as t

Record = t.Mapping[str, t.Any]
# Steps that stand between a job and its scratch. Others, such as a directory's mode, do not keep anybody from using it.
_NEEDED = ("mdadm", "mkfs.ext4", "mkfs.xfs", "mount", "wipefs")
_BAD = ("fail", "error")
# Elsewhere than on the disks a machine type's limits for them mean nothing.
_ON_DISKS = ("array", "adopted")


def pending(found: Record) -> str:
    """Say what nvme_scratch would do to a node on which it changes something."""
    steps = "; ".join(" ".join(map(str, command)) for command in found["commands"][:3])
    more = len(found["commands"]) - 3
    also = f" and {more} more" if more > 0 else ""
    return f"scratch is not as it should be: the role nvme_scratch would run {steps}{also}"


def use(found: Record) -> dict[str, t.Any]:
    """Judge what nvme_scratch found in check mode.

    Its record tells what the node would be like after its commands; before them a node that lacks scratch is not fit.
    """
    check = dict(found["check"])
    # A remount changes options of what is there.
    done = {command[0] for command in found["commands"] if not ",".join(command).startswith("mount,-o,remount,")}
    if done & set(_NEEDED) and check["verdict"] not in _BAD:
        check.update({"verdict": "fail", "class": "config", "reason": pending(found)})
    stands = check["verdict"] not in (*_BAD, "skipped") and found["source"] in _ON_DISKS and found["path"]
    skipped = None if stands else _skipped(check, _absent(check, found))
    return {"check": check, "path": found["path"] if stands else None, "skipped": skipped}


def _absent(check: Record, found: Record) -> str:
    if check["reason"]:
        return f"no scratch on local disks: {check['reason']}"
    return f"no scratch on local disks: it is at {found['path']}" if found["path"] else "no scratch on local disks"


def _skipped(check: Record, reason: str) -> dict[str, t.Any]:
    """Return a record of the measurement that is not made, of the same node and time."""
    blank: dict[str, t.Any] = {
        "verdict": "skipped",
        "class": None,
        "reason": reason,
        "metrics": [],
        "scope": {},
        "evidence": "",
    }
    return {**check, **blank, "check": "storage_bandwidth", "context": {**check["context"], "tool": "fio"}}
