# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""infiniband_bandwidth: what is asked for, and the program that does it. Pure, private."""

from __future__ import annotations

import re
import secrets
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _measure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._source import text_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import payload, place

TESTS = ["ib_write_bw", "ib_read_bw", "ib_send_bw"]
# Above the TCP ports that the kernel hands out by itself; two runs at a time on a node must not meet.
PORT, SPAN, RUNS = 61000, 16, 280
# Seconds that a client tries to reach its server: the two nodes do not begin at the same moment, and CUDA is slow.
WINDOW = 30
_NIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(:[0-9]{1,3})?")
# What has an option here must not be given twice; -b makes a sum of both directions, the rest another output.
_OWN = re.compile(
    r"-[dipsDfFabnw].*|--(ib-dev|ib-port|port|size|duration|margin|CPU-freq|all|bidirectional|iters|limit_bw"
    r"|report_gbits|report-both|output|out_json|run_infinitely|use_cuda|reversed).*"
)

SPEC: Json = {
    "test": {"type": "str", "default": "ib_write_bw", "choices": TESTS},
    "path": {"type": "str"},
    "devices": {"type": "list", "elements": "str", "default": []},
    "partner": {"type": "str", "default": "same", "choices": ["same", "next"]},
    "size": {"type": "int", "default": 8388608},
    "duration": {"type": "int", "default": 5},
    "use_cuda": {"type": "bool", "default": False},
    "gpus": {"type": "dict", "default": {}},
    "topology": {"type": "dict"},
    "link_layer": {"type": "str", "default": "InfiniBand", "choices": ["InfiniBand", "Ethernet"]},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "python": {"type": "str", "default": "python3"},
    "timeout": {"type": "float", "default": 600},
    **_measure.SPEC,
    **_measure.NODE,
    **_measure.SYSFS,
}


class BandwidthError(ValueError):
    """What was asked for makes no sense; the text is fit for the user."""


def validate(params: t.Mapping[str, t.Any], launch: Launch) -> None:
    """Refuse what cannot be measured or judged, before anything starts."""
    for expectation in params["expect"]:
        validate_expectation(expectation)
    if launch.kind == "mpirun" or launch.ranks_per_node != 1 or launch.cpu_masks or params["visible_devices"]:
        raise BandwidthError("launcher is local or srun, without ranks_per_node, cpu_masks and visible_devices")
    if launch.nodes > 2 or (launch.nodes > 1 and params["partner"] == "next"):
        raise BandwidthError(f"{launch.nodes} nodes: one node for loopback, also to the next port, or a pair of nodes")
    if params["duration"] < 3 or not 1 <= params["size"] <= 1 << 30:
        raise BandwidthError(f"duration {params['duration']} (at least 3 s), size {params['size']} (1 to 2^30 bytes)")
    devices = params["devices"]
    bad = [name for name in devices if not _NIC.fullmatch(name)]
    if bad or len(set(devices)) != len(devices):
        raise BandwidthError(
            f"devices must be names such as mlx5_ib0 or mlx5_0:2, each once, not {', '.join(bad or devices)}"
        )
    if len(devices) > SPAN:
        raise BandwidthError(f"{len(devices)} devices, at most {SPAN} at a time")
    bad = [word for word in params["arguments"] if _OWN.fullmatch(word)]
    if bad:
        raise BandwidthError(f"arguments {' '.join(bad)}: this module sets them, or cannot read what comes of them")


def gpus(params: t.Mapping[str, t.Any]) -> dict[str, int]:
    """Return the GPU of each port for GPUDirect; GPUs that share ports get one each as far as they last."""
    if not params["use_cuda"]:
        return {}
    found = {str(nic): _index(nic, gpu) for nic, gpu in params["gpus"].items()}
    listed = (params["topology"] or {}).get("gpus") or []
    near: list[tuple[int, list[str]]] = [
        (_index("topology", gpu.get("index")), gpu.get("nics") or []) for gpu in listed
    ]
    for nic in sorted({nic for dummy, nics in near for nic in nics}, key=place.natural):
        able = [index for index, nics in near if nic in nics]
        free = [index for index in able if index not in found.values()]
        found.setdefault(nic, (free or able)[0])
    missing = [nic for nic in params["devices"] if nic.partition(":")[0] not in found and nic not in found]
    if not found or missing:
        raise BandwidthError(
            f"use_cuda needs gpus or topology, which name the GPU of {', '.join(missing) or 'each port'}"
        )
    return found


def _index(where: str, value: t.Any) -> int:
    if isinstance(value, bool) or not str(value).isdigit():
        raise BandwidthError(f"GPU of {where} is {value!r}, a number is needed")
    return int(value)


def task(params: t.Mapping[str, t.Any], nodes: int) -> Json:
    """Return what the program on the nodes is told."""
    options = ["-s", str(params["size"]), "-D", str(params["duration"]), "-f", "1", "-F", "--report_gbits"]
    return {
        "program": program(params["path"], params["test"]),
        "options": [*options, *params["arguments"]],
        "devices": params["devices"],
        "gpus": gpus(params),
        "link_layer": params["link_layer"],
        "partner": params["partner"],
        "sysfs": params["sysfs"],
        "nodes": nodes,
        "port": PORT + SPAN * secrets.randbelow(RUNS),
        "window": WINDOW,
        "limit": params["duration"] + WINDOW,
    }


def program(path: str | None, test: str) -> str:
    """Return the program; a path is a directory, or the program itself."""
    if not path:
        return test
    return path if path.rstrip("/").rpartition("/")[2] == test else f"{path.rstrip('/')}/{test}"


def source() -> str:
    """Return the text of the program, also from inside the zip file that Ansible makes of a module."""
    return text_of(payload)
