# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single values as nvidia-smi prints them: with units, or one of its many words for "no value"."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text as words

_NOTHING = {
    "",
    "n/a",
    "not available",
    "not supported",
    "not found",
    "unknown error",
    "unknown",
    "err!",
    "error",
    "gpu requires reset",
    "gpu is lost",
    "insufficient permissions",
    "requested functionality has been deprecated",
    "deprecated",
}
_YES = {"yes", "enabled", "active", "on", "true"}
_NO = {"no", "disabled", "not active", "off", "false"}

# Bits of clocks_event_reasons.active (clocks_throttle_reasons.active before R535).
THROTTLE_BITS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}
# What no healthy GPU in a healthy room shows; idling and the power cap are part of normal work.
THROTTLE_FAULTS = 0x8 | 0x20 | 0x40 | 0x80


def value(text: str | None) -> str | None:
    """Return the text, or None for ``N/A``, ``[Not Supported]``, ``ERR!`` and the like."""
    found = (text or "").strip()
    bare = found[1:-1].strip() if found[:1] == "[" and found[-1:] == "]" else found
    return None if bare.lower() in _NOTHING else found


def measured(text: str | None, *units: str) -> float | None:
    """Return the number of ``1410 MHz``; None when it has another unit than told, because then it is another thing."""
    found, unit = words.quantity((value(text) or "").strip())
    return found if unit in units else None


def count(text: str | None) -> int | None:
    """Return a plain number from 0."""
    found = (value(text) or "").strip()
    return int(found) if re.fullmatch(r"[0-9]{1,18}", found) else None


def flag(text: str | None) -> bool | None:
    """Return what Yes, Enabled, Active and their opposites mean."""
    found = (value(text) or "").strip().lower()
    return True if found in _YES else False if found in _NO else None


def mask(text: str | None) -> int | None:
    """Return a bit mask such as ``0x0000000000000001``."""
    found = (value(text) or "").strip()
    return int(found, 16) if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", found) else None


def throttle_names(bits: int) -> list[str]:
    """Name the reasons in a mask; bits of newer drivers keep their number."""
    known = [name for bit, name in THROTTLE_BITS.items() if bits & bit]
    return known + [f"{1 << place:#x}" for place in range(9, 64) if bits >> place & 1]


def throttle_mask(active: t.Iterable[str]) -> int:
    """Return the mask of reasons by name."""
    wanted = set(active)
    return sum(bit for bit, name in THROTTLE_BITS.items() if name in wanted)
