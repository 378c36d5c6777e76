# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a machine type, made of its profile: sound, and a little faster than the profile expects. Pure."""

from __future__ import annotations

import hashlib
import typing as t

Json = t.Dict[str, t.Any]

# Per compute capability: architecture, GB/s of one NVLink, TFLOP/s in double precision, PCIe generation.
_ARCHITECTURES = {
    "7.0": ("Volta", 25.781, 6.5, 3),
    "8.0": ("Ampere", 25.0, 12.5, 4),
    "8.9": ("Ada Lovelace", 0.0, 1.4, 4),
    "9.0": ("Hopper", 26.562, 45.0, 5),
    "10.0": ("Blackwell", 53.125, 35.0, 5),
}
# What a PCIe lane of a generation copies in practice, GB/s.
_LANE = {3: 0.78, 4: 1.6, 5: 3.3}
# Collectives that no expectation names, as a share of all_reduce: in a node, and between nodes by adapters alone.
_SHARES = {
    "all_gather": (0.98, 0.98),
    "alltoall": (0.95, 0.2),
    "broadcast": (0.97, 0.95),
    "gather": (0.9, 0.2),
    "hypercube": (0.5, 0.1),
    "reduce": (0.97, 0.95),
    "reduce_scatter": (0.98, 0.98),
    "scatter": (0.9, 0.2),
    "sendrecv": (0.95, 0.12),
}
ETHERNET = {"name": "mlx5_an0", "bus_id": "0000F0A1:00:02.0", "numa_node": 0, "rate": 100, "link_layer": "Ethernet"}


def describe(profile: t.Mapping[str, t.Any]) -> Json:
    """Return what the emulated tools read; whatever a profile leaves open gets a plain value."""
    numa = _numa(profile)
    gpus = _gpus(profile)
    kind = _gpu(profile)
    return {
        "sku": profile["sku"],
        "driver": "550.90.07-emulated",
        "cuda": "12.4",
        "nvbandwidth": "v0.8-emulated",
        "nccl": {"version": "2.21.5", "code": 22105, "tests": "2.17.6-emulated"},
        "seconds": 0.2,
        "gpu": kind,
        "gpus": gpus,
        "numa": numa,
        "nics": _nics(profile, gpus),
        "nvme": dict(profile.get("nvme") or {}),
        "speed": _speed(profile, kind),
        "busbw": {"1": _collectives(profile, 1, kind), "2": _collectives(profile, 2, kind)},
        "storage": {way: round(1.1 * _most(profile, "storage_bandwidth", way, 5.0), 2) for way in ("read", "write")},
    }


def _most(profile: t.Mapping[str, t.Any], check: str, metric: str, default: float, **labels: t.Any) -> float:
    """The highest floor that the profile has for a metric."""
    values = [
        float(one["value"])
        for one in profile["expect"]
        if one["check"] == check
        and one["metric"] == metric
        and one["op"] in (">=", ">", "==")
        and all(one.get(key) in (None, value) for key, value in labels.items())
    ]
    return max(values, default=default)


def _numa(profile: t.Mapping[str, t.Any]) -> list[Json]:
    nodes, cpus = profile.get("numa_nodes") or 1, profile.get("vcpus") or 1
    share = cpus // nodes
    return [{"node": node, "cpus": f"{node * share}-{(node + 1) * share - 1}"} for node in range(nodes)]


def _gpus(profile: t.Mapping[str, t.Any]) -> list[Json]:
    count = profile["gpu"]["count"] or 0
    places = (profile.get("topology") or {}).get("gpus") or [{} for dummy in range(count)]
    found = []
    for index, place in enumerate(places):
        domain = int(str(place.get("pci_domain") or f"{index + 1:x}"), 16)
        mark = hashlib.sha256(f"{profile['sku']}/{index}".encode()).hexdigest()
        found.append(
            {
                "index": index,
                "bus_id": f"{domain:08X}:00:00.0",
                "numa_node": place.get("numa_node", 0),
                "uuid": f"GPU-{mark[:8]}-{mark[8:12]}-{mark[12:16]}-{mark[16:20]}-{mark[20:32]}",
                "serial": str(int(mark[:10], 16)).zfill(13)[:13],
                "nic": place.get("nic") or "",
            }
        )
    return found


def _gpu(profile: t.Mapping[str, t.Any]) -> Json:
    gpu = profile["gpu"]
    capability = str(gpu.get("compute_capability") or "8.0")
    architecture, link, dummy, generation = _ARCHITECTURES.get(capability, _ARCHITECTURES["8.0"])
    clocks = dict(gpu.get("max_clocks") or {"graphics": 1980, "memory": 2619})
    links = int(_most(profile, "gpu_nvlink", "links_active", 0))
    return {
        "name": f"NVIDIA {gpu['model']}",
        "memory_mib": gpu["memory_mib"],
        "compute_capability": capability,
        "architecture": architecture,
        "max_clocks": clocks,
        "default_graphics": clocks["graphics"] * 777 // 1000 // 15 * 15,
        "pcie_generation": int(_most(profile, "gpu_pcie", "generation_max", generation)),
        "pcie_width": int(_most(profile, "gpu_pcie", "width", 16)),
        "nvlinks": links,
        "nvlink_speed": link,
        "power_limit": 400,
        "fabric": links > 0 and float(capability) >= 9,
    }


def _nics(profile: t.Mapping[str, t.Any], gpus: list[Json]) -> list[Json]:
    """The InfiniBand adapters near their GPUs, and the Ethernet one that every machine with them has as well."""
    found = []
    ports = profile.get("infiniband") or {}
    names = ports.get("devices") or [f"mlx5_{number}" for number in range(ports.get("count") or 0)]
    for number, name in enumerate(names):
        near = [gpu["numa_node"] for gpu in gpus if gpu["nic"] == name] or [0]
        place = {"name": name, "bus_id": f"{0x101 + number:08X}:00:00.0", "numa_node": near[0]}
        found.append({**place, "rate": ports["rate_gbps"], "link_layer": "InfiniBand"})
    return [*found, ETHERNET] if found else []


def _speed(profile: t.Mapping[str, t.Any], kind: Json) -> Json:
    """GB/s of copies, TFLOP/s of one GPU, latency in nanoseconds."""
    pcie = _LANE.get(kind["pcie_generation"], 3.3) * kind["pcie_width"]
    flops = _ARCHITECTURES.get(kind["compute_capability"], _ARCHITECTURES["8.0"])[2]
    count = profile["gpu"]["count"] or 1
    return {
        "h2d": round(max(pcie, 1.05 * _most(profile, "gpu_bandwidth", "h2d", 0)), 2),
        "d2h": round(max(0.97 * pcie, 1.05 * _most(profile, "gpu_bandwidth", "d2h", 0)), 2),
        "d2d": round(max(1300.0, 1.05 * _most(profile, "gpu_bandwidth", "d2d", 0)), 2),
        "p2p": round(0.9 * kind["nvlinks"] * kind["nvlink_speed"] or 0.8 * pcie, 2),
        "tflops": round(max(flops, 1.05 * _most(profile, "hpl", "tflops", 0, nodes=1) / count), 3),
        "latency_ns": 650.0,
    }


def _collectives(profile: t.Mapping[str, t.Any], nodes: int, kind: Json) -> Json:
    """GB/s of bus bandwidth at large sizes, in one node or between nodes."""
    expect = [one for one in profile["expect"] if one["check"] == "nccl_tests" and one["metric"] == "busbw"]
    floors: dict[str, float] = {}
    for one in expect:
        if one.get("nodes") in (None, nodes) and (one.get("min_nodes") or 1) <= nodes:
            name = str(one["collective"])
            floors[name] = max(floors.get(name, 0.0), float(one["value"]))
    links, ports = kind["nvlinks"] * kind["nvlink_speed"], profile.get("infiniband") or {}
    network = (ports.get("count") or 1) * (ports.get("rate_gbps") or 25) / 8
    plain = network if nodes > 1 else 0.8 * links or 20.0
    top = 1.03 * floors["all_reduce"] if "all_reduce" in floors else 0.93 * plain
    speeds = {"all_reduce": top, **{name: share[nodes - 1] * top for name, share in _SHARES.items()}}
    speeds.update({name: 1.03 * value for name, value in floors.items()})
    return {name: round(value, 2) for name, value in speeds.items()}
