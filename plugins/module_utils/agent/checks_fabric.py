# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's checks of InfiniBand: ports, flapping links, error counters."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import LimitFinding, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import info
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband.info import names
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import infiniband

# The check of the module infiniband_info, run by the agent. Private, stdlib only.


TIMEOUT = 3.0


def ports(context: Context) -> list[Json]:
    """Read sysfs; ibstat only where that knows no port, and never in a prolog."""
    config = context.config
    fabric = config.profile.get("infiniband") or {}
    params = {
        "name": config.node,
        "ports": int(fabric.get("count") or 0),
        "devices": list(fabric.get("devices") or []),
        "ibstat": None,
        "sysfs": config.sysfs,
        "timeout": 0.5 if context.suite == "prolog" else TIMEOUT,
        "expect": config.expect,
        "run": context.run,
        "profile": config.profile.get("profile"),
    }
    return context.adopt(info.perform(params)["checks"])


# Checks of InfiniBand links over time: links that go down again and again, and errors. Private, stdlib only.


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
    grown = state.grown(context, FLAPS, downs, _WINDOW)
    metrics = [metric("link_downs", grown.get(nic), "events", nic=nic) for nic in downs]
    full = [nic for nic, value in downs.items() if value == _FULL]
    finding = LimitFinding(
        metrics,
        verdict="warn" if full else None,
        reason=_reason(blind, full),
        blame="fabric",
        samples=[{"nic": nic, "link_downed": value, "window": grown.get(nic)} for nic, value in downs.items()],
        latched=True,
    )
    record = report(context, FLAPS, finding)
    return [{**record, "scope": _scope(record, full)}]


def _scope(record: Json, more: t.Sequence[str] = ()) -> Json:
    bad = {
        measured["nic"]
        for measured in record["metrics"]
        if "nic" in measured and measured["verdict"] in ("fail", "warn", "error")
    }
    return {"nic": sorted(bad | set(more))} if bad or more else {}


def _reason(blind: t.Sequence[str], full: t.Sequence[str]) -> str:
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
        return [report(context, ERRORS, LimitFinding(verdict="error", reason="no port shows its error counters"))]
    grown = state.grown(context, ERRORS, flat, _DAY)
    metrics = [metric(key.split(" ")[1], value, "errors", nic=key.split(" ")[0]) for key, value in grown.items()]
    samples = [{"nic": nic, **{name: values.get(name) for name in _JUDGED}} for nic, values in counters.items()]
    record = report(context, ERRORS, LimitFinding(metrics, blame="fabric", samples=samples))
    return [{**record, "scope": _scope(record)}]


def _counters(context: Context) -> tuple[Counters, LimitFinding | None]:
    """Return the counters of all InfiniBand ports, or the finding that there are none."""
    ports = [port for port in infiniband.read_sysfs(context.config.sysfs) if port.infiniband]
    if ports:
        return {nic: port.counters for nic, port in zip(names(ports), ports)}, None
    fabric = context.config.profile.get("infiniband") or {}
    if fabric.get("count") or fabric.get("devices"):
        return {}, LimitFinding(verdict="error", reason="there is no InfiniBand port whose counters could be read")
    return {}, LimitFinding(verdict="skipped", reason="no InfiniBand")
