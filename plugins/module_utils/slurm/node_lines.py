# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of slurm.conf and gres.conf: nodes, elastic nodes with power saving, health checks. No I/O."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError, release

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
_NUMBERS = (*_FACTS, "real_memory")
# Names, IPv4 and IPv6.
_HOSTNAME = re.compile(r"[A-Za-z0-9_:\[][A-Za-z0-9_.:\[\]-]*")
_NODE_KEYS = {"address", "name", "options", *(field for field, dummy in _FIELDS)}


class NodeError(ValueError):
    """A node cannot be described; the text is fit for the user."""


def node(
    host: str,
    facts: t.Mapping[str, t.Any],
    override: t.Mapping[str, t.Any],
    headroom: float,
    machine: t.Mapping[str, t.Any] | None = None,
) -> dict[str, t.Any]:
    """Describe one machine by its facts, less some memory for the system; what the inventory says has precedence.

    ``machine`` is what a machine type's profile says of Slurm. Its processors count where the machine has as many.
    """
    unknown = sorted(set(override) - _NODE_KEYS)
    if unknown:
        raise NodeError(f"slurm_node of {host} has {', '.join(unknown)}; accepted: {', '.join(sorted(_NODE_KEYS))}")
    description: dict[str, t.Any] = {"host": host, "name": str(facts.get("hostname", host.split(".")[0]))}
    if "memtotal_mb" in facts:
        usable = int(_number(host, "memtotal_mb", facts["memtotal_mb"]) * (1 - headroom))
        description["real_memory"] = max(usable // _MEMORY_STEP * _MEMORY_STEP, 1)
    description.update({field: facts[fact] for field, fact in _FACTS.items() if fact in facts})
    if machine:
        description.update(_of_machine(machine, facts))
    description.update(override)
    description.update(
        {
            key: _number(host, f"slurm_node.{key}" if key in override else key, description[key])
            for key in _NUMBERS
            if key in description
        }
    )
    for key in ("name", "address"):
        if key in description and not _HOSTNAME.fullmatch(str(description[key])):
            raise NodeError(f"{key} of {host} is {description[key]!r}, no name or address of a host")
    missing = [field for field in (*_FACTS, "real_memory") if field not in description]
    if missing:
        raise NodeError(
            f"{host} has no facts for {', '.join(missing)}: gather facts on it in this run, or set slurm_node for it"
        )
    return description


def _of_machine(machine: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return gres and processors of a machine type, and in ``machine`` what belongs into other lines.

    Sockets that are NUMA nodes go with a parameter of slurmd, and cores in gres.conf with such sockets.
    """
    processors = {field: machine["node"][field] for field in _FACTS if field in (machine.get("node") or {})}
    count = 1
    for field in _FACTS:
        count *= int(processors.get(field, 0))
    fits = count > 0 and str(facts.get("processor_vcpus", "")) == str(count)
    gres = [dict(entry) for entry in machine.get("gres_conf") or []]
    if not fits:
        gres = [{key: setting for key, setting in entry.items() if key != "cores"} for entry in gres]
    line: dict[str, t.Any] = {"gres": machine["gres"]} if machine.get("gres") else {}
    line.update(processors if fits else {})
    line["machine"] = {
        "gres_conf": gres,
        "slurmd_parameters": (machine.get("slurmd_parameters") or []) if fits else [],
    }
    return line


def machine_gres(nodes: t.Sequence[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Entries of gres.conf that the nodes have from their machine types, each with its nodes."""
    groups: dict[str, dict[str, t.Any]] = {}
    for node in nodes:
        for entry in (node.get("machine") or {}).get("gres_conf") or [] if node.get("gres") else []:
            key = json.dumps(entry, sort_keys=True)
            groups.setdefault(key, {"nodes": [], **entry})["nodes"].append(node["name"])
    return list(groups.values())


def machine_parameters(nodes: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """SlurmdParameters that the nodes need for how their machine types are described."""
    words = (word for node in nodes for word in (node.get("machine") or {}).get("slurmd_parameters") or [])
    return list(dict.fromkeys(str(word) for word in words))


def _number(host: str, what: str, value: object) -> int:
    """Return a number that a machine told of itself, or an inventory of it: a text could be more than a number."""
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise NodeError(f"{what} of {host} is {value!r}; accepted: a whole number above 0")
    return int(text)


def node_lines(nodes: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """One line per kind of node, in the order in which the kinds first appear."""
    kinds: dict[str, list[t.Mapping[str, t.Any]]] = {}
    for node in nodes:
        parts = [f"{label}={value(node[field])}" for field, label in _FIELDS if node.get(field)]
        parts += [f"{key}={value(text)}" for key, text in node.get("options", {}).items()]
        parts += [f"State={node.get('state', 'UNKNOWN')}", "addressed" if node.get("address") else ""]
        kinds.setdefault(" ".join(parts), []).append(node)
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
    names = {node["host"]: node["name"] for node in nodes}
    lines = []
    for partition in partitions:
        hostlists = partition["nodes"]
        texts = [hostlists] if isinstance(hostlists, str) else list(hostlists)
        members = [names.get(name, name) for text in texts for name in expand(text)]
        line = f"PartitionName={value(partition['name'])} Nodes={compress(members, unique=True)}"
        line += f" Default={value(bool(partition.get('default', False)))}"
        line += f" MaxTime={value(partition['max_time'])}" if partition.get("max_time") else ""
        options = {"State": "UP", **partition.get("options", {})}
        lines.append(" ".join([line, *(f"{key}={value(text)}" for key, text in options.items())]))
    return lines


def setting_lines(base: t.Mapping[str, t.Any], extra: t.Mapping[str, t.Any]) -> list[str]:
    """Return ``Name=value`` lines; ``extra`` overrides ``base``, names in any case; empty values are left out."""
    overridden = {key.lower() for key in extra}
    remaining = {key: setting for key, setting in base.items() if key.lower() not in overridden}
    lines: list[str] = []
    for key, setting in [*remaining.items(), *extra.items()]:
        values = setting if key.lower() == "slurmctldhost" and isinstance(setting, (list, tuple)) else [setting]
        lines += [f"{key}={value(entry)}" for entry in values if entry is not None and value(entry) != ""]
    return lines


def gres_lines(entries: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Lines of gres.conf; each entry is a mapping of gres.conf's own names, ``nodes`` may be a list."""
    lines = []
    for entry in entries:
        fields = {key.lower(): setting for key, setting in entry.items()}
        nodes = fields.pop("nodes", fields.pop("nodename", []))
        names = [nodes] if isinstance(nodes, str) else list(nodes)
        parts = [f"NodeName={compress([n for text in names for n in expand(text)])}"] if names else []
        order = {"name": "Name", "type": "Type", "file": "File", "count": "Count", "autodetect": "AutoDetect"}
        parts += [f"{label}={value(fields.pop(key))}" for key, label in order.items() if fields.get(key) is not None]
        parts += [f"{key.capitalize()}={value(setting)}" for key, setting in fields.items() if setting is not None]
        lines.append(" ".join(parts))
    return lines


def gres_names(nodes: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """The kinds that the nodes have, as accounting counts them: ``gpu`` and ``gpu:a100`` from ``gpu:a100:8``."""
    kinds: set[str] = set()
    for node in nodes:
        for resource in filter(None, str(node.get("gres") or "").split(",")):
            parts = [part for part in resource.split("(")[0].split(":") if not part[:1].isdigit()]
            if not parts:
                raise NodeError(f"{node.get('host') or node.get('name')}: gres {resource!r} has no name, such as gpu:8")
            kinds.update({parts[0], ":".join(parts[:2])})
    return sorted(kinds)


def memory_per_cpu(nodes: t.Sequence[t.Mapping[str, t.Any]]) -> int:
    """Return the MB of memory for each CPU of a job that requests none: the least share of a CPU over all nodes."""
    shares = [n["real_memory"] // (n["sockets"] * n["cores_per_socket"] * n["threads_per_core"]) for n in nodes]
    return min(shares, default=0)


def value(setting: object) -> str:
    """Write one value: YES or NO, lists with commas, quotes where a blank asks for them."""
    if isinstance(setting, bool):
        return "YES" if setting else "NO"
    if isinstance(setting, (list, tuple)):
        return ",".join(value(entry) for entry in setting)
    text = str(setting)
    return f'"{text}"' if " " in text and not text.startswith('"') else text


# Elastic nodes, and the settings of power saving.


Record = t.Mapping[str, t.Any]

_ELASTIC_KEYS = {"names", "gres", "features", "options", *_NUMBERS}
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
    """Describe every elastic node in the form that `node_lines` takes; all faults are reported in one error."""
    listed = list(entries)
    wrong = [text for number, entry in enumerate(listed, 1) for text in _faults(number, entry)]
    if wrong:
        raise NodeError("; ".join(wrong))
    nodes = [_node_of(name, entry) for entry in listed for name in expand(str(entry["names"]))]
    names = [node["name"] for node in nodes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise NodeError(f"{', '.join(twice)} is described more than once")
    return nodes


def _node_of(name: str, entry: Record) -> dict[str, t.Any]:
    optional = {key: entry[key] for key in ("gres", "options") if entry.get(key)}
    features = entry.get("features") or []
    names = [features] if isinstance(features, str) else list(features)
    numbers = {key: int(entry[key]) for key in _NUMBERS}
    return {"host": name, "name": name, **numbers, **optional, "features": [*names, "cloud"], "state": "CLOUD"}


def _faults(number: int, entry: Record) -> list[str]:
    name = f"entry {number} ({entry.get('names') or 'without names'})"
    unknown = sorted(set(entry) - _ELASTIC_KEYS)
    faults = [f"{name} has {', '.join(unknown)}; accepted: {', '.join(sorted(_ELASTIC_KEYS))}"] if unknown else []
    try:
        faults += [] if expand(str(entry.get("names") or "")) else [f"{name} names no node: names is a hostlist"]
    except HostlistError as exc:
        faults.append(f"{name}: {exc}")
    bad = [key for key in _NUMBERS if not str(entry.get(key, "")).isdigit() or int(entry[key]) < 1]
    return [*faults, f"{name} needs numbers above 0 for {', '.join(bad)}"] if bad else faults


def power_settings(nodes: t.Sequence[Record], power: Record, version: str = "", base: str = "") -> dict[str, str]:
    """Return the settings of power saving; none where no node is elastic. ``base`` is SlurmctldParameters so far."""
    if not any(node.get("state") == "CLOUD" for node in nodes):
        return {}
    known = release(version) if version else (0, 0)
    wrong = [f"{key} {power.get(key)!r} is no absolute path" for key in _PROGRAMS if not _path(power.get(key))]
    wrong += [f"{key} {power.get(key)!r} is no number" for key in _SECONDS if not str(power.get(key)).isdigit()]
    if wrong:
        raise NodeError("; ".join(wrong))
    settings = {setting: str(power[key]) for key, setting in (*_PROGRAMS.items(), *_SECONDS.items())}
    # Machines that nobody can create again are never switched off.
    static = [node["name"] for node in nodes if node.get("state") != "CLOUD"]
    if static:
        settings["SuspendExcNodes"] = compress(static, unique=True)
    if known < _SHOWS:
        settings["PrivateData"] = "cloud"
    if known < _TAKES_ADDRESSES:
        settings["SlurmctldParameters"] = ",".join([*filter(None, [base]), "cloud_reg_addrs"])
    if known < _PASSES_ADDRESSES:
        settings["TreeWidth"] = _FLAT
    return settings


def _path(value: object) -> bool:
    text = str(value or "")
    return text.startswith("/") and not any(char.isspace() for char in text)


# Settings of health checks, for each release of Slurm.


_SINCE = {"NONDRAINED_IDLE": (23, 2), "START_ONLY": (25, 11), "REBOOT_ONLY": (26, 5)}
_STATES = ("ALLOC", "ANY", "CYCLE", "IDLE", "MIXED", *_SINCE)
_ALONE = ("START_ONLY", "REBOOT_ONLY")
_SUSPEND_EXC_STATES = (23, 2)
_SUSPEND_STATES = (
    "CLOUD DOWN DRAIN DYNAMIC_FUTURE DYNAMIC_NORM FAIL INVALID_REG MAINTENANCE NOT_RESPONDING PERFCTRS PLANNED RESERVED"
).split()


def health_settings(
    program: str,
    interval: int,
    states: t.Sequence[str],
    suspend_exc_states: t.Sequence[str],
    version: str = "",
    extra: t.Mapping[str, t.Any] | None = None,
) -> dict[str, str]:
    """Return the settings; without a version only what every release understands is let through."""
    known = release(version) if version else (0, 0)
    settings = _checks(program, interval, [state.upper() for state in states], version, known) if program else {}
    exceptions = [state.upper() for state in suspend_exc_states]
    strange = [state for state in exceptions if state not in _SUSPEND_STATES]
    if strange:
        raise SlurmError(f"suspend_exc_states {', '.join(strange)}: Slurm knows {', '.join(_SUSPEND_STATES)}")
    if exceptions and known >= _SUSPEND_EXC_STATES and saves_power(extra or {}):
        settings["SuspendExcStates"] = ",".join(exceptions)
    return settings


def _checks(
    program: str, interval: int, states: t.Sequence[str], version: str, known: tuple[int, int]
) -> dict[str, str]:
    if not program.startswith("/") or any(char.isspace() for char in program):
        raise SlurmError(f"health check program {program!r}: an absolute path without blanks is needed")
    if not 1 <= interval <= 65535:
        raise SlurmError(f"health check interval {interval}: seconds from 1 to 65535 are needed")
    strange = [state for state in states if state not in _STATES]
    if strange or not states:
        raise SlurmError(f"health check states {', '.join(strange) or 'are empty'}: Slurm knows {', '.join(_STATES)}")
    alone = [state for state in states if state in _ALONE]
    if alone and len(states) > 1:
        raise SlurmError(f"health check state {alone[0]} stands alone, not with {', '.join(states)}")
    for state in states:
        year, month = _SINCE.get(state, (0, 0))
        if (year, month) > known:
            raise SlurmError(
                f"health check state {state} needs Slurm {year}.{month:02}, this is {version or 'unknown'}"
            )
    return {
        "HealthCheckProgram": program,
        "HealthCheckInterval": str(interval),
        "HealthCheckNodeState": ",".join(states),
    }


def saves_power(extra: t.Mapping[str, t.Any]) -> bool:
    """Return whether a site's settings let Slurm switch nodes off."""
    return any(key.lower() == "suspendprogram" and value for key, value in extra.items())


class SlurmConf(t.NamedTuple):
    """What slurm.conf is made of; ``settings`` are the roles', ``extra`` the site's, which win."""

    settings: Record
    nodes: t.Sequence[Record]
    elastic_nodes: t.Sequence[Record]
    partitions: t.Sequence[Record]
    topology: str
    power: Record
    health: Record
    version: str
    extra: Record


def conf_lines(conf: SlurmConf) -> list[str]:
    """Return the lines of slurm.conf: settings, nodes, partitions, with an empty line between them."""
    nodes = [*conf.nodes, *elastic(conf.elastic_nodes)]
    power = power_settings(nodes, conf.power, conf.version, str(conf.settings.get("SlurmctldParameters") or ""))
    health = health_settings(
        str(conf.health["program"]),
        int(conf.health["interval"]),
        [str(state) for state in conf.health["states"]],
        [str(state) for state in conf.health["suspend_exc_states"]],
        conf.version,
        {**power, **conf.extra},
    )
    kinds = gres_names(nodes)
    derived = {
        "GresTypes": [kind for kind in kinds if ":" not in kind],
        "AccountingStorageTRES": [f"gres/{kind}" for kind in kinds],
        "DefMemPerCPU": memory_per_cpu(nodes),
        "SlurmdParameters": machine_parameters(nodes),
        "TopologyPlugin": f"topology/{conf.topology}" if conf.topology else "",
    }
    settings = setting_lines({**conf.settings, **power, **health, **derived}, conf.extra)
    return [*settings, "", *node_lines(nodes), "", *partition_lines(conf.partitions, nodes)]
