# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of CPUs, memory, swap and of what is known of the machine type. Private, stdlib only."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import limits, reach
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import Finding, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import facts

_POISONED = re.compile(r"^HardwareCorrupted:\s+(\d+) kB$", re.MULTILINE)


def profile(context: Context) -> list[Json]:
    """Say so when nothing is known of the machine type: a node of which nothing is expected never fails."""
    found = context.config.profile
    name = found.get("sku") or found.get("profile") or "an unnamed machine type"
    if found.get("known") is False or not found.get("expect"):
        reason = f"there is no profile for {name}: nothing is expected of this node, so nothing was proved"
        return [report(context, "profile", Finding(verdict="error", reason=reason))]
    return [report(context, "profile", Finding(verdict="pass"))]


def cpus_online(context: Context) -> list[Json]:
    """Compare the CPUs that run with those that are there, and with the machine type."""
    folder = Path(context.config.sysfs, "devices/system/cpu")
    online, present = (facts.cpus(reach.needed(folder / name)) for name in ("online", "present"))
    metrics = [metric("online", online, "cpus"), metric("offline", present - online, "cpus")]
    # Without SMT the second threads are offline on purpose.
    single = reach.text(folder / "smt/control") in ("off", "forceoff")
    wanted = context.config.profile.get("vcpus")
    more = []
    if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted > 0:
        told = {"op": "==", "value": wanted, "unit": "cpus", "source": "vcpus of the profile"}
        more = [{"check": "cpus_online", "metric": "online", **told}]
    found = Finding(metrics[:1], blame="config", more=more) if single else Finding(metrics, more=more)
    return [report(context, "cpus_online", found)]


def memory_errors(context: Context) -> list[Json]:
    """Count the errors that the memory controllers saw, and the pages that the kernel gave up."""
    controllers = reach.listed(Path(context.config.sysfs, "devices/system/edac/mc"), "mc[0-9]*")
    counts = {name: [reach.number(path / f"{name}_count") for path in controllers] for name in ("ue", "ce")}
    metrics: list[Json] = []
    if controllers:
        metrics += [
            metric("uncorrected", _sum(counts["ue"]), "errors"),
            metric("corrected", _sum(counts["ce"]), "errors"),
        ]
    poisoned = _POISONED.search(reach.needed(Path(context.config.proc, "meminfo")))
    if poisoned:
        metrics.append(metric("poisoned", int(poisoned.group(1)) * 1024, "bytes"))
    if not metrics:
        reason = "this kernel counts no errors of memory"
        return [report(context, "memory_errors", Finding(verdict="skipped", reason=reason))]
    bad = [path.name for path, number in zip(controllers, counts["ue"]) if number]
    scope = {"memory_controller": bad} if bad else {}
    return [report(context, "memory_errors", Finding(metrics, scope=scope))]


def _sum(values: t.Sequence[int | None]) -> int | None:
    """One controller that does not tell makes the sum unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def swap(context: Context) -> list[Json]:
    """Measure the swap space; machine types of a cloud have none, of others nobody knows."""
    lines = reach.needed(Path(context.config.proc, "swaps")).splitlines()
    rows = [line.split() for line in lines[1:]]
    if not lines[0].startswith("Filename") or any(len(row) < 5 or not row[-3].isdigit() for row in rows):
        return [report(context, "swap", Finding(verdict="error", reason=f"/proc/swaps reads {lines[-1][:100]!r}"))]
    size = sum(int(row[-3]) for row in rows) * 1024
    more = [limits.SWAP] if context.config.profile.get("vm_size") else []
    samples = [{"device": row[0], "bytes": int(row[-3]) * 1024} for row in rows]
    found = Finding([metric("swap", size, "bytes")], blame="config", action="monitor", samples=samples, more=more)
    return [report(context, "swap", found)]
