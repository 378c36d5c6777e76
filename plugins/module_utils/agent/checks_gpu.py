# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of the module gpu_info, run by the agent, and a count that needs no driver. Private, stdlib only."""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, compare, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import node_access
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.read import BrokenError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.sysfs import pci_gpus

# The checks of the module gpu_info, run by the agent, and a count that needs no driver. Private, stdlib only.


# nvidia-smi runs three times. With 8 GPUs it takes two seconds, without persistence mode ten; in an epilog users wait
# for it, and get less.
TIMEOUT, IMPATIENT = 12.0, 8.0


class Gpus(t.NamedTuple):
    """What was read of the GPUs, and what is expected of them."""

    seen: t.Any
    options: t.Any
    time: float
    seconds: float


def read(context: Context) -> Gpus:
    """Read once for all checks of a suite."""
    return t.cast(Gpus, context.once("gpus", lambda: _read(context)))


def unstuck(context: Context) -> None:
    """Refuse to start nvidia-smi where one hangs in the kernel: the next one would, too, every few minutes."""
    pids = node_access.hung(context.config.proc, "nvidia-smi")
    if pids:
        raise BrokenError(f"nvidia-smi ({', '.join(map(str, pids[:3]))}) hangs in the kernel; only a reboot ends that")


def _read(context: Context) -> Gpus:
    """Read all GPUs once, with less patience in an epilog, which the next job waits for."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import info
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.inventory import read as read_nvidia_smi

    config, profile = context.config, context.config.profile
    unstuck(context)
    timeout = IMPATIENT if context.suite == "epilog" else TIMEOUT
    params = {
        "name": config.node,
        "gpus": config.gpus,
        "model": (profile.get("gpu") or {}).get("model"),
        "topology": (profile.get("topology") or {}).get("gpus") or [],
        "timeout": timeout,
        "expect": config.expect,
        "run": context.run,
        "profile": profile.get("profile"),
    }
    options = info.options(params, config.node)
    begin, start = context.now(), time.monotonic()
    reading = read_nvidia_smi(config.tools.get("nvidia_smi") or None, timeout, dict(config.environment))
    seen = info.see(reading, options, config.sysfs, None, config.proc)
    return Gpus(seen, options, begin, time.monotonic() - start)


def inventory(context: Context) -> list[Json]:
    """Judge the inventory that nvidia-smi prints."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import info

    seen, options, begin, seconds = read(context)
    return context.adopt(info.result(seen, options, list(info.CHECKS), begin, seconds)["checks"])


def devices(context: Context) -> list[Json]:
    """Count the GPUs on the PCI bus: one that fell off it is gone from there, and sysfs answers at once."""
    folder = Path(context.config.sysfs, "bus/pci/devices")
    if not folder.is_dir():
        return [context.record("gpu_devices", verdict="error", reason=f"{folder} is not there")]
    counted = metric("gpus", len(pci_gpus(context.config.sysfs)), "GPUs")
    if not context.config.gpus:
        return [context.record("gpu_devices", metrics=[counted])]
    expected = {"metric": "gpus", "op": ">=", "value": context.config.gpus, "unit": "GPUs", "source": "profile"}
    return [context.record("gpu_devices", metrics=[compare(counted, expected)])]
