# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role measure decides: which inputs it refuses, what a machine is, what its records say. Private."""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import address
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import (
    GENERIC,
    ProfileError,
    alike,
    is_name,
    load,
    names,
    of_bases,
    override,
)

# The checks that each measurement returns at least. Whoever asks for infiniband or dcgm means both modules of it.
CHECKS: dict[str, tuple[str, ...]] = {
    "gpu_info": ("gpu_count",),
    "gpu_bandwidth": ("gpu_bandwidth",),
    "nccl_tests": ("nccl_tests",),
    "infiniband": ("infiniband_ports", "infiniband_bandwidth"),
    "storage_bandwidth": ("storage_bandwidth",),
    "hpl": ("hpl",),
    "dcgm": ("dcgm_health", "dcgm_diag"),
}
TESTS = tuple(CHECKS)
_TOOLS = "the role gpu_test_tools builds it (measure_build_tools: true), and measure_path names a directory that has it"
_DCGM = "install DCGM, whose packages begin with datacenter-gpu-manager, and start the service nvidia-dcgm"
_ADVICE = {
    "dcgm_diag": _DCGM,
    "dcgm_health": _DCGM,
    "gpu_bandwidth": _TOOLS,
    "nccl_tests": _TOOLS,
    "infiniband_bandwidth": "install the package perftest",
    "storage_bandwidth": "install the package fio",
    "hpl": "put xhpl or hpl.sh on PATH or below /opt/hpl",
}
_ON_THE_NODE = "it is read on the node itself, which needs SSH to the node (measure_launcher: local)"
# What faults of a GPU are read of, on whatever machine: of GPUs without ECC nobody expects a count of its errors.
_FAULTS: dict[str, t.Callable[[t.Mapping[str, t.Any]], tuple[t.Any, ...]]] = {
    "gpu_ecc": lambda gpu: _values(gpu.get("ecc"), "volatile_uncorrected", "aggregate_uncorrected"),
    "gpu_remap": lambda gpu: _values(gpu.get("repairs"), "remapped_uncorrectable", "remap_pending", "remap_failed"),
    "gpu_throttle": lambda gpu: _values(gpu, "throttle_mask"),
    "gpu_temperature": lambda gpu: _values(gpu, "temperature_c"),
}
_GIB = 1 << 30


def problems(inputs: t.Mapping[str, t.Any], hosts: int) -> list[str]:
    """Return a sentence for each input that the role refuses."""
    findings = []
    sku, launcher, nodes = inputs["sku"], inputs["launcher"], inputs["nodes"]
    through_slurm = launcher == "srun"
    findings += _sku_problems(sku, _place(inputs.get("profile_dir")))
    if not inputs["tests"]:
        findings.append(f"measure_tests is empty; name some of {', '.join(TESTS)}")
    relative = [path for path in inputs["paths"] if not str(path).startswith("/")]
    if relative:
        findings.append(f"measure_paths must be absolute paths, not {', '.join(map(str, relative))}")
    if inputs["gpus"] < 0:
        findings.append(f"measure_gpus is {inputs['gpus']}; a number of GPUs, or 0 for those that the node has")
    if nodes and not through_slurm:
        findings.append("measure_nodes is for measure_launcher srun; otherwise measure_hosts names the hosts")
    if through_slurm:
        findings += _slurm_problems(inputs, hosts)
    return findings


def _slurm_problems(inputs: t.Mapping[str, t.Any], hosts: int) -> list[str]:
    findings = []
    if hosts != 1:
        findings.append(f"measure_launcher srun starts everything on one login node, but the play has {hosts} hosts")
    if not inputs["nodes"]:
        findings.append("measure_launcher srun needs measure_nodes, the names of the nodes in Slurm")
    if not inputs["sku"] and not inputs["gpus"]:
        findings.append("measure_launcher srun needs measure_sku or measure_gpus: the login node does not see the GPUs")
    return findings


def _sku_problems(sku: str, site: Path | None) -> list[str]:
    """A site's profile that cannot be used is a problem, too."""
    try:
        if not sku or (is_name(sku) and load(sku, site=site)["known"]):
            return []
        close = alike(sku, site)
        known = f"near are {', '.join(close)}" if close else f"known are {', '.join(names(site))}"
        return [f"measure_sku is {sku!r}, which has no profile; {known}"]
    except ProfileError as exc:
        return [f"measure_sku is {sku!r}, which has no profile that can be used: {exc}"]


def _place(profile_dir: t.Any) -> Path | None:
    return Path(str(profile_dir)) if profile_dir else None


def recognised(gpus: t.Sequence[t.Mapping[str, t.Any]], site: Path | None = None) -> str:
    """Return the machine type whose GPUs these are, or an empty string.

    The model alone proves nothing, since other makers build the same GPUs into other machines, whose limits nobody
    knows. The PCI domains of the GPUs do: clouds give each GPU a domain of its own. One GPU may be missing.
    """
    fitting = []
    for name in names(site):
        profile = load(name, site=site)
        places = {str(gpu["pci_domain"]).lower() for gpu in (profile.get("topology") or {}).get("gpus") or []}
        model = str((profile.get("gpu") or {}).get("model") or "")
        if not model or len(places) < 2 or not gpus:
            continue
        domains = {_domain(gpu.get("bus_id")) for gpu in gpus}
        same = all(model.lower() in str(gpu.get("name") or "").lower() for gpu in gpus)
        if same and len(domains) == len(gpus) and domains <= places and len(domains) >= len(places) - 1:
            fitting.append(name)
    return fitting[0] if len(fitting) == 1 else ""


def _unjudged(gpus: t.Sequence[t.Mapping[str, t.Any]], site: Path | None) -> str:
    """Return how a machine of no known type can be judged, with the profiles whose GPUs are these."""
    models = sorted({str(gpu.get("name") or "") for gpu in gpus} - {""})
    if not models:
        return ""
    fitting = []
    for name in names(site):
        model = str((load(name, site=site).get("gpu") or {}).get("model") or "").lower()
        if model and all(model in answered.lower() for answered in models):
            fitting.append(name)
    way = "no profile has such GPUs: draft_profile.yml writes one from what is measured here"
    if fitting:
        way = f"machine types with such GPUs are {', '.join(fitting)}; -e measure_sku=<yours> has it judged"
    return f"{', '.join(models)}: no machine type was named and none is recognised, so no speed is expected; {way}"


def _domain(bus_id: t.Any) -> str:
    place = address(str(bus_id or ""))
    return f"{place[0]:04x}" if place else ""


def machine(
    gpus: t.Sequence[t.Mapping[str, t.Any]],
    sku: str,
    count: int,
    overrides: t.Mapping[str, t.Any],
    profile_dir: str = "",
) -> Json:
    """Return what the modules are told of a machine: its profile's limits.

    Of an unknown type no speed and no number of GPUs is expected; what is a fault of every GPU is one there as well.
    """
    site = _place(profile_dir)
    name = sku or recognised(gpus, site)
    profile = load(name or GENERIC, site=site)
    profile = override(profile if name else {**profile, "expect": _of_every_gpu(gpus)}, overrides)
    expected = int((profile.get("gpu") or {}).get("count") or 0)
    memory = [gpu["memory_total_mib"] for gpu in gpus if gpu.get("memory_total_mib")]
    known = (profile.get("gpu") or {}).get("memory_mib")
    memory_mib = int(min(memory) if memory else known or 0)
    nccl, fabric = profile.get("nccl") or {}, profile.get("infiniband") or {}
    tests = nccl.get("tests") or {}
    return {
        "sku": name,
        "unjudged": "" if name or overrides.get("expect") else _unjudged(gpus, site),
        "profile": profile,
        "gpus": count or expected or len(gpus),
        # Without a profile and without a number that somebody asked for, any number of GPUs may answer.
        "gpus_expected": count or expected,
        "gpu_memory_mib": memory_mib,
        "collectives": list(tests.get("collectives") or ["all_reduce"]),
        "max_size": str(tests.get("max_size") or _max_size(memory_mib)),
        "fabric": bool(fabric.get("count")),
        "ports": int(fabric.get("count") or 0),
        "devices": list(fabric.get("devices") or []),
        "environment": dict(nccl.get("environment") or {}),
        "topology_file": nccl.get("topology_file") or "",
    }


def _of_every_gpu(gpus: t.Sequence[t.Mapping[str, t.Any]]) -> list[Json]:
    """Return the limits that hold for every NVIDIA GPU, of what all of these report."""
    reported = {check for check, values in _FAULTS.items() if gpus and all(None not in values(gpu) for gpu in gpus)}
    return [limit for limit in of_bases("_nvidia", "_row_remapping") if limit["check"] in reported]


def _values(facts: t.Mapping[str, t.Any] | None, *keys: str) -> tuple[t.Any, ...]:
    return tuple((facts or {}).get(key) for key in keys)


def _max_size(memory_mib: int) -> int:
    """Return the largest size of nccl-tests, a power of two: three buffers of it and NCCL's own fit on a GPU."""
    size = 8 * _GIB
    while memory_mib and size > memory_mib * (1 << 20) // 4:
        size //= 2
    return size


def records(
    results: t.Sequence[t.Mapping[str, t.Any]],
    tests: t.Sequence[str],
    nodes: t.Sequence[str],
    launcher: str = "local",
    stopped: str = "",
) -> list[Json]:
    """Return the records of one host: what is missing on it is skipped, with the way to get it.

    Every test that was asked for has a record of every node. Where measuring stopped, the rest is an error.
    """
    check_records = [_advised(check_record) for result in results for check_record in _checks(result)]
    seen = {(check_record["node"], check_record["check"]) for check_record in check_records}
    planned = [(node, check) for node in nodes for test in tests for check in CHECKS[test]]
    for node, check in planned:
        if (node, check) not in seen:
            verdict, reason = ("error", stopped) if stopped else ("skipped", _why(check, launcher))
            check_records.append(record(check, node, time=time.time(), verdict=verdict, reason=reason))
    return check_records


def _checks(result: t.Any) -> t.Iterator[Json]:
    """Yield the records of a registered result, that of a loop included."""
    if not isinstance(result, t.Mapping):
        return
    for check_record in result.get("checks") or []:
        yield dict(check_record)
    for inner in result.get("results") or []:
        yield from _checks(inner)


def _advised(check_record: Json) -> Json:
    """A program that is not there is no fault of the machine, as long as the reason says how to get it."""
    advice = _ADVICE.get(check_record["check"])
    if check_record["verdict"] != "error" or not advice or not check_record["context"].get("missing"):
        return check_record
    return {**check_record, "verdict": "skipped", "class": None, "reason": f"{check_record['reason']}; {advice}"}


def _why(check: str, launcher: str) -> str:
    if launcher == "srun" and check in ("dcgm_health", "gpu_count", "infiniband_ports", "storage_bandwidth"):
        return _ON_THE_NODE
    if check == "storage_bandwidth":
        return "no directory was named: set measure_paths, such as ['/mnt/scratch']"
    if launcher == "srun" and check == "hpl":
        return "its size and its place are not known: set measure_sku and measure_shared_dir, which all nodes see"
    if check in ("dcgm_diag", "dcgm_health", "gpu_bandwidth", "nccl_tests", "hpl"):
        return "no GPU answers"
    return "it was not measured"


def failures(hosts: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Return why each host was not measured to its end, from its variables."""
    return [_failure(host) for host in hosts]


def _failure(host: t.Mapping[str, t.Any]) -> str:
    stopped, ping = host.get("__measure_stopped"), host.get("__measure_ping") or {}
    if stopped:
        return str(stopped)
    if "ping" in ping:
        return "the connection was lost while it was measured"
    answer = str(ping.get("module_stderr") or ping.get("msg") or "no answer")
    way = "; ansible_python_interpreter names a Python that the host has" if ping.get("rc") in (126, 127) else ""
    return f"not reached: {' '.join(answer.split())}{way}"


def lines(check_records: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Return a line for each record: about what, the verdict, the numbers, the reason."""
    return [_line(check_record) for check_record in check_records]


def bad(check_records: t.Sequence[t.Mapping[str, t.Any]], verdicts: t.Sequence[str]) -> list[str]:
    """Return the lines of the records that have one of the verdicts."""
    return [_line(check_record) for check_record in check_records if check_record["verdict"] in verdicts]


def _line(check_record: t.Mapping[str, t.Any]) -> str:
    group = (check_record.get("scope") or {}).get("group") or []
    about = check_record.get("node") or compress([str(name) for name in group]) or "several nodes"
    collective = (check_record.get("context") or {}).get("collective")
    head = f"{about} {check_record['check']}{f' {collective}' if collective else ''}: {check_record['verdict']}"
    return "; ".join([head, *filter(None, [_numbers(check_record.get("metrics") or []), check_record.get("reason")])])


def _numbers(metrics: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """Return lowest and highest value of each metric; of NCCL the peak, not every size."""
    peak = any(item["name"] == "busbw_peak" for item in metrics)
    values: dict[tuple[str, str], list[float]] = {}
    for item in metrics:
        if item["value"] is not None and (not peak or item["name"] == "busbw_peak"):
            values.setdefault((item["name"], item["unit"]), []).append(item["value"])
    return ", ".join(f"{name} {_span(of_metric)} {unit}" for (name, unit), of_metric in values.items())


def _span(values: t.Sequence[float]) -> str:
    low, high = (_plain(value) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _plain(value: float) -> str:
    """Return four digits of a number, and all of a larger one's: 81559 MiB, not 8.156e+04."""
    return f"{value:.0f}" if 10_000 <= abs(value) < 1e15 else f"{value:.4g}"
