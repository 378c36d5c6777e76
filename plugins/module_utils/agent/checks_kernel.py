# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of Xids in the kernel log. Private, stdlib only.

Each code of each GPU is a record of its own. A fault stays one until the node has booted again, in whatever the ring
buffer still holds: the suite's state keeps it.
"""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import latch, reach, xid_policy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import Finding, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.access import BrokenError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import xid as parser
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import address
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.sysfs import pci_gpus

CHECK = "gpu_xid"
# Times from two clocks that were set meanwhile can differ a little.
_SLACK = 60.0
_MOST = 32


class Fault(t.NamedTuple):
    """All messages of one code about one GPU or NVSwitch."""

    rule: xid_policy.Rule
    first: parser.Event
    last: parser.Event
    times: int


def xid(context: Context) -> list[Json]:
    """Judge what the driver wrote since the system started."""
    gpus = context.config.profile.get("gpu")
    if isinstance(gpus, dict) and gpus.get("count") == 0 and not pci_gpus(context.config.sysfs):
        return [report(context, CHECK, Finding(verdict="skipped", reason="no GPU is expected"))]
    events = parser.parse(kernel_log(context), boot_time(context))
    indexes = {address(bus): index for index, bus in enumerate(pci_gpus(context.config.sysfs))}
    every = [(_record(context, fault, indexes), fault.last.time) for fault in faults(events, boot_time(context))]
    found = [one for one, last in every if not latch.over(context.kept(latch.FORGIVEN), one, last)]
    known = {(one["context"].get("code"), str(one["scope"])) for one in found}
    kept = [one for one in context.latched.values() if one["check"] == CHECK]
    found += [one for one in kept if (one["context"].get("code"), str(one["scope"])) not in known]
    return found or [report(context, CHECK, Finding(verdict="pass"))]


def kernel_log(context: Context) -> str:
    """Return the kernel's messages; a log without any line is a log that cannot be read."""
    source = context.config.kernel_log
    if not isinstance(source, str):
        return reach.reach(context).get(list(source))
    try:
        with Path(source).open("rb") as file:
            file.seek(max(0, Path(source).stat().st_size - reach.LARGEST))
            found = file.read(reach.LARGEST).decode(errors="replace")
    except OSError as exc:
        raise BrokenError(f"{source} cannot be read: {exc.strerror or exc}") from exc
    if not found.strip():
        raise BrokenError(f"{source} is empty")
    return found


def boot_time(context: Context) -> float | None:
    """Return when the system started, None where the kernel does not say."""
    lines = (reach.text(Path(context.config.proc, "stat")) or "").splitlines()
    words = next((line.split() for line in lines if line.startswith("btime ")), [])
    return float(words[1]) if len(words) == 2 and words[1].isdigit() else None


def faults(events: t.Sequence[parser.Event], boot: float | None) -> list[Fault]:
    """Put together what is about the same thing, the worst first; what an earlier boot left is over."""
    found: dict[tuple[t.Any, ...], Fault] = {}
    for event in events:
        rule = xid_policy.rule(event)
        old = event.time is not None and boot is not None and event.time < boot - _SLACK
        if rule is None or old:
            continue
        key = (event.kind, event.code, event.bus_id)
        before = found.get(key)
        if before is None:
            found[key] = Fault(rule, event, event, 1)
            continue
        worse = max(before.rule, rule, key=lambda one: xid_policy.ACTIONS.index(one.action))
        found[key] = Fault(worse, before.first, event, before.times + 1)
    order = sorted(found.values(), key=lambda one: -xid_policy.ACTIONS.index(one.rule.action))
    return order[:_MOST]


def _record(context: Context, fault: Fault, indexes: t.Mapping[t.Any, int]) -> Json:
    event, rule = fault.last, fault.rule
    index = indexes.get(address(event.bus_id))
    scope: Json = {} if not event.bus_id else {"bus_id": event.bus_id} if index is None else {"gpu": [index]}
    where = f"GPU {index}" if index is not None else event.bus_id or "a device"
    code = event.code if event.kind == "Xid" else f"SXid {event.code}"
    name = f"{event.kind} {event.code}" if event.code is not None else event.kind
    times = f", {fault.times} times" if fault.times > 1 else ""
    sample = {"code": code, "bus_id": event.bus_id, "count": fault.times, "text": event.text}
    found = Finding(
        verdict="warn" if rule.action == "monitor" else "fail",
        reason=f"{name} on {where}{times}: {rule.meaning}",
        blame=rule.blame,
        scope=scope,
        samples=[{**sample, "first": fault.first.time, "last": event.time}],
        evidence=event.text,
        action=rule.action,
        latched=rule.action != "monitor",
        code=code,
    )
    return report(context, CHECK, found)
