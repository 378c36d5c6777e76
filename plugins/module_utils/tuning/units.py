# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that have to run and kernel modules that have to be loaded on a machine type. Private."""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import Finding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._service_state import parse_show

_SHOW = ["systemctl", "show", "--property", "LoadState,ActiveState,UnitFileState"]
_OFF = ("disabled", "indirect")
_TIMEOUT = 120.0
_PRETENDED = "a machine that only claims to be of this type takes it out of the list"
Runner = t.Callable[[t.Sequence[str]], Outcome]


class Patience(t.NamedTuple):
    """How often to look whether a service came up, and the seconds between."""

    retries: int = 5
    delay: float = 5.0


class Steps(t.NamedTuple):
    """What is done, in this order; ``enabled`` are all services that were off before us."""

    enable: list[str]
    start: list[str]
    load: list[str]
    disable: list[str]
    enabled: list[str]
    findings: list[Finding]

    def lines(self) -> list[str]:
        """Show the steps; nothing is shown of what is there already."""
        parts = (("enabled", self.enable), ("active", self.start), ("loaded", self.load), ("disabled", self.disable))
        return [f"{name}: {word}" for word, names in parts for name in names]


def command(argv: t.Sequence[str]) -> Outcome:
    return run(argv, _TIMEOUT)


def loaded(module: str) -> bool:
    """The kernel writes every name of a module with underscores."""
    return Path("/sys/module", module.replace("-", "_")).is_dir()


def plan(
    services: t.Sequence[str],
    modules: t.Sequence[str],
    earlier: t.Sequence[str],
    *,
    runner: Runner = command,
    is_loaded: t.Callable[[str], bool] = loaded,
) -> Steps:
    """Look at what there is; ``earlier`` are the services that an earlier run enabled."""
    steps = Steps([], [], [module for module in modules if not is_loaded(module)], [], [], [])
    for name in services:
        unit = parse_show(runner([*_SHOW, name]).out)
        if unit.get("LoadState") != "loaded":
            steps.findings.append(_unusable(name, unit.get("LoadState", "unknown to systemd")))
            steps.enabled.extend([name] if name in earlier else [])
            continue
        off = unit.get("UnitFileState") in _OFF
        steps.enable.extend([name] if off else [])
        steps.enabled.extend([name] if off or name in earlier else [])
        steps.start.extend([] if unit.get("ActiveState") == "active" else [name])
    for name in earlier:
        if name not in services and parse_show(runner([*_SHOW, name]).out).get("UnitFileState") == "enabled":
            steps.disable.append(name)
    return steps


def _unusable(name: str, state: str) -> Finding:
    if state == "masked":
        return Finding("error", name, f"is masked, and this machine type needs it: systemctl unmask {name}")
    text = f"this machine type needs it, but its unit is {state}: install it in the driver's version; {_PRETENDED}"
    return Finding("error", name, text)


def apply(
    steps: Steps, patience: Patience, *, runner: Runner = command, sleep: t.Callable[[float], None] = time.sleep
) -> list[Finding]:
    """Do it; a service that does not come up and a module that does not load are findings, not the end."""
    findings = []
    for word, names in (("disable", steps.disable), ("enable", steps.enable)):
        for name in names:
            findings += _failure(name, f"systemctl {word}", runner(["systemctl", word, name]))
    for name in steps.start:
        findings += _start(name, patience, runner, sleep)
    for name in steps.load:
        findings += _failure(name, "modprobe", runner(["modprobe", name]), f"; {_PRETENDED}")
    return findings


def _failure(name: str, tried: str, outcome: Outcome, advice: str = "") -> list[Finding]:
    return [Finding("error", name, f"{tried} said: {outcome.problem}{advice}")] if outcome.problem else []


def _start(name: str, patience: Patience, runner: Runner, sleep: t.Callable[[float], None]) -> list[Finding]:
    """Fabric manager refuses while the driver is still at work on the GPUs; so Azure's images ask it again, too."""
    for attempt in range(patience.retries + 1):
        if attempt:
            sleep(patience.delay)
        if runner(["systemctl", "is-active", "--quiet", name]).rc == 0:
            return []
        runner(["systemctl", "reset-failed", name])
        runner(["systemctl", "start", name])
    if runner(["systemctl", "is-active", "--quiet", name]).rc == 0:
        return []
    said = runner(["journalctl", "-u", name, "-n", "5", "-o", "cat", "--no-pager"]).out.strip()
    text = f"is not active after {patience.retries + 1} starts; its journal ends with: {said or 'nothing'}"
    return [Finding("error", name, text)]
