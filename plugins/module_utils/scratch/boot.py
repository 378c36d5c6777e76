# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot program of the scratch: bring it back without Ansible, and report its state."""

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

# ``boot`` brings scratch back, ``status`` prints the record of that.


RECORD = "/run/hpcai/nvme_scratch.json"
_USAGE = "usage: hpcai-scratch boot|status"
_GOOD = ("pass", "warn", "skipped", "unjudged")


def boot(settings: Json, begin: float) -> Json:
    """Bring scratch to the request in the settings and return the check record."""
    inputs = RecordInputs(node(), profile=settings.get("profile"), expect=settings.get("expect") or (), door="boot")
    request = parse(settings["request"])
    wait = float(settings.get("wait", 30))
    run_result = ScratchRun(request, boot=True, wait=wait, planner=adopt if settings.get("adopted") else plan).bring()
    return conclude(run_result.last, run_result.problem, inputs, begin)


def adopt(machine: ScratchMachine, request: ScratchRequest, boot: bool = True) -> ScratchPlan:
    """Plan for a machine whose disks somebody else mounts: until then no array is made, even of blank disks."""
    planned = plan(machine, request, boot)
    ours = planned.source == "array" and not any(action.kind == "create" for action in planned.actions)
    if planned.source == "adopted" or ours:
        return planned
    text = f"Scratch was on disks that are mounted at {' or '.join(request.adopt)}, and they are not now."
    advice = "Have them mounted there before hpcai-scratch.service starts (nvme_scratch_after), or run the role again."
    late = ScratchFinding("fail", "config", "missing", text, advice)
    reasons = [str(late), *(str(finding) for finding in planned.findings if finding.level in ("fail", "error"))]
    findings = (*planned.findings, late)
    return ScratchPlan(
        "fail", "config", " ".join(reasons), findings, before=planned.before, after=planned.before, disks=planned.disks
    )


def node() -> str:
    return socket.gethostname().split(".")[0]


def failed(text: str, begin: float, blame: str = "infra") -> Json:
    """Return the record of a run that could not read or plan the disks."""
    verdict = "error" if blame == "infra" else "fail"
    return record(CHECK, node(), time=begin, seconds=time.time() - begin, verdict=verdict, blame=blame, reason=text)


def keep(check: Json) -> None:
    """Write the record for `status` and other programs, in one step."""
    with contextlib.suppress(OSError):
        target = Path(RECORD)
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.{os.getpid()}")
        new.write_text(f"{json.dumps(check, indent=1, sort_keys=True)}\n", encoding="utf-8")
        new.replace(target)


def line(check: Json) -> str:
    """Return a record in one line for the journal."""
    context = check["context"]
    location = f" at {context['path']}" if context.get("path") else ""
    values = ", ".join(f"{m['name']}={m['value']}" for m in check["metrics"])
    return f"{CHECK}: {check['verdict']}{location} ({values or 'nothing seen'}) {check['reason']}".rstrip()


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
        # A node that cannot be read takes no jobs; the trace is for the journal.
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


# Whether a node's scratch can be used, and where its disks can be measured. Pure.


Record = t.Mapping[str, t.Any]
# Steps without which scratch cannot be used. Others, such as a directory's mode, keep no job from using it.
_NEEDED = ("mdadm", "mkfs.ext4", "mkfs.xfs", "mount", "wipefs")
_BAD = ("fail", "error")
# Elsewhere than on the disks a machine type's limits for them mean nothing.
_ON_DISKS = ("array", "adopted")


def pending(result: Record) -> str:
    """Return the reason for a node on which nvme_scratch would change something."""
    steps = "; ".join(" ".join(map(str, command)) for command in result["commands"][:3])
    more = len(result["commands"]) - 3
    also = f" and {more} more" if more > 0 else ""
    return f"scratch is not as it should be: the role nvme_scratch would run {steps}{also}"


def use(result: Record) -> dict[str, t.Any]:
    """Judge the result of nvme_scratch in check mode.

    Its record describes the node after its commands; without them a node that lacks scratch is not fit.
    """
    check = dict(result["check"])
    # A remount changes options of what is there.
    changes = {command[0] for command in result["commands"] if not ",".join(command).startswith("mount,-o,remount,")}
    if changes & set(_NEEDED) and check["verdict"] not in _BAD:
        check.update({"verdict": "fail", "class": "config", "reason": pending(result)})
    stands = check["verdict"] not in (*_BAD, "skipped") and result["source"] in _ON_DISKS and result["path"]
    skipped = None if stands else _skipped(check, _absent(check, result))
    return {"check": check, "path": result["path"] if stands else None, "skipped": skipped}


def _absent(check: Record, result: Record) -> str:
    if check["reason"]:
        return f"no scratch on local disks: {check['reason']}"
    return f"no scratch on local disks: it is at {result['path']}" if result["path"] else "no scratch on local disks"


def _skipped(check: Record, reason: str) -> dict[str, t.Any]:
    """Return a skipped record of storage_bandwidth for the same node and time."""
    blank: dict[str, t.Any] = {
        "verdict": "skipped",
        "class": None,
        "reason": reason,
        "metrics": [],
        "scope": {},
        "evidence": "",
    }
    return {**check, **blank, "check": "storage_bandwidth", "context": {**check["context"], "tool": "fio"}}
