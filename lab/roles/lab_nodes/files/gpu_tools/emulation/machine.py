# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine that all tools describe: a JSON file, what is broken about it, and what this process may see of it.

Tests call the tools thousands of times, and to import costs most of a call: no dataclasses, which bring inspect.
"""

from __future__ import annotations

import json
import os
import typing as t
import zlib
from pathlib import Path

DESCRIPTION = "/etc/lab/machine.json"
FAULTS = "/etc/lab/faults.json"
FAULT_NAMES = (
    "clipped_clocks",
    "dcgm",
    "ecc",
    "failing",
    "hot",
    "hpl_failed",
    "hung",
    "ib_down",
    "ib_slow",
    "lost_gpu",
    "missing_gpu",
    "nccl_error",
    "no_locked_clocks",
    "no_mpi",
    "nvlink_down",
    "pcie_width",
    "processes",
    "remap",
    "reset_required",
    "slow_gpu",
    "slow_storage",
    "socket_network",
    "throttle",
    "wrong_results",
)

Json = t.Dict[str, t.Any]


class Gpu(t.NamedTuple):
    """One GPU; ``index`` is its place on the intact machine, which faults are told by."""

    index: int
    bus_id: str
    numa_node: int
    uuid: str
    serial: str
    nic: str

    @property
    def short_bus_id(self) -> str:
        """The bus id as CUDA programs print it."""
        return self.bus_id[4:].rsplit(".", 1)[0].lower()


class Machine:
    """A description and its faults, as one host has them."""

    def __init__(self, description: Json, faults: Json, host: str) -> None:
        unknown = sorted(set(faults) - set(FAULT_NAMES))
        if unknown:
            raise SystemExit(
                f"faults of the emulated tools: {', '.join(unknown)} unknown; known: {', '.join(FAULT_NAMES)}"
            )
        self.description = description
        self.faults = faults
        self.host = host
        self._others: dict[str, Machine] = {host: self}

    def __getitem__(self, key: str) -> t.Any:
        return self.description[key]

    def hangs(self, tool: str) -> bool:
        return tool in (self.faults.get("hung") or [])

    def fault(self, name: str, label: object, default: t.Any = None) -> t.Any:
        """What a fault says about one GPU or NIC; JSON has no integers as keys."""
        return (self.faults.get(name) or {}).get(str(label), default)

    def listed(self, name: str, label: object) -> bool:
        return str(label) in [str(item) for item in self.faults.get(name) or []]

    def gpus(self) -> list[Gpu]:
        """The GPUs that the driver would list, in bus order; a cgroup without a device hides it."""
        return [gpu for gpu in self.all_gpus() if not self.listed("missing_gpu", gpu.index) and _allowed(gpu.index)]

    def all_gpus(self) -> list[Gpu]:
        return [Gpu(**fields) for fields in self["gpus"]]

    def cuda_gpus(self, visible: str | None = None) -> list[Gpu]:
        """The GPUs of a CUDA program: CUDA_VISIBLE_DEVICES chooses and orders, and ends at the first that is none."""
        gpus = self.gpus()
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
        if chosen is None:
            return gpus
        found: list[Gpu] = []
        for word in chosen.split(","):
            hits = [gpu for number, gpu in enumerate(gpus) if word.strip() in (str(number), gpu.uuid)]
            if not hits:
                break
            found += hits
        return found

    def speed(self, gpu: Gpu) -> float:
        """What is left of a GPU's speed."""
        return float(self.fault("slow_gpu", gpu.index, 1.0))

    def width(self, gpu: Gpu) -> int:
        return int(self.fault("pcie_width", gpu.index, self["gpu"]["pcie_width"]))

    def active_links(self, gpu: Gpu) -> int:
        return int(self["gpu"]["nvlinks"]) - len(self.fault("nvlink_down", gpu.index, []))

    def jitter(self, *what: object, spread: float = 0.004) -> float:
        """A factor around one that is the same whenever the same thing is measured on the same host."""
        text = "/".join(str(word) for word in (self.host, *what))
        return 1 + spread * (2 * zlib.crc32(text.encode()) / 0xFFFFFFFF - 1)

    def other(self, host: str) -> Machine:
        """The machine of another node of the same lab, as it is when it is first asked for."""
        if host not in self._others:
            self._others[host] = load(host)
        return self._others[host]


def hostname() -> str:
    return os.environ.get("GPU_TOOLS_HOST") or os.uname().nodename.split(".")[0]


def load(host: str | None = None) -> Machine:
    """Read the description, and the faults that all hosts and this one have."""
    host = host or hostname()
    path = Path(os.environ.get("GPU_TOOLS_FAULTS") or FAULTS)
    faults = {**_read(path), **_read(path.with_suffix("") / f"{host}.json")}
    return Machine(_read(Path(os.environ.get("GPU_TOOLS_MACHINE") or DESCRIPTION)), faults, host)


def _read(path: Path) -> Json:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except ValueError as exc:
        raise SystemExit(f"{path} is no JSON object: {exc}") from exc


def _allowed(index: int) -> bool:
    """Whether the cgroup lets this process open the device; any other error is that of a device without a driver."""
    try:
        os.close(os.open(f"/dev/nvidia{index}", os.O_RDWR))
    except PermissionError:
        return False
    except OSError:
        return True
    return True
