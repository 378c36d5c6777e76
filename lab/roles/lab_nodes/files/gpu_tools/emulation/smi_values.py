# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi: what is set on the GPUs (kept until the node is restarted, as by a driver) and what follows from it."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

from emulation import smi_tree
from emulation.machine import Gpu, Json, Machine

STATE = "/run/gpu_tools/state.json"
IDLE_GRAPHICS = 210


class State:
    """Persistence and clocks of every GPU, by UUID."""

    def __init__(self) -> None:
        self.path = Path(os.environ.get("GPU_TOOLS_STATE") or STATE)
        try:
            self.gpus: Json = json.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            self.gpus = {}

    def of(self, gpu: Gpu) -> Json:
        return dict(self.gpus.setdefault(gpu.uuid, {}))

    def put(self, gpu: Gpu, **settings: t.Any) -> None:
        """Keep settings; None forgets one. Raises PermissionError for those who may not."""
        kept = {**self.of(gpu), **settings}
        self.gpus[gpu.uuid] = {key: value for key, value in kept.items() if value is not None}
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = self.path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(self.gpus, indent=1, sort_keys=True), encoding="utf-8")
        new.replace(self.path)


def clip(machine: Machine, gpu: Gpu, clock: int) -> int:
    """A GPU that may not run as fast as it should accepts the request and stays below it."""
    limit = machine.faults.get("clipped_clocks")
    limit = limit.get(str(gpu.index)) if isinstance(limit, dict) else limit
    return min(clock, int(limit)) if limit else clock


def persistent(state: Json) -> bool:
    return bool(state.get("persistence", True))


def graphics(machine: Machine, gpu: Gpu, state: Json) -> int:
    """The present clock of an idle GPU: a lock holds it, application clocks do not."""
    low, high = state.get("graphics", (IDLE_GRAPHICS, IDLE_GRAPHICS))
    top = machine["gpu"]["max_clocks"]["graphics"]
    return clip(machine, gpu, max(IDLE_GRAPHICS, min(low, high, top)))


def values(machine: Machine, gpu: Gpu, minor: int, state: Json) -> Json:
    """Everything that the tree asks for."""
    kind, top = machine["gpu"], machine["gpu"]["max_clocks"]
    default = {"graphics": kind["default_graphics"], "memory": top["memory"]}
    application = {**default, **state.get("application", {})}
    domain, bus, device = gpu.bus_id.upper().split(":")
    remap, heat = machine.fault("remap", gpu.index), machine.fault("hot", gpu.index)
    fabric = ("Completed", "Success", "0", "00000000-0000-0000-0000-000000000000") if kind["fabric"] else ("N/A",) * 4
    return {
        "name": kind["name"],
        "architecture": kind["architecture"],
        "persistence": "Enabled" if persistent(state) else "Disabled",
        "serial": gpu.serial,
        "uuid": gpu.uuid,
        "minor": minor,
        "module_id": gpu.index + 1,
        "reset_required": "Yes" if machine.listed("reset_required", gpu.index) else "No",
        "bus": bus,
        "device": device.split(".")[0],
        "domain": domain[4:],
        "bus_id": gpu.bus_id,
        "pcie_generation": kind["pcie_generation"],
        "pcie_width_max": kind["pcie_width"],
        "pcie_width": machine.width(gpu),
        **_memory(machine, gpu),
        "ecc": machine.fault("ecc", gpu.index, 0),
        # Pages were retired before rows were remapped.
        "retired": "N/A" if remaps(machine) else 0,
        "retiring": "N/A" if remaps(machine) else "No",
        "remapped": 1 if remap else 0,
        "remap_pending": "Yes" if remap == "pending" else "No",
        "remap_failed": "Yes" if remap == "failed" else "No",
        "temperature": heat or 32 + gpu.index % 4,
        "memory_temperature": heat or 31 + gpu.index % 4,
        "power": f"{56 * machine.jitter('power', gpu.index, spread=0.1):.2f}",
        "power_limit": kind["power_limit"],
        "graphics": graphics(machine, gpu, state),
        "memory": min([*state.get("memory", [top["memory"]]), top["memory"]]),
        "video": int(top["graphics"] * 0.915),
        "application_graphics": clip(machine, gpu, application["graphics"]),
        "application_memory": application["memory"],
        "default_graphics": default["graphics"],
        "max_graphics": top["graphics"],
        "max_memory": top["memory"],
        **{
            f"reason_{bit}": "Active" if mask(machine, gpu) & bit else "Not Active"
            for bit in map((1).__lshift__, range(9))
        },
        **dict(zip(("fabric_state", "fabric_status", "fabric_clique", "fabric_cluster"), fabric)),
    }


def remaps(machine: Machine) -> bool:
    return float(machine["gpu"]["compute_capability"]) >= 8


def everything(machine: Machine, gpu: Gpu, minor: int, state: Json) -> tuple[smi_tree.Node, ...]:
    """The whole tree of one GPU; where it repairs its memory otherwise a section is a plain N/A."""
    nodes = smi_tree.tree(values(machine, gpu, minor, state))
    if remaps(machine):
        return nodes
    return tuple(smi_tree.Node(n.xml, n.text, "N/A", "N/A", ()) if n.xml == "remapped_rows" else n for n in nodes)


def _memory(machine: Machine, gpu: Gpu) -> Json:
    total = int(machine["gpu"]["memory_mib"])
    used = 4 + sum(int(one.get("memory_mib", 0)) for one in processes(machine, gpu))
    window = 1 << (total - 1).bit_length()
    reserved = total // 66
    numbers = (total, reserved, used, total - reserved - used, window, window - 1)
    return dict(zip("memory_total memory_reserved memory_used memory_free bar1_total bar1_free".split(), numbers))


def mask(machine: Machine, gpu: Gpu) -> int:
    """Why the clocks are what they are; an idle GPU says so."""
    return int(str(machine.fault("throttle", gpu.index, "0x1")), 0)


def processes(machine: Machine, gpu: Gpu) -> list[Json]:
    return [one for one in machine.faults.get("processes") or [] if int(one["gpu"]) == gpu.index]
