# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of the module gpu_info, run by the agent, and a count that needs no driver. Private, stdlib only."""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import compare
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context

# nvidia-smi is asked three times. It tells of 8 GPUs within two seconds, without persistence mode within ten; who
# waits for an epilog does not wait that long.
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


def _read(context: Context) -> Gpus:
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _gpu_info as info
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _gpu_request as asked
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_read import read as ask

    config, profile = context.config, context.config.profile
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
    options = asked.options(params, config.node)
    begin, start = context.now(), time.monotonic()
    reading = ask(config.tools.get("nvidia_smi") or None, timeout, dict(config.environment))
    seen = info.see(reading, options, config.sysfs, None, config.proc)
    return Gpus(seen, options, begin, time.monotonic() - start)


def inventory(context: Context) -> list[Json]:
    """Judge what nvidia-smi says."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _gpu_info as info

    seen, options, begin, seconds = read(context)
    return context.adopt(info.result(seen, options, list(info.CHECKS), begin, seconds)["checks"])


def devices(context: Context) -> list[Json]:
    """Count the GPUs on the PCI bus: one that fell off it is gone from there, and sysfs answers at once."""
    places = Path(context.config.sysfs, "bus/pci/devices")
    if not places.is_dir():
        return [context.record("gpu_devices", verdict="error", reason=f"{places} is not there")]
    found = sum(_is_gpu(path) for path in places.iterdir())
    counted = metric("gpus", found, "GPUs")
    if not context.config.gpus:
        return [context.record("gpu_devices", metrics=[counted])]
    wanted = {"metric": "gpus", "op": ">=", "value": context.config.gpus, "unit": "GPUs", "source": "profile"}
    return [context.record("gpu_devices", metrics=[compare(counted, wanted)])]


def _is_gpu(path: Path) -> bool:
    """A display or 3D controller of NVIDIA (class 0x03); a device may vanish while it is looked at."""
    try:
        kind, maker = ((path / name).read_text(errors="replace").strip() for name in ("class", "vendor"))
    except OSError:
        return False
    return kind.startswith("0x03") and maker.lower() == "0x10de"
