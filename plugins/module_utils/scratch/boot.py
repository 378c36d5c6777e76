# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot program of the scratch: bring it back without Ansible, and tell where it stands."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
import traceback
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply import ApplyError, ScratchRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.block_device import ScratchReadError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    ScratchFinding,
    ScratchMachine,
    ScratchPlan,
    ScratchRequest,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.module import (
    CHECK,
    RecordInputs,
    conclude,
    parse,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan import plan

# Bring the NVMe scratch back at boot, without Ansible: ``boot`` does it, ``status`` tells how it went.


RECORD = "/run/hpcai/nvme_scratch.json"
_USAGE = "usage: hpcai-scratch boot|status"
_GOOD = ("pass", "warn", "skipped", "unjudged")


def boot(settings: Json, begin: float) -> Json:
    """Have scratch as the settings want it and return the check record."""
    told = RecordInputs(node(), profile=settings.get("profile"), expect=settings.get("expect") or (), door="boot")
    request = parse(settings["request"])
    wait = float(settings.get("wait", 30))
    done = ScratchRun(request, boot=True, wait=wait, planner=adopt if settings.get("adopted") else plan).bring()
    return conclude(done.last, done.problem, told, begin)


def adopt(machine: ScratchMachine, request: ScratchRequest, boot: bool = True) -> ScratchPlan:
    """Plan for a machine whose disks somebody else mounts: where that is late, nothing may be made of blank disks."""
    found = plan(machine, request, boot)
    ours = found.source == "array" and not any(action.kind == "create" for action in found.actions)
    if found.source == "adopted" or ours:
        return found
    text = f"Scratch was on disks that are mounted at {' or '.join(request.adopt)}, and they are not now."
    advice = "Have them mounted there before hpcai-scratch.service starts (nvme_scratch_after), or run the role again."
    late = ScratchFinding("fail", "config", "missing", text, advice)
    told = [str(late), *(str(one) for one in found.findings if one.level in ("fail", "error"))]
    known = (*found.findings, late)
    return ScratchPlan(
        "fail", "config", " ".join(told), known, before=found.before, after=found.before, disks=found.disks
    )


def node() -> str:
    return socket.gethostname().split(".")[0]


def failed(text: str, begin: float, blame: str = "infra") -> Json:
    """Return the record of a run that could not say anything about the disks."""
    verdict = "error" if blame == "infra" else "fail"
    return record(CHECK, node(), time=begin, seconds=time.time() - begin, verdict=verdict, blame=blame, reason=text)


def keep(check: Json) -> None:
    """Leave the record where `status` and other programs find it, whole at every moment."""
    with contextlib.suppress(OSError):
        target = Path(RECORD)
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.{os.getpid()}")
        new.write_text(f"{json.dumps(check, indent=1, sort_keys=True)}\n", encoding="utf-8")
        new.replace(target)


def line(check: Json) -> str:
    """Return a record in one line for the journal."""
    context = check["context"]
    where = f" at {context['path']}" if context.get("path") else ""
    values = ", ".join(f"{m['name']}={m['value']}" for m in check["metrics"])
    return f"{CHECK}: {check['verdict']}{where} ({values or 'nothing seen'}) {check['reason']}".rstrip()


def main(arguments: t.Sequence[str]) -> int:
    """``boot|status SETTINGS.json``; returns 1 for the verdicts fail and error."""
    event = arguments[0] if arguments else ""
    if event not in ("boot", "status") or len(arguments) != 2:
        sys.stderr.write(f"{_USAGE}\n")
        return 2
    check = _status() if event == "status" else _boot(arguments[1])
    sys.stdout.write(f"{json.dumps(check, indent=1, sort_keys=True) if event == 'status' else line(check)}\n")
    return 0 if check["verdict"] in _GOOD else 1


def _boot(path: str) -> Json:
    begin = time.time()
    # A run that is cut off must not leave the record of the one before.
    with contextlib.suppress(OSError):
        Path(RECORD).unlink()
    try:
        check = boot(json.loads(Path(path).read_text(encoding="utf-8")), begin)
    except ApplyError as exc:
        check = failed(str(exc), begin, exc.blame)
    except ScratchReadError as exc:
        check = failed(f"the machine cannot be read: {exc}", begin)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        # A node that is not understood takes no jobs; the trace says where to look.
        traceback.print_exc()
        check = failed(f"{path} or this machine cannot be read: {type(exc).__name__}: {exc}", begin, "config")
    keep(check)
    return check


def _status() -> Json:
    try:
        return t.cast(Json, json.loads(Path(RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError) as exc:
        return failed(
            f"there is no record of this boot in {RECORD} ({exc}); systemctl start hpcai-scratch", time.time()
        )


# Whether a node's scratch stands, and where its disks can be measured. Pure; private.


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
