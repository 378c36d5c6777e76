# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be expected of a machine: the metrics of every check and their units. Private.

An expectation in another unit than its metric's would stop the module that measures, so it is refused where it is read.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._agent_metrics import AGENT


class Metric(t.NamedTuple):
    """A number that a check has for each thing that its labels name."""

    unit: str
    meaning: str
    labels: str = ""


class Check(t.NamedTuple):
    """A check, the module that measures it and its metrics."""

    module: str
    metrics: t.Mapping[str, Metric]


_RUN = "collective, size"
CHECKS: dict[str, Check] = {
    "cpu_count": Check("node_checks", {"cpus": Metric("cpus", "CPUs that the kernel has online")}),
    "memory": Check(
        "node_checks",
        {name: Metric("bytes", f"{name} memory") for name in ("total", "available")},
    ),
    "disk_space": Check(
        "node_checks",
        {
            "size": Metric("bytes", "size of the file system", "path"),
            "free": Metric("bytes", "what is free of it", "path"),
        },
    ),
    "clock_skew": Check("node_checks", {"skew": Metric("s", "distance to the cluster's clock")}),
    "munge": Check("node_checks", {"round_trip": Metric("s", "time to make and decode a credential")}),
    "gpu_count": Check("gpu_info", {"gpus": Metric("GPUs", "GPUs that answer")}),
    "gpu_model": Check("gpu_info", {"memory": Metric("MiB", "memory of the GPU", "gpu")}),
    "gpu_ecc": Check(
        "gpu_info",
        {
            "volatile_uncorrected": Metric("errors", "uncorrected since the driver was loaded", "gpu"),
            "aggregate_uncorrected": Metric("errors", "uncorrected in the GPU's life", "gpu"),
            "volatile_corrected": Metric("errors", "corrected since the driver was loaded", "gpu"),
        },
    ),
    "gpu_remap": Check(
        "gpu_info",
        {
            "remapped_correctable": Metric("rows", "rows remapped for corrected errors", "gpu"),
            "remapped_uncorrectable": Metric("rows", "rows remapped for uncorrected errors", "gpu"),
            "remap_pending": Metric("flags", "1 if a row waits for a reset", "gpu"),
            "remap_failed": Metric("flags", "1 if no spare row was left", "gpu"),
            "retired_pages": Metric("pages", "pages taken out of use, before Ampere", "gpu"),
        },
    ),
    "gpu_pcie": Check(
        "gpu_info",
        {
            "width": Metric("lanes", "lanes in use", "gpu"),
            "generation_max": Metric("generation", "highest generation that GPU and slot agree on", "gpu"),
        },
    ),
    "gpu_nvlink": Check("gpu_info", {"links_active": Metric("links", "NVLinks that are up", "gpu")}),
    "gpu_throttle": Check(
        "gpu_info", {"throttle_faults": Metric("bits", "reasons to throttle that are faults (mask 0xE8)", "gpu")}
    ),
    "gpu_temperature": Check("gpu_info", {"temperature": Metric("C", "temperature of the GPU", "gpu")}),
    "gpu_topology": Check("gpu_info", {"misplaced": Metric("GPUs", "GPUs on another NUMA node than the profile's")}),
    "gpu_pinning": Check(
        "gpu_info", {"misplaced": Metric("processes", "processes that may run away from their GPU's CPUs")}
    ),
    "gpu_clocks": Check(
        "gpu_clocks",
        {
            "graphics": Metric("MHz", "graphics clock that was reached", "gpu"),
            "memory": Metric("MHz", "memory clock that was reached", "gpu"),
            "persistence": Metric("flags", "1 if persistence mode is on", "gpu"),
        },
    ),
    "gpu_bandwidth": Check(
        "gpu_bandwidth",
        {
            "h2d": Metric("GB/s", "host to device, pinned memory on the GPU's NUMA node", "gpu"),
            "d2h": Metric("GB/s", "device to host, the same way", "gpu"),
            "d2d": Metric("GB/s", "inside the device", "gpu"),
        },
    ),
    "gpu_p2p": Check(
        "hpcai-agent", {"read": Metric("GB/s", "one GPU of the node reading from another one", "gpu, peer")}
    ),
    "nccl_loopback": Check(
        "hpcai-agent",
        {
            "busbw": Metric("GB/s", "bus bandwidth in the node, through its adapters", _RUN),
            "wrong": Metric("checks", "checks with a wrong result", "collective"),
        },
    ),
    "nccl_pair": Check(
        "certification",
        {
            "busbw": Metric("GB/s", "bus bandwidth between two nodes, NVLink off", _RUN),
            "wrong": Metric("checks", "checks with a wrong result", "collective"),
        },
    ),
    "nccl_rail": Check(
        "certification",
        {
            "busbw": Metric("GB/s", "bus bandwidth of one rail between two nodes", _RUN),
            "wrong": Metric("checks", "checks with a wrong result", "collective"),
        },
    ),
    "nccl_tests": Check(
        "nccl_tests",
        {
            "busbw": Metric("GB/s", "bus bandwidth out of place", _RUN),
            "busbw_in_place": Metric("GB/s", "bus bandwidth in place", _RUN),
            "busbw_peak": Metric("GB/s", "highest bus bandwidth of all sizes", "collective"),
            "wrong": Metric("checks", "checks with a wrong result", "collective"),
            "ranks": Metric("ranks", "ranks that took part"),
        },
    ),
    "collective_test": Check(
        "collective_test",
        {
            "busbw": Metric("GB/s", "bus bandwidth of torch.distributed", _RUN),
            "busbw_peak": Metric("GB/s", "highest bus bandwidth of all sizes", "collective"),
            "wrong": Metric("values", "wrong values", "collective"),
        },
    ),
    "hpl": Check(
        "hpl",
        {
            "tflops": Metric("TFLOP/s", "double precision, of all ranks"),
            "tflops_per_gpu": Metric("TFLOP/s", "the same per GPU"),
            "residual_failures": Metric("tests", "runs whose residual is too large"),
        },
    ),
    "infiniband_ports": Check(
        "infiniband_info",
        {
            "rate": Metric("Gb/s", "rate of the link", "nic"),
            "active": Metric("ports", "InfiniBand ports that are Active and LinkUp"),
        },
    ),
    "infiniband_bandwidth": Check(
        "infiniband_bandwidth", {"bandwidth": Metric("Gb/s", "average at the largest size", "nic, test")}
    ),
    "opt_benchmark": Check(
        "opt_benchmark_info",
        {
            "words_per_second": Metric("words/s", "speed of metaseq's OPT benchmark, of all GPUs together", "model"),
            "words_per_second_per_gpu": Metric("words/s", "the same per GPU", "model"),
            "updates": Metric("updates", "optimizer steps that were made", "model"),
        },
    ),
    "storage_bandwidth": Check(
        "storage_bandwidth",
        {name: Metric("GB/s", f"sequential {name}", "path") for name in ("read", "write")},
    ),
    **{
        check: Check("hpcai-agent", {name: Metric(*named) for name, named in known.items()})
        for check, known in AGENT.items()
    },
}


def unit_problem(expectation: t.Mapping[str, t.Any]) -> str:
    """Say how an expectation's unit differs from its metric's; nothing for a check of the site's own."""
    check = CHECKS.get(str(expectation["check"]))
    known = check.metrics.get(str(expectation["metric"])) if check else None
    if known is None or known.unit == expectation["unit"]:
        return ""
    what = f"{expectation['check']} {expectation['metric']}"
    return f"{what} is measured in {known.unit}, its expectation is in {expectation['unit']}"
