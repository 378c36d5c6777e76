# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""infiniband_info: read the ports of this machine, find those that are not up or missing, and judge them."""

from __future__ import annotations

import socket
import time
import typing as t
from dataclasses import asdict
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    CheckError,
    Json,
    explain,
    judge,
    metric,
    overall,
    record,
    validate_expectation,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import infiniband
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.infiniband import Port

# Ports that are not up, and the check record of all. Pure.


CHECK = "infiniband_ports"
# Errors and events; the rest of the counters is traffic.
ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
)
_ADVICE = {
    ("Down", "Disabled"): "the port is switched off: driver, firmware setting or ibportstate",
    ("Down", "Polling"): "nothing answers at the other end: cable, transceiver, switch port",
    ("Down", "Sleep"): "the port sleeps: firmware setting",
    ("Down", "PortConfigurationTraining"): "the link does not come up: cable, transceiver",
    (
        "Initializing",
        "LinkUp",
    ): "no subnet manager has configured it: opensm, or that of the switch, and its partitions",
    ("Armed", "LinkUp"): "the subnet manager has not finished it: look at the log of the subnet manager",
}


class ObservedPorts(t.NamedTuple):
    """The ports of a node, and how they were read; ``broken`` says that ibstat did not end in its time.

    ``adapters`` counts those on the PCI bus, driver or not.
    """

    ports: t.Sequence[Port]
    source: str | None
    argv: t.Sequence[str] = ()
    problem: str = ""
    broken: bool = False
    adapters: int = 0


def names(ports: t.Sequence[Port]) -> list[str]:
    """Name each port by its device, and by its number where the device has several."""
    devices = [port.device for port in ports]
    return [p.device if devices.count(p.device) == 1 else f"{p.device}:{p.port}" for p in ports]


def trouble(port: Port) -> str:
    """Return the state of a port that is not up, with a hint where to look; empty when it is up."""
    if port.active:
        return ""
    state, physical = port.state or "state unknown", port.physical_state or "physical state unknown"
    advice = _ADVICE.get((state, physical))
    if physical == "LinkErrorRecovery":
        advice = "the link recovers from errors: cable, transceiver"
    return f"{state}, {physical}{f' ({advice})' if advice else ''}"


def metrics(ports: t.Sequence[Port], missing: t.Sequence[str]) -> list[Json]:
    """Return the rate of each port, missing ones included; a port that is not up has the rate 0."""
    measured = [metric("active", sum(port.active for port in ports), "ports")]
    for name, port in zip(names(ports), ports):
        measured.append(metric("rate", port.rate_gbps if port.active else 0.0, "Gb/s", nic=name))
    return measured + [metric("rate", None, "Gb/s", nic=name) for name in missing]


def sample(name: str, port: Port) -> Json:
    """Return a row of the report."""
    facts = ("port", "state", "physical_state", "rate", "link_layer", "pci", "numa_node", "firmware")
    return {
        "nic": name,
        **{key: getattr(port, key) for key in facts},
        "errors": {key: port.counters[key] for key in ERRORS if port.counters.get(key)},
    }


class PortFinding(t.NamedTuple):
    """Ports that are not up and why, slow ones, missing devices, and the number of absent ports."""

    bad: dict[str, str]
    slow: list[str]
    missing: list[str]
    absent: int

    @property
    def scope(self) -> Json:
        nics = [*self.bad, *self.slow, *self.missing]
        return {"nic": nics} if nics else {}


def result(
    observed: ObservedPorts, expected_ports: int, devices: t.Sequence[str], expectations: t.Sequence[Json], about: Json
) -> Json:
    """Return the module's result: ``expected_ports`` ports, and all ports of the ``devices``, must be up."""
    ports = [port for port in observed.ports if port.infiniband]
    other_ports = [port for port in observed.ports if not port.infiniband]
    count = expected_ports or max(len(devices), sum(port.device in devices for port in ports))
    if ports or count or any(entry["check"] == CHECK for entry in expectations):
        limits = [_exactly(count), *expectations] if devices or expected_ports else expectations
        entry = _judged(observed, ports, count, devices, limits, about)
    else:
        entry = record(CHECK, verdict="skipped", reason=f"no InfiniBand{_layers(other_ports)}", **about)
    listed = {"ports": [asdict(port) for port in ports], "others": [asdict(port) for port in other_ports]}
    return {"checks": [entry], **listed, "source": observed.source, "argv": list(observed.argv), "environment": {}}


def _judged(
    observed: ObservedPorts,
    ports: t.Sequence[Port],
    count: int,
    devices: t.Sequence[str],
    limits: t.Sequence[Json],
    about: Json,
) -> Json:
    present = {port.device for port in ports}
    missing = [name for name in devices if name not in present]
    judged = judge(CHECK, metrics(ports, missing), limits)
    down = {name: trouble(port) for name, port in zip(names(ports), ports) if not port.active}
    missed = [entry["nic"] for entry in judged if entry["name"] == "rate" and entry["verdict"] in ("fail", "warn")]
    slow = [name for name in missed if name not in down]
    finding = PortFinding(down, slow, missing, max(count - len(ports), len(missing)))
    return record(
        CHECK,
        metrics=judged,
        verdict=_verdict(observed, finding, judged),
        blame=_blame(observed, finding),
        reason=_reason(observed, finding, judged, ports),
        scope=finding.scope,
        samples=[sample(name, port) for name, port in zip(names(ports), ports)],
        **about,
    )


def _verdict(observed: ObservedPorts, finding: PortFinding, judged: t.Sequence[Json]) -> str:
    """Return the verdict; a missing device has no rate to judge and is a fail all the same."""
    if observed.broken:
        return "error"
    return "fail" if finding.missing else overall(judged)


def _blame(observed: ObservedPorts, finding: PortFinding) -> str:
    if not finding.absent:
        return "fabric"
    return "software" if _without_driver(observed) else "hardware"


def _without_driver(observed: ObservedPorts) -> bool:
    return observed.adapters > len({port.device for port in observed.ports})


def _reason(observed: ObservedPorts, finding: PortFinding, judged: t.Sequence[Json], ports: t.Sequence[Port]) -> str:
    named = [f"{name}: {text}" for name, text in finding.bad.items()]
    texts = [_absent(observed, finding), *named, *_slow(finding.slow, ports)]
    if not any(texts):
        # The count is wrong although each port is up, such as more ports than were planned.
        texts = [explain([entry for entry in judged if entry["name"] == "active"])]
    return "; ".join(reason_part for reason_part in texts if reason_part)


def _absent(observed: ObservedPorts, finding: PortFinding) -> str:
    if not finding.absent:
        return observed.problem
    missing_names = f": {', '.join(finding.missing)}" if finding.missing else ""
    other_layers = _layers([port for port in observed.ports if not port.infiniband])
    count = f"{finding.absent} InfiniBand port{'s are' if finding.absent > 1 else ' is'}"
    lost = f"{count} missing{missing_names}{other_layers}"
    if observed.problem:
        return f"{lost}; {observed.problem}"
    return f"{lost}; adapters are on the PCI bus, but no driver has them" if _without_driver(observed) else lost


def _layers(ports: t.Sequence[Port]) -> str:
    """Return the ports of other link layers, which may be the missing ones."""
    texts = [f"{name} is {port.link_layer or 'of unknown link layer'}" for name, port in zip(names(ports), ports)]
    return f" ({', '.join(texts)})" if texts else ""


def _slow(slow: t.Sequence[str], ports: t.Sequence[Port]) -> list[str]:
    shown = {name: port.rate or f"{port.rate_gbps:g} Gb/s" for name, port in zip(names(ports), ports) if port.rate_gbps}
    return [f"{name}: the link came up at {shown.get(name, 'an unknown rate')}" for name in slow]


def _exactly(count: int) -> Json:
    limit = {"op": "==", "value": count, "unit": "ports", "source": "number of ports that was planned"}
    return {"check": CHECK, "metric": "active", **limit}


# Read the ports of this machine.


# Package managers put it where only root's PATH looks.
PLACES = ("/usr/sbin", "/sbin", "/usr/local/sbin", "/opt/mellanox/infiniband-diags/sbin")

SPEC: Json = {
    "ports": {"type": "int", "default": 0},
    "devices": {"type": "list", "elements": "str", "default": []},
    "ibstat": {"type": "path"},
    "timeout": {"type": "float", "default": 20},
    **_checks.SPEC,
    **_checks.NODE,
    **_checks.SYSFS,
}

Runner = t.Callable[..., Outcome]


def perform(params: t.Mapping[str, t.Any], runner: Runner = run) -> Json:
    """Read, judge and return the module's result; raises ValueError for options that make no sense."""
    for expectation in params["expect"]:
        validate_expectation(expectation)
    if params["ports"] < 0:
        raise CheckError(f"ports is {params['ports']}, at least 0 is needed")
    begin = time.time()
    observed = read(params["sysfs"], params["ibstat"], params["timeout"], runner)
    node = params["name"] or socket.gethostname().partition(".")[0]
    tool = {"sysfs": "sysfs", "ibstat": "ibstat"}.get(observed.source or "", "sysfs")
    firmware = sorted({port.firmware for port in observed.ports if port.firmware})
    context = {
        "tool": tool,
        "version": None,
        "argv": list(observed.argv),
        "profile": params["profile"],
        "firmware": firmware,
    }
    about = {"node": node, "time": begin, "run": params["run"], "seconds": time.time() - begin, "context": context}
    return result(observed, params["ports"], params["devices"], params["expect"], about)


def read(sysfs: str, ibstat: str | None, timeout: float, runner: Runner = run) -> ObservedPorts:
    """Read sysfs; ibstat is run only where sysfs has no port, and is not a copy of another machine's."""
    listed = infiniband.read_sysfs(sysfs)
    adapters = pci_adapters(sysfs)
    if listed:
        return ObservedPorts(listed, "sysfs", adapters=adapters)
    if not ibstat and Path(sysfs) != Path("/sys"):
        return ObservedPorts([], None, adapters=adapters)
    # A node's prolog loads this file and has ports in sysfs: what only finds ibstat is not for it to load.
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import NotFound, find

    try:
        argv = [find("ibstat", ibstat, PLACES, role=None)]
    except NotFound:
        return ObservedPorts([], None, adapters=adapters)
    outcome = runner(argv, timeout)
    log = infiniband.parse(f"{outcome.out}\n{outcome.err}")
    problem = f"ibstat: {log.cause.text if log.cause else outcome.problem}" if log.cause or outcome.problem else ""
    source = "ibstat" if log.ports else None
    return ObservedPorts(log.ports, source, argv, problem, outcome.rc is None, adapters)


def pci_adapters(sysfs: str) -> int:
    """Count the InfiniBand controllers on the PCI bus (class 0x0207), with or without a driver."""
    count = 0
    for path in Path(sysfs).glob("bus/pci/devices/*/class"):
        try:
            count += path.read_text(errors="replace").startswith("0x0207")
        except OSError:
            continue
    return count
