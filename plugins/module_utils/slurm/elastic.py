# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that Slurm itself creates and removes, and the settings that make it do so. No I/O; private.

Which release wants what: slurm.conf(5) and the power saving and cloud guides of 22.05 to 25.05.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.node_lines import NodeError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.parse import release

Record = t.Mapping[str, t.Any]

_NUMBERS = ("sockets", "cores_per_socket", "threads_per_core", "real_memory")
_KNOWN = {"names", "gres", "features", "options", *_NUMBERS}
_PROGRAMS = {
    "resume_program": "ResumeProgram",
    "suspend_program": "SuspendProgram",
    "resume_fail_program": "ResumeFailProgram",
}
_SECONDS = {
    "suspend_time": "SuspendTime",
    "suspend_timeout": "SuspendTimeout",
    "resume_timeout": "ResumeTimeout",
    "resume_rate": "ResumeRate",
    "suspend_rate": "SuspendRate",
}
# Since then Slurm takes the addresses that nodes register with by itself, and calls the setting defunct.
_TAKES_ADDRESSES = (24, 11)
# Before, nodes that are switched off were not shown to anybody, unless this odd word asked for it.
_SHOWS = (23, 2)
# Before, a node passes messages on to nodes that it would have to look up; a node that was just made is in no DNS.
_PASSES_ADDRESSES = (23, 11)
_FLAT = "65533"


def elastic(entries: t.Iterable[Record]) -> list[dict[str, t.Any]]:
    """Describe every node that may come to be, as `node_lines` takes them; all that is wrong is said at once."""
    given = list(entries)
    wrong = [text for number, entry in enumerate(given, 1) for text in _faults(number, entry)]
    if wrong:
        raise NodeError("; ".join(wrong))
    found = [_one(name, entry) for entry in given for name in expand(str(entry["names"]))]
    names = [item["name"] for item in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise NodeError(f"{', '.join(twice)} is described more than once")
    return found


def _one(name: str, entry: Record) -> dict[str, t.Any]:
    rest = {key: entry[key] for key in ("gres", "options") if entry.get(key)}
    features = entry.get("features") or []
    names = [features] if isinstance(features, str) else list(features)
    numbers = {key: int(entry[key]) for key in _NUMBERS}
    return {"host": name, "name": name, **numbers, **rest, "features": [*names, "cloud"], "state": "CLOUD"}


def _faults(number: int, entry: Record) -> list[str]:
    name = f"entry {number} ({entry.get('names') or 'without names'})"
    unknown = sorted(set(entry) - _KNOWN)
    found = [f"{name} has {', '.join(unknown)}; accepted: {', '.join(sorted(_KNOWN))}"] if unknown else []
    try:
        found += [] if expand(str(entry.get("names") or "")) else [f"{name} names no node: names is a hostlist"]
    except HostlistError as exc:
        found.append(f"{name}: {exc}")
    bad = [key for key in _NUMBERS if not str(entry.get(key, "")).isdigit() or int(entry[key]) < 1]
    return [*found, f"{name} needs numbers above 0 for {', '.join(bad)}"] if bad else found


def settings(nodes: t.Sequence[Record], power: Record, version: str = "", base: str = "") -> dict[str, str]:
    """Return the settings of power saving; none where no node is elastic. ``base`` is SlurmctldParameters so far."""
    if not any(item.get("state") == "CLOUD" for item in nodes):
        return {}
    known = release(version) if version else (0, 0)
    wrong = [f"{key} {power.get(key)!r} is no absolute path" for key in _PROGRAMS if not _path(power.get(key))]
    wrong += [f"{key} {power.get(key)!r} is no number" for key in _SECONDS if not str(power.get(key)).isdigit()]
    if wrong:
        raise NodeError("; ".join(wrong))
    found = {word: str(power[key]) for key, word in (*_PROGRAMS.items(), *_SECONDS.items())}
    # Machines that nobody can create again are never switched off.
    static = [item["name"] for item in nodes if item.get("state") != "CLOUD"]
    if static:
        found["SuspendExcNodes"] = compress(static, unique=True)
    if known < _SHOWS:
        found["PrivateData"] = "cloud"
    if known < _TAKES_ADDRESSES:
        found["SlurmctldParameters"] = ",".join([*filter(None, [base]), "cloud_reg_addrs"])
    if known < _PASSES_ADDRESSES:
        found["TreeWidth"] = _FLAT
    return found


def _path(value: object) -> bool:
    text = str(value or "")
    return text.startswith("/") and not any(char.isspace() for char in text)
