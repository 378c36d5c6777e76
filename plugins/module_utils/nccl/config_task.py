# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module nccl_config does with its options. Private."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import Module
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import MARK, Change, Finding, Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import conf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.topology import TopologyError, generate
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.host import unit_exists

MOUNTS = "/etc/enroot/mounts.d/60-hpcai-nccl.fstab"
# Azure's HPC images: a script of theirs writes /etc/nccl.conf at every boot.
IMAGE_UNIT = "sku-customizations.service"
COPY = "/etc/hpcai/nccl.conf"
DROPIN = f"/etc/systemd/system/{IMAGE_UNIT}.d/hpcai-nccl-conf.conf"
_HEAD = f"# {MARK}, role node_tuning. Changes made here are lost.\n"
_LINK = Finding("warn", conf.PATH, "is a link and stays as it is. Make it a file to have the role's lines")
Text = t.Dict[str, t.Union[str, None]]


class Topology(t.NamedTuple):
    """The file that jobs shall use, empty if there is none, and what to write there, if it is ours."""

    path: str
    content: str | None
    findings: list[Finding]


def topology(path: str | None, profile: t.Mapping[str, t.Any]) -> Topology:
    """Use the file that is there; make it where there is none or only an older one of ours."""
    if not path:
        return Topology("", None, [])
    place = Path(path)
    if place.exists() and MARK not in place.read_text(encoding="utf-8", errors="replace"):
        return Topology(path, None, [])
    try:
        return Topology(path, generate(profile), [])
    except TopologyError as exc:
        text = f"is not on this host and cannot be made ({exc}); NCCL looks for itself"
        return Topology("", None, [Finding("warn", path, text)])


def usable(variables: t.Mapping[str, t.Any], given: Topology) -> tuple[dict[str, str], list[Finding]]:
    """Leave out what is null, and files that are not there: NCCL would end for them."""
    every = {**({"NCCL_TOPO_FILE": given.path} if given.path else {}), **variables}
    wanted = {name: str(value) for name, value in every.items() if value is not None}
    findings = []
    for name in conf.FILES:
        path = wanted.get(name, "")
        if path and path != given.path and not Path(path).is_file():
            findings.append(Finding("warn", name, f"{wanted.pop(name)} is not on this host; the variable is left out"))
    return wanted, findings


def same_file(one: str, other: str) -> bool:
    """Azure's nccl.conf names a link to the file that the profile names."""
    return os.path.realpath(one) == os.path.realpath(other)


def wanted_files(params: t.Mapping[str, t.Any], given: Topology, text: str | None, ours: t.Mapping[str, str]) -> Text:
    """Return the files that are wholly ours."""
    found = conf.effective(text or "")
    shown = [path for path in (given.path, *(found.get(name) for name in conf.FILES)) if path]
    shown += [conf.PATH] if text else []
    mounts = _HEAD + conf.mounts(shown) if params["containers"] and params["state"] == "present" and shown else None
    again = bool(ours) and unit_exists(IMAGE_UNIT)
    files: Text = {
        MOUNTS: mounts,
        COPY: conf.block(ours) if again else None,
        DROPIN: _HEAD + conf.dropin(COPY) if again else None,
    }
    return {**files, **({given.path: given.content} if given.content else {})}


def perform(module: Module, params: t.Mapping[str, t.Any]) -> Json:
    """Return the result of the module."""
    present = params["state"] == "present"
    record = owned.load(params["record"])
    given = topology(params["topology_file"] if present else None, params["machine"])
    variables, findings = usable(params["variables"] if present else {}, given)
    place = Path(conf.PATH)
    content = place.read_bytes() if place.is_file() else None
    before = None if content is None else conf.decode(content)
    after, ours, remarks = conf.merge(before, variables, same_file)
    if after != before and place.is_symlink():
        remarks, after, ours = [*remarks, _LINK], before, {}
    files = wanted_files(params, given, after, ours)
    gone: Text = {path: None for path in record.get("files", []) if path not in files}
    changes, others = owned.plan({**files, **gone})
    if after != before:
        changes.append(Change(conf.PATH, content, after))
    record["files"] = [given.path] if given.content else []
    if not module.check_mode:
        _apply(module, changes, record, params["record"])
    every = given.findings + findings + (remarks if present else []) + others
    return {
        "changed": bool(changes),
        "findings": owned.told(every),
        "files": [one.path for one in changes],
        "topology_file": given.path or None,
        "variables": conf.effective(after or ""),
        "diff": owned.differences(changes),
    }


def _apply(module: Module, changes: t.Sequence[Change], record: Json, path: str) -> None:
    owned.note_directories(changes, record)
    owned.save(path, record)
    place = Path(conf.PATH)
    mode = f"{place.stat().st_mode & 0o777:04o}" if place.exists() else "0644"
    owned.apply(module, changes, record, {conf.PATH: mode})
    if any(one.path == DROPIN for one in changes):
        run(["systemctl", "daemon-reload"], 120)
    owned.save(path, record)
