# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the clocks of GPUs are, what is wanted of them and what is left to do. Pure, private.

No driver tells which clocks are locked: nvidia-smi only shows the clock of this moment. What was locked is therefore
remembered per GPU until the next boot (``clocks_record``), and believed only while the GPU does not contradict it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

# One step of the graphics clock; a locked memory clock reads some MHz less than was asked for (3199 for 3201).
TOLERANCE = 15
IDLE = 0x1
# Power cap, hardware slowdown, the thermal ones, power brake: a clock below its lock has a reason then.
LIMITS = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
DOMAINS = ("memory", "graphics")  # in the order in which they are set


class Clocks(t.NamedTuple):
    """MHz; None is unknown, or of no interest in what is wanted."""

    graphics: int | None = None
    memory: int | None = None

    def of(self, domain: str) -> int | None:
        return self.memory if domain == "memory" else self.graphics


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi shows it now."""

    index: int
    uuid: str
    bus_id: str
    name: str
    driver: str
    persistence: bool | None
    maximum: Clocks
    current: Clocks
    application: Clocks
    default: Clocks
    reasons: int | None = None

    @property
    def idle(self) -> bool:
        return bool((self.reasons or 0) & IDLE)

    @property
    def limited(self) -> bool:
        return bool((self.reasons or 0) & LIMITS)


class Setting(t.NamedTuple):
    """How a clock was set: ``by`` is locked, application or nothing; ``seen`` is what it read afterwards."""

    by: str
    value: int
    seen: int | None = None
    parked: bool = False


class Entry(t.NamedTuple):
    """What is remembered of one GPU; ``persistence`` says that the mode was off before it was switched on here."""

    graphics: Setting | None = None
    memory: Setting | None = None
    persistence: bool = False

    def of(self, domain: str) -> Setting | None:
        return self.memory if domain == "memory" else self.graphics

    def having(self, domain: str, setting: Setting | None) -> Entry:
        return self._replace(memory=setting) if domain == "memory" else self._replace(graphics=setting)


class Request(t.NamedTuple):
    """What is asked for; ``persistence`` None is: on with clocks, and as it was before after a reset."""

    state: str = "maximum"
    graphics: int | None = None
    memory: int | None = None
    persistence: bool | None = None


def near(value: int | None, wanted: int | None) -> bool:
    return value is not None and wanted is not None and abs(value - wanted) <= TOLERANCE


def wanted(gpu: Gpu, request: Request) -> Clocks:
    """Return the clocks that a GPU shall have; with reset there are none."""
    if request.state == "maximum":
        return gpu.maximum
    return Clocks(request.graphics, request.memory) if request.state == "locked" else Clocks()


def impossible(gpu: Gpu, target: Clocks) -> str:
    """Say which clock a GPU cannot have: the driver would take the request and clip it."""
    for domain in DOMAINS:
        value, top = target.of(domain), gpu.maximum.of(domain)
        if value is None or top is None or value <= top:
            continue
        other = gpu.maximum.graphics if domain == "memory" else gpu.maximum.memory
        hint = f"; {value} MHz is its {'graphics' if domain == 'memory' else 'memory'} clock" if value == other else ""
        return f"{domain} clock {value} MHz is above the maximum of {top} MHz{hint}"
    return ""


def holds(gpu: Gpu, domain: str, setting: Setting | None) -> bool:
    """Return whether what is remembered may be believed."""
    if setting is None:
        return False
    if setting.by == "application":
        return gpu.application.of(domain) in {setting.value, setting.seen} - {None}
    now = gpu.current.of(domain)
    return setting.by == "nothing" or gpu.limited or now is None or near(now, setting.value) or near(now, setting.seen)


def pending(gpu: Gpu, target: Clocks, entry: Entry | None) -> list[str]:
    """Return the clocks that have to be set."""
    found = []
    for domain in DOMAINS:
        value, setting = target.of(domain), (entry or Entry()).of(domain)
        if value is not None and not (setting and setting.value == value and holds(gpu, domain, setting)):
            found.append(domain)
    return found


def believed(gpu: Gpu, entry: Entry | None) -> Entry:
    """Return what is remembered without what the GPU contradicts."""
    kept = entry or Entry()
    for domain in DOMAINS:
        if not holds(gpu, domain, kept.of(domain)):
            kept = kept.having(domain, None)
    return kept


def resets(gpu: Gpu, entry: Entry | None) -> list[str]:
    """Return the options that bring a GPU back to where its driver starts.

    A GPU that idles at its highest graphics clock was locked by somebody else; the memory clock may idle at any value.
    """
    kept = entry or Entry()
    locked = [domain for domain in DOMAINS if _by(kept, domain) == "locked"]
    if not locked and gpu.idle and near(gpu.current.graphics, gpu.maximum.graphics):
        locked = list(DOMAINS)
    options = [{"memory": "-rmc", "graphics": "-rgc"}[domain] for domain in locked]
    known = None not in (*gpu.application, *gpu.default)
    return [*options, "-rac"] if known and gpu.application != gpu.default else options


def _by(entry: Entry, domain: str) -> str:
    setting = entry.of(domain)
    return setting.by if setting else ""


def switch(gpu: Gpu, request: Request, entry: Entry | None) -> bool | None:
    """Return what persistence mode has to become; None leaves it. A GPU that has no such mode is left."""
    if gpu.persistence is None:
        return None
    if request.persistence is False or (request.state == "reset" and request.persistence is None):
        return False if request.state == "reset" and gpu.persistence and (entry or Entry()).persistence else None
    return None if gpu.persistence else True


def reached(gpu: Gpu, domain: str, setting: Setting | None) -> int | None:
    """Return the clock that a setting led to; None when an idle GPU does not show it."""
    if setting is None or setting.by == "application":
        return gpu.application.of(domain) if setting else gpu.current.of(domain)
    value = gpu.current.of(domain)
    if near(value, setting.value):
        return value
    unknown = setting.by == "nothing" or (setting.parked and gpu.idle)
    return None if unknown else value


def snapshot(gpu: Gpu, entry: Entry) -> dict[str, t.Any]:
    """Return what is set on a GPU, for before, after and diff; ``entry`` is believed."""
    locked = {d: s.value for d in DOMAINS for s in [entry.of(d)] if s and s.by == "locked"}
    return {
        "persistence": gpu.persistence,
        "locked_graphics": locked.get("graphics"),
        "locked_memory": locked.get("memory"),
        "application_graphics": gpu.application.graphics,
        "application_memory": gpu.application.memory,
    }
