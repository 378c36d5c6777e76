# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""infiniband_info: read the ports of this machine. Private."""

from __future__ import annotations

import socket
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _measure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import CheckError, Json, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._find import NotFound, find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import ports
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import infiniband

# Package managers put it where only root's PATH looks.
PLACES = ("/usr/sbin", "/sbin", "/usr/local/sbin", "/opt/mellanox/infiniband-diags/sbin")

SPEC: Json = {
    "ports": {"type": "int", "default": 0},
    "devices": {"type": "list", "elements": "str", "default": []},
    "ibstat": {"type": "path"},
    "timeout": {"type": "float", "default": 20},
    **_measure.SPEC,
    **_measure.NODE,
    **_measure.SYSFS,
}

Runner = t.Callable[..., Outcome]


def perform(params: t.Mapping[str, t.Any], runner: Runner = run) -> Json:
    """Read, judge and return what the module returns; raises ValueError for options that make no sense."""
    for expectation in params["expect"]:
        validate_expectation(expectation)
    if params["ports"] < 0:
        raise CheckError(f"ports is {params['ports']}, at least 0 is needed")
    begin = time.time()
    found = read(params["sysfs"], params["ibstat"], params["timeout"], runner)
    node = params["name"] or socket.gethostname().partition(".")[0]
    tool = {"sysfs": "sysfs", "ibstat": "ibstat"}.get(found.source or "", "sysfs")
    firmware = sorted({port.firmware for port in found.ports if port.firmware})
    context = {
        "tool": tool,
        "version": None,
        "argv": list(found.argv),
        "profile": params["profile"],
        "firmware": firmware,
    }
    about = {"node": node, "time": begin, "run": params["run"], "seconds": time.time() - begin, "context": context}
    return ports.result(found, params["ports"], params["devices"], params["expect"], about)


def read(sysfs: str, ibstat: str | None, timeout: float, runner: Runner = run) -> ports.Found:
    """Read sysfs; ibstat is asked only about this machine and where sysfs knows no port."""
    listed = infiniband.read_sysfs(sysfs)
    adapters = pci_adapters(sysfs)
    if listed:
        return ports.Found(listed, "sysfs", adapters=adapters)
    if not ibstat and Path(sysfs) != Path("/sys"):
        return ports.Found([], None, adapters=adapters)
    try:
        argv = [find("ibstat", ibstat, PLACES, role=None)]
    except NotFound:
        return ports.Found([], None, adapters=adapters)
    outcome = runner(argv, timeout)
    log = infiniband.parse(f"{outcome.out}\n{outcome.err}")
    problem = f"ibstat: {log.cause.text if log.cause else outcome.problem}" if log.cause or outcome.problem else ""
    source = "ibstat" if log.ports else None
    return ports.Found(log.ports, source, argv, problem, outcome.rc is None, adapters)


def pci_adapters(sysfs: str) -> int:
    """Count the InfiniBand controllers on the PCI bus (class 0x0207), which are there without a driver, too."""
    count = 0
    for path in Path(sysfs).glob("bus/pci/devices/*/class"):
        try:
            count += path.read_text(errors="replace").startswith("0x0207")
        except OSError:
            continue
    return count
