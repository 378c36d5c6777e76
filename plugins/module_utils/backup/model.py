# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups of Slurm as values: which there are, which may be restored; and the number of the next job in a state."""

from __future__ import annotations

import re
import struct
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import (
    Release,
    VersionError,
    numbers,
    upstream,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import plan

SCHEMA = 1
PARTS = ("accounting", "controller")
DAEMON = {"accounting": "slurmdbd", "controller": "slurmctld"}
REPLACED = "-replaced"  # what a restore put beside; never counted, never removed
_NAME = re.compile(r"(accounting|controller)-\d{8}T\d{6}Z(-replaced)?")
CLUSTER = re.compile(r"[A-Za-z0-9_.-]+")

Manifest = t.Dict[str, t.Any]


class BackupError(Exception):
    """No backup, or none that can be restored; the text is fit for the user."""


def set_name(part: str, stamp: str, replaced: bool = False) -> str:
    return f"{part}-{stamp}{REPLACED if replaced else ''}"


def is_set(name: str, part: str) -> bool:
    match = _NAME.fullmatch(name)
    return bool(match and match.group(1) == part)


def surplus(names: t.Iterable[str], part: str, keep: int) -> list[str]:
    """Return the oldest backups beyond ``keep``; what restores put beside is not among them. 0 keeps all."""
    own = sorted(name for name in names if is_set(name, part) and not name.endswith(REPLACED))
    return own[:-keep] if keep else []


def choose(manifests: t.Sequence[Manifest], wanted: str, part: str, directory: str) -> Manifest:
    """Return the backup of a name, or the newest; one that a restore put beside is never the newest."""
    names = [manifest["name"] for manifest in manifests]
    if wanted == "latest":
        plain = [manifest for manifest in manifests if not manifest["name"].endswith(REPLACED)]
        if plain:
            return max(plain, key=lambda manifest: str(manifest["name"]))
    for manifest in manifests:
        if manifest["name"] == wanted:
            return manifest
    raise BackupError(
        f"{directory} has no backup {wanted!r} of part {part}; there are: {', '.join(sorted(names)) or 'none'}"
    )


def unreadable(manifest: Manifest, part: str, cluster: str, installed: str) -> str:
    """Say why the installed daemon of this cluster cannot take a backup over; empty when it can."""
    daemon = DAEMON[part]
    if manifest.get("schema") != SCHEMA or manifest.get("part") != part:
        return (
            f"{manifest.get('name')} is of another form: schema {manifest.get('schema')}, part {manifest.get('part')}"
        )
    if manifest["cluster"] != cluster:
        return f"{manifest['name']} is of cluster {manifest['cluster']!r}, and this is {cluster!r}"
    try:
        made: Release = numbers(manifest["version"])[:2]
        now: Release = numbers(installed)[:2]
    except VersionError as exc:
        return f"versions cannot be compared: {exc}"
    if made > now:
        return (
            f"{manifest['name']} was made with {daemon} {upstream(manifest['version'])}, and {upstream(installed)} is"
            " installed, which cannot read what a newer release wrote: install that release first"
        )
    problem = "" if made == now else plan.problem(manifest["version"], installed)
    if problem:
        return f"{manifest['name']} was made with {daemon} {upstream(manifest['version'])}: {problem}"
    return ""


# The head of job_state: a text with its length, protocol, time, and the number of the next job, as load_all_job_state()
# and dump_all_job_state() of slurmctld's job_mgr.c have it. All integers are big-endian.

_MARK = b"PROTOCOL_VERSION\0"
_HEAD = struct.Struct(f">I{len(_MARK)}sHQI")
_LARGEST = 0x03FF0000  # Slurm's default of MaxJobId; a larger number in a state is ignored


def next_job(state: bytes) -> int:
    """Return the number of the next job that a state has; raises BackupError for another form."""
    if len(state) >= _HEAD.size:
        length, mark, dummy, dummy, number = _HEAD.unpack_from(state)
        if length == len(_MARK) and mark == _MARK:
            return int(number)
    raise BackupError("job_state does not begin as the one of Slurm 22.05 and later does")


def with_next_job(state: bytes, at_least: int) -> bytes:
    """Return the state with a number of at least that: numbers of jobs never come twice."""
    if next_job(state) >= at_least:
        return state
    if at_least > _LARGEST:
        raise BackupError(f"the next job would have number {at_least}, and MaxJobId is {_LARGEST} by default")
    return state[: _HEAD.size - 4] + struct.pack(">I", at_least) + state[_HEAD.size :]
