# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of slurm.conf and gres.conf from what is known about the machines. No I/O; private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand

_MEMORY_STEP = 100  # MB: a new kernel that keeps some MB more for itself must not change the node line
_FIELDS = (
    ("sockets", "Sockets"),
    ("cores_per_socket", "CoresPerSocket"),
    ("threads_per_core", "ThreadsPerCore"),
    ("real_memory", "RealMemory"),
    ("gres", "Gres"),
    ("features", "Features"),
)
_FACTS = {
    "sockets": "processor_count",
    "cores_per_socket": "processor_cores",
    "threads_per_core": "processor_threads_per_core",
}
_KNOWN = {"address", "name", "options", *(field for field, dummy in _FIELDS)}


class NodeError(ValueError):
    """A node cannot be described; the text is fit for the user."""


def node(host: str, facts: t.Mapping[str, t.Any], override: t.Mapping[str, t.Any], headroom: float) -> dict[str, t.Any]:
    """Describe one machine: its facts, less some memory for the system, under what the inventory says."""
    unknown = sorted(set(override) - _KNOWN)
    if unknown:
        raise NodeError(f"slurm_node of {host} has {', '.join(unknown)}; accepted: {', '.join(sorted(_KNOWN))}")
    found: dict[str, t.Any] = {"host": host, "name": facts.get("hostname", host.split(".")[0])}
    if "memtotal_mb" in facts:
        usable = int(facts["memtotal_mb"] * (1 - headroom))
        found["real_memory"] = max(usable // _MEMORY_STEP * _MEMORY_STEP, 1)
    found.update({field: facts[fact] for field, fact in _FACTS.items() if fact in facts})
    found.update(override)
    missing = [field for field in (*_FACTS, "real_memory") if field not in found]
    if missing:
        raise NodeError(
            f"{host} has no facts for {', '.join(missing)}: gather facts on it in this run, or set slurm_node for it"
        )
    return found


def node_lines(nodes: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """One line per kind of node, in the order in which the kinds first appear."""
    kinds: dict[str, list[t.Mapping[str, t.Any]]] = {}
    for item in nodes:
        parts = [f"{label}={value(item[field])}" for field, label in _FIELDS if item.get(field)]
        parts += [f"{key}={value(text)}" for key, text in item.get("options", {}).items()]
        parts += [f"State={item.get('state', 'UNKNOWN')}", "addressed" if item.get("address") else ""]
        kinds.setdefault(" ".join(parts), []).append(item)
    lines = []
    for key, members in kinds.items():
        line = f"NodeName={compress([m['name'] for m in members])}"
        if key.endswith(" addressed"):
            line += f" NodeAddr={compress([m['address'] for m in members])}"
        lines.append(f"{line} {key.rsplit(' ', 1)[0]}")
    return lines


def partition_lines(
    partitions: t.Sequence[t.Mapping[str, t.Any]], nodes: t.Sequence[t.Mapping[str, t.Any]]
) -> list[str]:
    """One line per partition; its members are inventory hosts, Slurm names or hostlists of either, or ``ALL``."""
    names = {item["host"]: item["name"] for item in nodes}
    lines = []
    for part in partitions:
        wanted = part["nodes"]
        texts = [wanted] if isinstance(wanted, str) else list(wanted)
        members = [names.get(name, name) for text in texts for name in expand(text)]
        line = f"PartitionName={part['name']} Nodes={compress(members, unique=True)}"
        line += f" Default={value(bool(part.get('default', False)))}"
        line += f" MaxTime={part['max_time']}" if part.get("max_time") else ""
        options = {"State": "UP", **part.get("options", {})}
        lines.append(" ".join([line, *(f"{key}={value(text)}" for key, text in options.items())]))
    return lines


def setting_lines(base: t.Mapping[str, t.Any], extra: t.Mapping[str, t.Any]) -> list[str]:
    """``Name=value`` lines; what ``extra`` names, in whatever case, is left out of ``base``; empty values go."""
    mine = {key.lower() for key in extra}
    kept = {key: item for key, item in base.items() if key.lower() not in mine}
    lines: list[str] = []
    for key, item in [*kept.items(), *extra.items()]:
        several = item if key.lower() == "slurmctldhost" and isinstance(item, (list, tuple)) else [item]
        lines += [f"{key}={value(one)}" for one in several if one is not None and value(one) != ""]
    return lines


def gres_lines(entries: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Lines of gres.conf; each entry is a mapping of gres.conf's own names, ``nodes`` may be a list."""
    lines = []
    for entry in entries:
        fields = {key.lower(): item for key, item in entry.items()}
        nodes = fields.pop("nodes", fields.pop("nodename", []))
        names = [nodes] if isinstance(nodes, str) else list(nodes)
        parts = [f"NodeName={compress([n for text in names for n in expand(text)])}"] if names else []
        order = {"name": "Name", "type": "Type", "file": "File", "count": "Count", "autodetect": "AutoDetect"}
        parts += [f"{label}={value(fields.pop(key))}" for key, label in order.items() if fields.get(key) is not None]
        parts += [f"{key.capitalize()}={value(item)}" for key, item in fields.items() if item is not None]
        lines.append(" ".join(parts))
    return lines


def gres_names(nodes: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """The kinds that the nodes have, as accounting counts them: ``gpu`` and ``gpu:a100`` from ``gpu:a100:8``."""
    found: set[str] = set()
    for item in nodes:
        for one in filter(None, str(item.get("gres") or "").split(",")):
            parts = [part for part in one.split("(")[0].split(":") if not part[:1].isdigit()]
            found.update({parts[0], ":".join(parts[:2])})
    return sorted(found)


def memory_per_cpu(nodes: t.Sequence[t.Mapping[str, t.Any]]) -> int:
    """MB that a job gets with each CPU when it asks for none: so much that no node runs out of one before the other."""
    shares = [n["real_memory"] // (n["sockets"] * n["cores_per_socket"] * n["threads_per_core"]) for n in nodes]
    return min(shares, default=0)


def value(item: object) -> str:
    """Write one value: YES or NO, lists with commas, quotes where a blank asks for them."""
    if isinstance(item, bool):
        return "YES" if item else "NO"
    if isinstance(item, (list, tuple)):
        return ",".join(value(one) for one in item)
    text = str(item)
    return f'"{text}"' if " " in text and not text.startswith('"') else text
