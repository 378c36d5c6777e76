# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm.conf: text to settings, what is wrong with it, and which changes ask for a restart. No I/O; private."""

from __future__ import annotations

import hashlib
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._hostlist import HostlistError, expand

_PAIR = re.compile(r'([A-Za-z][A-Za-z0-9_]*)\s*[-+*/]?=\s*("[^"]*"|[^\s"]*)(?=\s|$)')
_RECORDS = ("nodename", "partitionname", "nodeset", "downnodes", "frontendname")
_REPEATED = ("slurmctldhost", "include")
_REQUIRED = (("clustername", "ClusterName"), ("slurmctldhost", "SlurmctldHost"))
_MAX_NODES = 1 << 20

# A plugin is named by its kind; Slurm itself says so only when the daemon is already stopped.
_PLUGIN_KINDS = {
    "accountingstoragetype": "accounting_storage",
    "authtype": "auth",
    "credtype": "cred",
    "jobacctgathertype": "jobacct_gather",
    "prioritytype": "priority",
    "proctracktype": "proctrack",
    "schedulertype": "sched",
    "selecttype": "select",
    "switchtype": "switch",
    "taskplugin": "task",
    "topologyplugin": "topology",
}

# "A restart of slurmctld (and slurmd) is required", slurm.conf(5) of 22.05 to 25.11, and what each daemon reads
# only when it starts. Node lines count too: up to 23.02 a reconfigure must not change them.
_RESTART = frozenset(
    [
        "accountingstorageenforce",
        "accountingstoragetres",
        "accountingstoragetype",
        "authalttypes",
        "authtype",
        "clustername",
        "communicationparameters",
        "corespecplugin",
        "credtype",
        "cryptotype",
        "gpufreqdef",
        "grestypes",
        "hashplugin",
        "jobacctgathertype",
        "jobcontainertype",
        "maxjobcount",
        "maxnodecount",
        "mcsplugin",
        "mpidefault",
        "mpiparams",
        "plugindir",
        "plugstackconfig",
        "powerplugin",
        "preempttype",
        "prioritytype",
        "proctracktype",
        "prologflags",
        "schedulerplugin",
        "schedulertype",
        "selecttype",
        "selecttypeparameters",
        "slurmctldhost",
        "slurmctldparameters",
        "slurmctldplugstack",
        "slurmctldport",
        "slurmdparameters",
        "slurmdport",
        "slurmdspooldir",
        "slurmuser",
        "statesavelocation",
        "switchparameters",
        "switchtype",
        "taskplugin",
        "taskpluginparam",
        "topologyparam",
        "topologyplugin",
        "tlstype",
    ]
)


class Conf(t.NamedTuple):
    """Keys are lower case; ``records`` are the node, partition and node set lines in their order."""

    settings: list[tuple[str, str]]
    records: list[dict[str, str]]
    unread: list[str]


def parse(text: str) -> Conf:
    """Read a file as Slurm does: comments and continued lines out, several settings per line allowed."""
    settings: list[tuple[str, str]] = []
    records: list[dict[str, str]] = []
    unread: list[str] = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        bare = re.sub(r"(?<!\\)#.*", "", line).strip()
        if re.match(r"include\s+\S+$", bare, re.IGNORECASE):
            settings.append(("include", bare.split(None, 1)[1]))
            continue
        pairs = [(key.lower(), value.strip('"')) for key, value in _PAIR.findall(bare)]
        if _PAIR.sub("", bare).strip():
            unread.append(bare)
        elif pairs and pairs[0][0] in _RECORDS:
            records.append(dict(pairs))
        else:
            settings.extend(pairs)
    return Conf(settings, records, unread)


def problems(text: str) -> list[str]:
    """Say what keeps Slurm from working with this slurm.conf; each text is fit for the user."""
    conf = parse(text)
    found = [f"line {line!r} is not made of Name=value" for line in conf.unread]
    keys = [key for key, dummy in conf.settings]
    found += [f"{name} is missing" for key, name in _REQUIRED if key not in keys]
    twice = sorted({key for key in keys if keys.count(key) > 1 and key not in _REPEATED})
    found += [f"{key} is set more than once" for key in twice]
    for key, value in conf.settings:
        kind = _PLUGIN_KINDS.get(key)
        bad = [v for v in value.split(",") if kind and not v.startswith(f"{kind}/")]
        found += [f"{key}={value}: {v!r} is not a plugin; it must look like {kind}/<name>" for v in bad]
    return found + _record_problems(conf.records)


def _record_problems(records: list[dict[str, str]]) -> list[str]:
    found: list[str] = []
    nodes: list[str] = []
    sets = {record["nodeset"] for record in records if "nodeset" in record}
    for record in records:
        nodes += _names(record.get("nodename", ""), found)
    found += [f"node {name} is defined twice" for name in sorted({n for n in nodes if nodes.count(n) > 1})]
    if not nodes and "nodeset" not in {key for record in records for key in record}:
        found.append("no node is defined")
    partitions = [record for record in records if record.get("partitionname", "DEFAULT").upper() != "DEFAULT"]
    titles = [record["partitionname"] for record in partitions]
    found += [f"partition {name} is defined twice" for name in sorted({n for n in titles if titles.count(n) > 1})]
    defaults = [r["partitionname"] for r in partitions if r.get("default", "no").lower() in ("yes", "true", "1")]
    if len(defaults) > 1:
        found.append(f"only one partition can be the default, not {', '.join(defaults)}")
    known = {*nodes, *sets, "ALL"}
    for record in partitions:
        strange = [name for name in _names(record.get("nodes", ""), found) if name not in known]
        if strange:
            found.append(f"partition {record['partitionname']} names unknown nodes: {', '.join(strange)}")
    return found


def _names(text: str, found: list[str]) -> list[str]:
    if text.upper() in ("DEFAULT", ""):
        return []
    try:
        return expand(text, _MAX_NODES)
    except HostlistError as exc:
        found.append(str(exc))
        return []


def digest(files: t.Mapping[str, str]) -> str:
    """Hash what the daemons read only when they start: another digest asks for a restart.

    Anything else (partitions, timeouts, limits, programs) reaches them by ``scontrol reconfigure``. The files beside
    slurm.conf count in full: Slurm's releases do not agree on what a reconfigure reads again.
    """
    conf = parse(files.get("slurm.conf", ""))
    lines = sorted(f"{key}={value}" for key, value in conf.settings if key in _RESTART)
    for record in conf.records:
        if "partitionname" not in record:
            lines.append(" ".join(f"{key}={value}" for key, value in sorted(record.items())))
    for name in sorted(set(files) - {"slurm.conf"}):
        other = parse(files[name])
        lines.append(f"{name} {sorted(other.settings)} {other.records} {other.unread}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
