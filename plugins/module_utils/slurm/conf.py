# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm.conf and the files beside it: settings, faults, and what a change means for daemons and jobs. No I/O."""

from __future__ import annotations

import hashlib
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, compress, expand

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


class Conf(t.NamedTuple):
    """Keys are lower case; ``records`` are the node, partition and node set lines in their order."""

    settings: list[tuple[str, str]]
    records: list[dict[str, str]]
    unread: list[str]


def lines(text: str) -> list[str]:
    """Return the lines that Slurm reads: without comments and empty lines, continued lines joined, single blanks."""
    bare = (re.sub(r"(?<!\\)#.*", "", line) for line in re.sub(r"\\\n", " ", text).splitlines())
    return [" ".join(line.split()) for line in bare if line.strip()]


def parse(text: str) -> Conf:
    """Read a file as Slurm does: comments and continued lines out, several settings per line allowed."""
    settings: list[tuple[str, str]] = []
    records: list[dict[str, str]] = []
    unread: list[str] = []
    for bare in lines(text):
        if re.match(r"include\s+\S+$", bare, re.IGNORECASE):
            settings.append(("include", bare.split(None, 1)[1]))
            continue
        pairs = _pairs(bare)
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
    faults = [f"line {line!r} is not made of Name=value" for line in conf.unread]
    keys = [key for key, dummy in conf.settings]
    faults += [f"{name} is missing" for key, name in _REQUIRED if key not in keys]
    twice = sorted({key for key in keys if keys.count(key) > 1 and key not in _REPEATED})
    faults += [f"{key} is set more than once" for key in twice]
    for key, value in conf.settings:
        kind = _PLUGIN_KINDS.get(key)
        bad = [v for v in value.split(",") if kind and not v.startswith(f"{kind}/")]
        faults += [f"{key}={value}: {v!r} is not a plugin; it must look like {kind}/<name>" for v in bad]
    return faults + _record_problems(conf.records)


def _record_problems(records: list[dict[str, str]]) -> list[str]:
    faults: list[str] = []
    nodes: list[str] = []
    sets = {record["nodeset"] for record in records if "nodeset" in record}
    for record in records:
        nodes += _names(record.get("nodename", ""), faults)
    faults += [f"node {name} is defined twice" for name in sorted({n for n in nodes if nodes.count(n) > 1})]
    if not nodes and "nodeset" not in {key for record in records for key in record}:
        faults.append("no node is defined")
    partitions = [record for record in records if record.get("partitionname", "DEFAULT").upper() != "DEFAULT"]
    titles = [record["partitionname"] for record in partitions]
    faults += [f"partition {name} is defined twice" for name in sorted({n for n in titles if titles.count(n) > 1})]
    defaults = [r["partitionname"] for r in partitions if r.get("default", "no").lower() in ("yes", "true", "1")]
    if len(defaults) > 1:
        faults.append(f"only one partition can be the default, not {', '.join(defaults)}")
    known = {*nodes, *sets, "ALL"}
    for record in partitions:
        strange = [name for name in _names(record.get("nodes", ""), faults) if name not in known]
        if strange:
            faults.append(f"partition {record['partitionname']} names unknown nodes: {', '.join(strange)}")
    return faults


def _names(text: str, faults: list[str]) -> list[str]:
    if text.upper() in ("DEFAULT", ""):
        return []
    try:
        return expand(text, _MAX_NODES)
    except HostlistError as exc:
        faults.append(str(exc))
        return []


def problems_beside(files: t.Mapping[str, str]) -> list[str]:
    """Say what is wrong with cgroup.conf, gres.conf and topology.conf, which no Slurm command checks."""
    faults: list[str] = []
    known = {name for record in parse(files["slurm.conf"]).records for name in _names(record.get("nodename", ""), [])}
    lists = {"gres.conf": ("nodename", "file"), "topology.conf": ("nodes", "switches")}
    switches = {dict(_pairs(line)).get("switchname", "") for line in lines(files.get("topology.conf", ""))}
    for name in ("cgroup.conf", "gres.conf", "topology.conf"):
        for line in lines(files.get(name, "")):
            about: list[str] = []
            pairs = dict(_pairs(line))
            if line.lower().startswith("include "):
                continue
            if _PAIR.sub("", line).strip():
                about.append("is not made of Name=value")
            elif name == "gres.conf" and not {"name", "autodetect", "include"} & set(pairs):
                about.append("has no Name")
            elif name == "topology.conf" and not {"switchname", "blockname", "blocksizes"} & set(pairs):
                about.append("has no SwitchName and no BlockName")
            for key in lists.get(name, ()):
                members = _names(pairs.get(key, ""), about)
                defined = {"file": set(members), "switches": switches}.get(key, {*known, "ALL"})
                strange = [member for member in members if member not in defined]
                if strange:
                    about.append(f"{key} names what is not defined: {', '.join(strange)}")
            faults += [f"{name}: line {line!r}: {text}" for text in about]
    return faults


def _pairs(line: str) -> list[tuple[str, str]]:
    return [(key.lower(), value.strip('"')) for key, value in _PAIR.findall(line)]


# What a change means for the daemons and for jobs.


# "A restart of slurmctld (and slurmd) is required", slurm.conf(5) of 22.05 to 25.11, and what each daemon reads
# only when it starts: 22.05's slurmctld goes on asking slurmdbd's old port after a reconfigure. Node lines count too:
# up to 23.02 a reconfigure must not change them.
_RESTART = frozenset(
    [
        "accountingstoragebackuphost",
        "accountingstorageenforce",
        "accountingstoragehost",
        "accountingstorageport",
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


def digest(files: t.Mapping[str, str]) -> str:
    """Hash what the daemons read only when they start: another digest asks for a restart.

    Anything else (partitions, timeouts, limits, programs) reaches them by ``scontrol reconfigure``. The files beside
    slurm.conf count in full: Slurm's releases do not agree on what a reconfigure reads again. Order counts wherever
    Slurm gives it a meaning: which SlurmctldHost is the primary, which line of gres.conf holds which type.
    """
    conf = parse(files.get("slurm.conf", ""))
    settings = sorted((pair for pair in conf.settings if pair[0] in _RESTART), key=lambda pair: pair[0])
    parts = [f"{key}={value}" for key, value in settings]
    for record in conf.records:
        if "partitionname" not in record:
            parts.append(" ".join(f"{key}={value}" for key, value in sorted(record.items())))
    for name in sorted(set(files) - {"slurm.conf"}):
        parts += [f"{name}: {line}" for line in lines(files[name])]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def state_left_behind(before: str, after: str, written: t.Callable[[str], float]) -> str:
    """Say why the state directory must not change like this: slurmctld would start cold and end every running job.

    ``written`` tells when the state of jobs in a directory was written, 0 if it has none; a copy keeps that time.
    """
    old, new = (dict(parse(text).settings).get("statesavelocation", "").rstrip("/") for text in (before, after))
    if not old or old == new or int(written(old)) <= int(written(new)):
        return ""
    return (
        f"StateSaveLocation would change from {old}, which holds the state of the jobs, to {new}, which has none or an "
        f"older one: slurmctld would forget every job and end those that run. Run 'systemctl stop slurmctld' on all "
        f"controllers, then 'rsync -a {old}/ {new}/' on one, then this again"
    )


def lost_plugins(before: t.Mapping[str, str], after: t.Mapping[str, str]) -> str:
    """Say which lines of a foreign plugstack.conf would be lost; with the heading that we write the file is ours."""
    name = "plugstack.conf"
    old, new = before.get(name, ""), after.get(name, "")
    if not old or not new or (_heading(old) and _heading(old) == _heading(new)):
        return ""
    missing = [line for line in lines(old) if line not in lines(new)]
    if not missing:
        return ""
    return (
        f"{name} was written by somebody else and has lines that would be lost: {'; '.join(map(repr, missing))}. "
        "Put them into slurm_plugstack, or into a file below /etc/slurm/plugstack.conf.d, or remove them"
    )


def foreign_topology(before: t.Mapping[str, str], after: t.Mapping[str, str], yaml: bool) -> list[str]:
    """Say why a topology must not be written: it is somebody else's, or a topology.yaml that stays would hide it."""
    texts = []
    for name, variable in (("topology.conf", "slurm_topology"), ("topology.yaml", "slurm_topologies")):
        old, new = before.get(name, ""), after.get(name, "")
        if new and old and lines(old) != lines(new) and _heading(old) != _heading(new):
            texts.append(
                f"{name} was written by somebody else and would be replaced. Have {variable} say what it says, or move "
                "it away"
            )
    hidden = yaml and after.get("topology.conf") and not after.get("topology.yaml")
    if hidden and not is_ours(before.get("topology.yaml", ""), after.get("slurm.conf", "")):
        texts.append("beside a topology.yaml Slurm 25.05 and later ignore topology.conf. Move topology.yaml away")
    return texts


def is_ours(text: str, conf: str) -> bool:
    """Say whether a file begins with the comment of the slurm.conf that we write."""
    return bool(text and _heading(conf)) and _heading(text) == _heading(conf)


def dropped_nodes(before: str, after: str) -> list[str]:
    """Return the nodes that a slurm.conf has and the next one has not; a line that cannot be read has none."""
    return sorted(_nodes(before) - _nodes(after))


def _nodes(text: str) -> set[str]:
    names: set[str] = set()
    for record in parse(text).records:
        names |= set(_expanded(record.get("nodename", ""))) - {"", "DEFAULT"}
    return names


def busy_nodes(dropped: t.Sequence[str], rc: int, out: str, err: str) -> str:
    """Say which jobs a cluster would lose with these nodes, by what squeue printed of all jobs; empty when none."""
    names = compress(dropped)
    if dropped and rc:
        return (
            f"{names} would be dropped, and whether jobs run there cannot be read: {err.strip() or out.strip()}. "
            "slurm_drop_busy_nodes allows it"
        )
    jobs = [line.split("|") for line in out.splitlines() if line.count("|") == 3]
    lost = [" ".join(job) for job in jobs if set(_expanded(job[3])) & set(dropped)]
    if not lost:
        return ""
    shown = ", ".join(lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
    return (
        f"{names} would be dropped, and Slurm would end {len(lost)} jobs there: {shown}. Drain the nodes and let"
        f" the jobs end (remove_node.yml -e remove_node_hosts={names})"
    )


def _expanded(hostlist: str) -> list[str]:
    try:
        return expand(hostlist)
    except HostlistError:
        return []


def _heading(text: str) -> list[str]:
    """Return the comment lines that a file begins with."""
    text_lines = text.splitlines()
    count = next((index for index, line in enumerate(text_lines) if not line.startswith("#")), len(text_lines))
    return text_lines[:count]
