# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the running kernel has, what it shall have, and what it had before us. Pure, private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import Finding, Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.files import SYSCTL, Settings

HUGEPAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
SLOTS = "/sys/module/sunrpc/parameters/tcp_max_slot_table_entries"
NFS = "NFS read-ahead (KiB)"


class Value(t.NamedTuple):
    """A setting of the running kernel and the files in /proc and /sys that hold it."""

    name: str
    paths: t.Sequence[str]
    wanted: str


class Write(t.NamedTuple):
    name: str
    path: str
    before: str
    after: str


class Plan(t.NamedTuple):
    """``record`` is what has to be noted before the writes."""

    writes: list[Write]
    record: Json
    findings: list[Finding]


def place(name: str) -> str:
    """Return the file of a sysctl; as sysctl(8), a name whose first separator is a slash is a path already."""
    first = re.search(r"[./]", name)
    swap = str.maketrans("./", "/.")
    return f"/proc/sys/{name.translate(swap) if first and first.group() == '.' else name}"


def normal(text: str) -> str:
    """Read a value as the kernel prints it; of several words the one in brackets holds."""
    chosen = re.search(r"\[([^]]+)\]", text)
    return chosen.group(1) if chosen else " ".join(text.split())


def values(settings: Settings, nfs: t.Sequence[str]) -> list[Value]:
    """Return the values that belong to the settings; ``nfs`` are the files of the NFS mounts that are there now."""
    found = [Value(name, [place(name)], normal(str(value))) for name, value in sorted(settings.sysctl.items())]
    if settings.transparent_hugepages:
        found.append(Value("transparent huge pages", [HUGEPAGES], settings.transparent_hugepages))
    if settings.sunrpc_slots:
        found.append(Value("sunrpc slots", [SLOTS], str(settings.sunrpc_slots)))
    if settings.nfs_readahead_kb:
        found.append(Value(NFS, list(nfs), str(settings.nfs_readahead_kb)))
    return found


def outranked(later: t.Mapping[str, str], wanted: t.Mapping[str, str]) -> tuple[set[str], list[Finding]]:
    """Find settings for which a file that is read after ours says something else: the administrator's word."""
    said: dict[str, tuple[str, str]] = {}
    for path, text in later.items():
        for line in text.splitlines():
            match = re.match(r"\s*-?([^#;=\s]+)\s*=\s*(.*?)\s*$", line)
            if match:
                said[place(match.group(1))] = (path, normal(match.group(2)))
    lost, findings = set(), []
    for name, value in sorted(wanted.items()):
        path, other = said.get(place(name), ("", normal(str(value))))
        if other != normal(str(value)):
            lost.add(name)
            text = f"{path} says {other}, is read after {SYSCTL} and wins; the role's {value} is not set"
            findings.append(Finding("warn", name, text))
    return lost, findings


def plan(wanted: t.Sequence[Value], now: t.Mapping[str, str], record: t.Mapping[str, t.Any]) -> Plan:
    """Decide what to write; ``now`` holds the files that exist, ``record`` what was there before us."""
    writes, noted, findings = [], {}, []
    for value in wanted:
        there = [path for path in value.paths if path in now]
        if value.paths and not there:
            text = "the running kernel does not have it; it is set when the kernel gets it"
            findings.append(Finding("info", value.name, text))
        todo = [Write(value.name, path, now[path], value.wanted) for path in there if now[path] != value.wanted]
        earlier = record.get(value.name)
        writes += todo
        if todo or earlier:
            before = earlier["before"] if earlier else todo[0].before
            noted[value.name] = {"before": before, "set": value.wanted, "paths": list(value.paths)}
    names = {value.name for value in wanted}
    for name, earlier in sorted(record.items()):
        if name not in names:
            writes += restore(name, earlier, now)
    return Plan(writes, noted, findings)


def restore(name: str, earlier: t.Mapping[str, t.Any], now: t.Mapping[str, str]) -> list[Write]:
    """Give a value back; one that somebody changed since is theirs."""
    return [
        Write(name, path, now[path], earlier["before"])
        for path in earlier["paths"]
        if path in now and now[path] == earlier["set"] != earlier["before"]
    ]
