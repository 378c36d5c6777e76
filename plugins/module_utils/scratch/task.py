# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module nvme_scratch does with its options; without AnsibleModule, private."""

from __future__ import annotations

import re
import socket
import time
import typing as t
from dataclasses import asdict, fields
from pathlib import PurePosixPath

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import validate_seconds
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply_run import Done, Run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Plan, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan import plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.record import Told, conclude
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.remove import remove
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.request import RequestError, parse

_TEXTS = {"type": "list", "elements": "str", "default": []}
_DIRECTORY = {
    "path": {"type": "str", "required": True},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
    "mode": {"type": "str", "default": "1777"},
}
# The module's options; those that are fields of Request go there.
SPEC: Json = {
    "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
    "destroy": {"type": "bool", "default": False},
    "mount": {"type": "path", "default": "/mnt/resource_nvme"},
    "name": {"type": "str", "default": "scratch"},
    "models": {**_TEXTS, "default": ["Microsoft NVMe Direct Disk", "Microsoft NVMe Direct Disk v2"]},
    "ids": _TEXTS,
    "unused": {"type": "bool", "default": False},
    "count": {"type": "int"},
    "fewer": {"type": "str", "default": "refuse", "choices": ["refuse", "allow"]},
    "wipe": _TEXTS,
    "rebuild": {"type": "bool", "default": False},
    "filesystem": {"type": "str", "default": "xfs", "choices": ["xfs", "ext4"]},
    "chunk": {"type": "int"},
    "options": {**_TEXTS, "default": ["noatime"]},
    "mode": {"type": "str", "default": "1777"},
    "directories": {"type": "list", "elements": "dict", "default": [], "options": _DIRECTORY},
    "adopt": {"type": "list", "elements": "path", "default": ["/nvme"]},
    "fallback": {"type": "path"},
    "wait": {"type": "float", "default": 0},
    "node": {"type": "str"},
    "expect": {"type": "list", "elements": "dict", "default": []},
    "profile": {"type": "str"},
    "run": {"type": "str"},
}


def perform(params: t.Mapping[str, t.Any], dry: bool) -> Json:
    """Return the result of the module."""
    begin = time.time()
    for expectation in params["expect"]:
        validate_expectation(expectation)
    validate_seconds("wait", params["wait"], least=0)
    absent = params["state"] == "absent"
    if params["destroy"] and not absent:
        raise RequestError("destroy erases scratch for good and is only for state absent")
    request = parse({item.name: params[item.name] for item in fields(Request) if item.name in params})

    def planner(machine: Machine, wanted: Request, boot: bool) -> Plan:
        return remove(machine, wanted, params["destroy"]) if absent else plan(machine, wanted, boot)

    run = Run(request, wait=0.0 if absent else params["wait"], planner=planner)
    done = run.dry() if dry else run.bring()
    node = params["node"] or socket.gethostname().split(".")[0]
    told = Told(node, [] if absent else params["expect"], params["profile"], params["run"])
    settings = boot_settings(params, request, done.last.source)
    return result(done, told, settings, mount_units(request), begin)


def boot_settings(params: t.Mapping[str, t.Any], request: Request, source: str) -> Json:
    """Return what the boot program needs to want the same.

    It never wipes. Where the disks are mounted by somebody else it waits for that, even when they come back blank.
    """
    wanted = {name: value for name, value in asdict(request).items() if name != "wipe"}
    about = {name: params[name] for name in ("wait", "expect", "profile")}
    return {"request": wanted, "adopted": source == "adopted", **about}


def mount_units(request: Request) -> list[str]:
    """Return the units that may mount what our mount lies on, or what it shows; most of them do not exist.

    A filesystem that is mounted at /mnt later than scratch at /mnt/resource_nvme would hide it.
    """
    bases = [base for base in (request.fallback, *request.adopt) if base]
    paths = [
        *PurePosixPath(request.mount).parents,
        *(p for base in bases for p in (PurePosixPath(base), *PurePosixPath(base).parents)),
    ]
    return list(dict.fromkeys(f"{_escaped(str(path))}.mount" for path in paths if str(path) != "/"))


def _escaped(path: str) -> str:
    """Return a path as systemd-escape --path does."""
    plain = re.sub(
        r"[^A-Za-z0-9:_./]", lambda match: "".join(f"\\x{byte:02x}" for byte in match[0].encode()), path.strip("/")
    )
    return re.sub(r"^\.", r"\\x2e", plain).replace("/", "-")


def result(done: Done, told: Told, settings: Json, after: list[str], begin: float) -> Json:
    """Return what the module returns of a run. A step that failed may have changed something: its commands tell."""
    last = done.last
    return {
        "changed": bool(done.commands),
        "settled": not done.commands and not done.problem,
        "check": conclude(last, done.problem, told, begin),
        "path": last.path or None,
        "source": last.source,
        "disks": list(last.disks),
        "array": last.array,
        "findings": [asdict(finding) for finding in last.findings],
        "commands": done.commands,
        "settings": settings,
        "after": after,
        "diff": {"before": done.first.before, "after": done.after},
    }
