# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's nodes, partitions, jobs and controllers as plain dictionaries: how they are read, and whether they serve."""

from __future__ import annotations

import re
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job import FINAL
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import (
    SEPARATOR,
    TIME_FORMAT,
    SlurmError,
    fields,
    load,
    number,
    release,
    seconds,
    text_or_none,
    words,
)

# Name last: it may hold anything but the separator.
SQUEUE_FORMAT = SEPARATOR.join(["%A", "%u", "%a", "%P", "%T", "%r", "%N", "%D", "%V", "%S", "%j"])
_REASON = re.compile(r" Reason=(.*) \[([^\]@ ]+)@([^\]]+)\]")
_BASES = frozenset("DOWN IDLE ALLOCATED ERROR MIXED FUTURE UNKNOWN".split())
_OUT_OF_SERVICE = frozenset(
    "BLOCKED DRAIN FAIL INVALID_REG MAINTENANCE NOT_RESPONDING"
    " POWERED_DOWN POWERING_DOWN POWER_DOWN REBOOT_ISSUED REBOOT_REQUESTED".split()
)

Record = t.Dict[str, t.Any]


def version(text: str) -> str:
    """Read ``slurm-wlm 22.05.8`` or ``slurm 25.11.0``."""
    match = re.search(r"\bslurm\S* (\d+\.\d+\S*)", text)
    if not match:
        raise SlurmError(f"{text.strip()!r} is not a Slurm version")
    return match.group(1)


def controllers(text: str) -> list[Record]:
    """Read ``scontrol ping``."""
    matches = re.findall(r"Slurmctld\(([^)]+)\) at (\S+) is (\w+)", text)
    return [{"role": role, "host": host, "up": state == "UP"} for role, host, state in matches]


def nodes_from_json(text: str) -> list[Record]:
    """Read ``sinfo --json`` of 22.05, or ``scontrol show nodes --json`` since."""
    return [_node_from_json(node) for node in load(text, "nodes")]


def _node_from_json(node: Record) -> Record:
    states = words(node.get("state")) + words(node.get("state_flags"))
    reason = node.get("reason") or ""
    return _node(
        states,
        name=str(node["name"]),
        address=node.get("address") or node["name"],
        hostname=node.get("hostname") or node["name"],
        reason=reason,
        reason_user=(text_or_none(node.get("reason_set_by_user")) if reason else None),
        reason_time=(moment(node.get("reason_changed_at")) if reason else None),
        cpus=number(node.get("cpus")),
        allocated_cpus=number(node.get("alloc_cpus")),
        memory_mb=number(node.get("real_memory")),
        gres=text_or_none(node.get("gres")),
        features=words(node.get("features")),
        active_features=words(node.get("active_features")),
        partitions=words(node.get("partitions")),
        version=text_or_none(node.get("version") or node.get("slurmd_version")),
        boot_time=moment(node.get("boot_time")),
    )


def nodes_from_text(text: str) -> list[Record]:
    """Read ``scontrol show node -o``."""
    return [_node_from_text(line) for line in text.splitlines() if line.startswith("NodeName=")]


def _node_from_text(line: str) -> Record:
    match = _REASON.search(line)
    values = fields(line[: match.start()] if match else line)
    return _node(
        words(values.get("State", "").replace("+", ",")),
        name=values["NodeName"],
        address=values.get("NodeAddr", values["NodeName"]),
        hostname=values.get("NodeHostName", values["NodeName"]),
        reason=match.group(1) if match else "",
        reason_user=match.group(2) if match else None,
        reason_time=text_or_none(match.group(3)) if match else None,
        cpus=number(values.get("CPUTot")),
        allocated_cpus=number(values.get("CPUAlloc")),
        memory_mb=number(values.get("RealMemory")),
        gres=text_or_none(values.get("Gres")),
        features=words(values.get("AvailableFeatures")),
        active_features=words(values.get("ActiveFeatures")),
        partitions=words(values.get("Partitions")),
        version=text_or_none(values.get("Version")),
        boot_time=text_or_none(values.get("BootTime")),
    )


def _node(states: list[str], **values: t.Any) -> Record:
    """Split states into the base and its flags; old releases mark a silent node with ``DOWN*``."""
    shown = [state.rstrip("*~#!%$@^-").upper() for state in states]
    base = next((state for state in shown if state in _BASES), "UNKNOWN")
    flags = set(shown) - _BASES | ({"NOT_RESPONDING"} if any(state.endswith("*") for state in states) else set())
    usable = base in {"IDLE", "MIXED", "ALLOCATED"} and not flags & _OUT_OF_SERVICE
    return {**values, "state": base, "flags": sorted(flags), "drained": "DRAIN" in flags, "available": usable}


def partitions(text: str) -> list[Record]:
    """Read ``scontrol show partition -o``; its values hold no blanks, in any release."""
    return [_partition(fields(line)) for line in text.splitlines() if line.startswith("PartitionName=")]


def _partition(values: dict[str, str]) -> Record:
    return {
        "name": values["PartitionName"],
        "state": values.get("State", "UNKNOWN"),
        "default": values.get("Default") == "YES",
        "nodes": hosts(values.get("Nodes")),
        "total_cpus": number(values.get("TotalCPUs")),
        "max_time": seconds(values.get("MaxTime", "")),
    }


def jobs_from_json(text: str) -> list[Record]:
    """Read ``squeue --json``."""
    return [_job_from_json(job) for job in load(text, "jobs")]


def _job_from_json(job: Record) -> Record:
    states = words(job.get("job_state"))
    shown = [state for state in states if state in {"COMPLETING", "CONFIGURING"}] or states or ["UNKNOWN"]
    return {
        "job_id": number(job["job_id"]),
        "name": str(job.get("name") or ""),
        "user": str(job.get("user_name") or ""),
        "account": text_or_none(job.get("account")),
        "partition": text_or_none(job.get("partition")),
        "state": shown[0],
        "reason": text_or_none(job.get("state_reason")),
        "nodes": hosts(job.get("nodes")),
        "node_count": number(job.get("node_count")),
        "submit": moment(job.get("submit_time")),
        "start": moment(job.get("start_time")),
    }


def jobs_from_text(text: str) -> list[Record]:
    """Read ``squeue -h -o`` with SQUEUE_FORMAT."""
    keys = "job_id user account partition state reason nodes node_count submit start name".split()
    rows = [line.split(SEPARATOR, len(keys) - 1) for line in text.splitlines()]
    return [_job_from_row(dict(zip(keys, row))) for row in rows if len(row) == len(keys)]


def _job_from_row(row: Record) -> Record:
    plain = {key: text_or_none(row[key]) for key in ("account", "partition", "reason", "submit", "start")}
    counts = {"job_id": number(row["job_id"]), "node_count": number(row["node_count"])}
    return {**row, **plain, **counts, "nodes": hosts(row["nodes"])}


def hosts(value: object) -> list[str]:
    """Expand a hostlist that Slurm printed; its word for "none" is the empty list."""
    try:
        return expand(text_or_none(value) or "")
    except HostlistError as exc:
        raise SlurmError(str(exc)) from exc


def moment(value: object) -> str | None:
    """Turn seconds since 1970 into the local time that Slurm's text shows; 0 is Slurm's "never"."""
    epoch = number(value)
    return time.strftime(TIME_FORMAT, time.localtime(epoch)) if epoch else None


# The commands, which differ between releases.


Run = t.Callable[[t.List[str]], t.Tuple[int, str, str]]

# scontrol learnt --json in 23.02; before, only sinfo printed whole nodes, and since, sinfo prints groups of nodes.
_SCONTROL_JSON = (23, 2)


class SlurmReader:
    """Reads the state of the cluster; raises SlurmError when Slurm does not answer."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def _ask(self, argv: list[str]) -> str:
        rc, out, err = self._run(argv)
        if rc:
            raise SlurmError(f"{' '.join(argv)} failed with {rc}: {(err or out).strip()}")
        return out

    def _json_or_text(self, argv: list[str], read: t.Callable[[str], list[Record]]) -> list[Record] | None:
        """Return the records, or None where ``--json`` fails: some builds of Slurm lack the JSON plugin."""
        rc, out, dummy = self._run(argv)
        try:
            return None if rc else read(out)
        except (SlurmError, KeyError):
            return None

    def version(self) -> str:
        return version(self._ask(["scontrol", "--version"]))

    def controllers(self) -> list[Record]:
        """Return the controllers and whether they are up; ``scontrol ping`` exits with 1 when one is down."""
        dummy, out, err = self._run(["scontrol", "ping"])
        observed = controllers(out)
        if not observed:
            raise SlurmError(f"scontrol ping named no controller: {(err or out).strip()}")
        return observed

    def nodes(self) -> list[Record]:
        modern = release(self.version()) >= _SCONTROL_JSON
        argv = ["scontrol", "show", "nodes", "--json"] if modern else ["sinfo", "-a", "--json"]
        observed = self._json_or_text(argv, nodes_from_json)
        return nodes_from_text(self._ask(["scontrol", "show", "node", "-a", "-o"])) if observed is None else observed

    def partitions(self) -> list[Record]:
        return partitions(self._ask(["scontrol", "show", "partition", "-a", "-o"]))

    def jobs(self) -> list[Record]:
        """Jobs that wait or run; 22.05 prints ended jobs as well."""
        observed = self._json_or_text(["squeue", "-a", "--json"], jobs_from_json)
        if observed is None:
            observed = jobs_from_text(self._ask(["squeue", "-a", "-h", "-o", SQUEUE_FORMAT]))
        return sorted((job for job in observed if job["state"] not in FINAL), key=lambda job: job["job_id"])


# The release of Slurm's commands that are installed, before there is a slurm.conf.


LEAST = "ClusterName=nobody\nSlurmctldHost=nobody\n"


def installed_release(module: t.Any) -> str:
    """Return the version of ``sinfo``; empty where it is not installed. ``module`` is an AnsibleModule."""
    sinfo = module.get_bin_path("sinfo")
    if not sinfo:
        return ""
    with tempfile.TemporaryDirectory(dir=module.tmpdir) as folder:
        conf = Path(folder, "slurm.conf")
        conf.write_text(LEAST, encoding="utf-8")
        rc, out, err = module.run_command([sinfo, "--version"], environ_update={"SLURM_CONF": str(conf)})
    try:
        return version(out)
    except SlurmError as exc:
        raise SlurmError(f"{sinfo} --version ended with {rc}, and {exc}: {err.strip()}") from exc


_SWITCHED = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"}
ENOUGH = 2  # one job over two nodes reaches slurmd, munge, accounting and the network between nodes


class SlurmService(t.NamedTuple):
    """Whether every node is usable or busy, those that are not, and on how many nodes a job would start at once."""

    settled: bool
    broken: list[str]
    proof: int


def service(nodes: t.Iterable[Record], partitions: t.Iterable[Record]) -> SlurmService:
    """Judge what SlurmReader read.

    A node that somebody drained is out of service on purpose and does not count, nor does one that power saving has
    switched off. Any other has to be usable. The default partition, where jobs go, then has idle nodes for a proof, or
    jobs keep it busy and prove it better.
    """
    counted = [node for node in nodes if not node["drained"] and not _switched(node)]
    broken = [_say(node) for node in counted if not node["available"]]
    home = {name for part in partitions if part["default"] for name in part["nodes"]}
    usable = [node for node in counted if node["available"] and node["name"] in home]
    idle = [node for node in usable if node["state"] == "IDLE"]
    wanted = min(ENOUGH, sum(node["name"] in home for node in counted))
    provable = len(idle) >= wanted
    return SlurmService(not broken and (provable or len(usable) > len(idle)), broken, provable * wanted)


def _switched(node: Record) -> bool:
    """Whether power saving has the node switched off, or is about to switch it."""
    return bool(_SWITCHED & set(node["flags"]))


def _say(node: Record) -> str:
    state = "+".join([node["state"], *node["flags"]])
    return f"{node['name']} is {state}{': ' if node['reason'] else ''}{node['reason'] or ''}"
