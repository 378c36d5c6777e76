# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of InfiniBand links over time: links that go down again and again, and errors. Private, stdlib only."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import window
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import Finding, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband.ports import names
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import infiniband

Counters = t.Dict[str, t.Dict[str, int]]

FLAPS = "infiniband_flaps"
ERRORS = "infiniband_errors"
_WINDOW = 3 * 3600.0
_DAY = 24 * 3600.0
_JUDGED = ("symbol_error", "link_error_recovery", "port_rcv_errors", "port_xmit_discards")
# The counter of the InfiniBand specification stops here; newer adapters count on with 64 bits.
_FULL = 255


def flaps(context: Context) -> list[Json]:
    """Count how often each link went down; a link that has done so too often is a fault until the next boot."""
    counters, missing = _counters(context)
    if missing:
        return [report(context, FLAPS, missing)]
    downs = {nic: values.get("link_downed") for nic, values in counters.items()}
    blind = [nic for nic, value in downs.items() if value is None]
    grown = window.grown(context, FLAPS, downs, _WINDOW)
    metrics = [metric("link_downs", grown.get(nic), "events", nic=nic) for nic in downs]
    full = [nic for nic, value in downs.items() if value == _FULL]
    found = Finding(
        metrics,
        verdict="warn" if full else None,
        reason=_told(blind, full),
        blame="fabric",
        samples=[{"nic": nic, "link_downed": value, "window": grown.get(nic)} for nic, value in downs.items()],
        latched=True,
    )
    one = report(context, FLAPS, found)
    return [{**one, "scope": _scope(one, full)}]


def _scope(record: Json, more: t.Sequence[str] = ()) -> Json:
    bad = {item["nic"] for item in record["metrics"] if "nic" in item and item["verdict"] in ("fail", "warn", "error")}
    return {"nic": sorted(bad | set(more))} if bad or more else {}


def _told(blind: t.Sequence[str], full: t.Sequence[str]) -> str:
    parts = [f"{', '.join(blind)}: no counter link_downed" if blind else ""]
    parts += [f"{', '.join(full)}: link_downed has stopped counting at 255; clear it with perfquery -R" if full else ""]
    return "; ".join(part for part in parts if part)


def errors(context: Context) -> list[Json]:
    """Count the errors of a day: links make some while they come up."""
    counters, missing = _counters(context)
    if missing:
        return [report(context, ERRORS, missing)]
    flat = {f"{nic} {name}": values[name] for nic, values in counters.items() for name in _JUDGED if name in values}
    if not flat:
        return [report(context, ERRORS, Finding(verdict="error", reason="no port shows its error counters"))]
    grown = window.grown(context, ERRORS, flat, _DAY)
    metrics = [metric(key.split(" ")[1], value, "errors", nic=key.split(" ")[0]) for key, value in grown.items()]
    samples = [{"nic": nic, **{name: values.get(name) for name in _JUDGED}} for nic, values in counters.items()]
    one = report(context, ERRORS, Finding(metrics, blame="fabric", samples=samples))
    return [{**one, "scope": _scope(one)}]


def _counters(context: Context) -> tuple[Counters, Finding | None]:
    """Return the counters of all InfiniBand ports, or what stands in the way."""
    ports = [port for port in infiniband.read_sysfs(context.config.sysfs) if port.infiniband]
    if ports:
        return {nic: port.counters for nic, port in zip(names(ports), ports)}, None
    fabric = context.config.profile.get("infiniband") or {}
    if fabric.get("count") or fabric.get("devices"):
        return {}, Finding(verdict="error", reason="there is no InfiniBand port whose counters could be read")
    return {}, Finding(verdict="skipped", reason="no InfiniBand")
