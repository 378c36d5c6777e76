# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single values and messages of nvidia-smi: units, its words for "no value", its exit statuses."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text as words
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause

# Single values as nvidia-smi prints them: with units, or one of its many words for "no value".


# Where reading a value failed, NVML's words for its error stand in its place (nvmlErrorString), in the summary ERR!.
_FAILED = {
    "corrupted inforom",
    "err!",
    "error",
    "gpu is inaccessible",
    "gpu is lost",
    "gpu requires reset",
    "insufficient external power",
    "interrupt request issue",
    "timeout",
    "unknown error",
}
_NOTHING = _FAILED | {
    "",
    "already initialized",
    "argument version mismatch",
    "deprecated",
    "driver not loaded",
    "driver/library version mismatch",
    "function not found",
    "gpu access blocked by the operating system",
    "in use by another client",
    "insufficient memory",
    "insufficient permissions",
    "insufficient resources",
    "insufficient size",
    "invalid argument",
    "invalid frequency",
    "n/a",
    "no data",
    "no supported gpus were found",
    "not available",
    "not found",
    "not supported",
    "nvml shared library not found",
    "requested functionality has been deprecated",
    "resource not in correct state to perform requested operation",
    "system is not in ready state",
    "uninitialized",
    "unknown",
    "vgpu ecc not supported",
}
_REMARK = re.compile(r"(.*\S)\s+\[[^\[\]]*\]")
_DEAD = re.compile(r"GPU is lost|GPU is inaccessible|GPU requires reset")
# So many of the values that every GPU has must be errors, and all others missing, before a GPU counts as silent.
_ENOUGH = 3
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


def _bare(text: str | None) -> str:
    """Return the words of ``[Unknown Error]``; tables set between brackets what stands in place of a value."""
    shown = (text or "").strip()
    return shown[1:-1].strip() if _is_bracketed(shown) else shown


def _is_bracketed(shown: str) -> bool:
    return len(shown) > 1 and shown[0] == "[" and shown[-1] == "]"


def value(text: str | None) -> str | None:
    """Return the text, or None for ``N/A``, ``[Not Supported]``, ``ERR!`` and the like."""
    shown = (text or "").strip()
    return None if _is_bracketed(shown) or shown.lower() in _NOTHING else shown


def plain(text: str | None) -> str | None:
    """Return a value without a remark in brackets behind it, which R610 writes: ``610.57.04 [Deprecated; ..]``."""
    shown = value(text)
    match = _REMARK.fullmatch(shown) if shown and shown[-1] == "]" else None
    return value(match.group(1)) if match else shown


def failed(text: str | None) -> str | None:
    """Return the error that stands in place of a value; None where the value was read, or does not exist."""
    shown = _bare(text)
    return shown if shown.lower() in _FAILED else None


def silent(texts: t.Iterable[str], vital: t.Iterable[str]) -> str | None:
    """Return why a GPU does not answer, from all of its texts and from those that every GPU has; None if it does."""
    dead = next((match.group() for match in map(_DEAD.search, texts) if match), None)
    if dead:
        return dead
    shown = list(vital)
    errors = [error for error in map(failed, shown) if error]
    read = [text for text in shown if value(text) is not None]
    return f"nothing of it can be read: {errors[0]}" if len(errors) >= _ENOUGH and not read else None


def measured(text: str | None, *units: str) -> float | None:
    """Return the number of ``1410 MHz``; None when it has another unit than told, because then it is another thing."""
    number, unit = words.quantity((plain(text) or "").strip())
    return number if unit in units else None


def count(text: str | None) -> int | None:
    """Return a plain number from 0."""
    shown = (plain(text) or "").strip()
    return int(shown) if re.fullmatch(r"[0-9]{1,18}", shown) else None


def flag(text: str | None) -> bool | None:
    """Return what Yes, Enabled, Active and their opposites mean."""
    shown = (plain(text) or "").strip().lower()
    return True if shown in _YES else False if shown in _NO else None


def mask(text: str | None) -> int | None:
    """Return a bit mask such as ``0x0000000000000001``."""
    shown = (plain(text) or "").strip()
    return int(shown, 16) if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", shown) else None


def throttle_names(bits: int) -> list[str]:
    """Name the reasons in a mask; bits of newer drivers keep their number."""
    known = [name for bit, name in THROTTLE_BITS.items() if bits & bit]
    return known + [f"{1 << number:#x}" for number in range(9, 64) if bits >> number & 1]


def throttle_mask(active: t.Iterable[str]) -> int:
    """Return the mask of reasons by name."""
    wanted = set(active)
    return sum(bit for bit, name in THROTTLE_BITS.items() if name in wanted)


# Messages and exit statuses of nvidia-smi. It prints most of them to standard output, some before a valid table.


_REACH = 1000
_BUS_ID = r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)"


@dataclass(frozen=True)
class Message(Cause):
    """What nvidia-smi complains about, and the GPU if it names one (bus id as printed, upper case)."""

    bus_id: str | None = None
    index: int | None = None


# What is wrong decides, not who says it: a GPU that is gone is hardware also where NVML reports it, and a device handle
# that is denied is none. So the rules that name a reason come before those that name a place.
_KINDS: tuple[tuple[str, str], ...] = (
    ("hardware", r"GPU is (?:lost|inaccessible)|has fallen off the bus|GPU requires reset|GPU access is not possible"),
    ("hardware", r"GPU reset must occur before this GPU can be used"),
    ("hardware", r"infoROM is corrupted|Corrupted infoROM"),
    ("hardware", r"power cables? .*not (?:properly )?(?:attached|connected|plugged)"),
    ("hardware", r"GPU because it is insufficiently powered|Insufficient External Power"),
    ("hardware", r"interrupt issue|issue with GPU interrupts|Interrupt Request Issue"),
    ("config", r"Insufficient Permissions|does not have permission|GPU access blocked by the operating system"),
    ("config", r"make sure /dev/nvidia\* files are readable by current user"),
    ("software", r"(?:[Ff]abric ?[Mm]anager|nvidia-fabricmanager).*(?:not |fail|error)"),
    ("software", r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|System is not in ready state"),
    ("software", r"Driver/library version mismatch|couldn't communicate with the NVIDIA driver|: Driver Not Loaded"),
    ("software", r"Mismatch in expected NVML version|: Argument version mismatch|No supported GPUs were found"),
    (
        "software",
        r"couldn't find \S*(?:nvidia-ml|nvml)\S* library|NVML (?:Shared )?[Ll]ibrary (?:was )?[Nn]ot [Ff]ound",
    ),
    ("software", r"Failed to initialize NVML: |NVIDIA-SMI has failed because|Function Not Found"),
    ("software", r"is not a valid field to query|Invalid combination of input arguments"),
    ("hardware", r"Unable to de\w+ the (?:device handle|product name) for|Problem with GPU \S+: "),
    ("hardware", r"No devices (?:were )?found"),
    ("software", r"Unable to determine the number of (?:available )?GPUs"),
)
_FAILURES = [(kind, re.compile(pattern)) for kind, pattern in _KINDS]
# "GPU 0000:0B:00.0: ..", "GPU0000:0B:00.0: ..", "GPU4: 0000:0B:00.0: ..", "at gpu 0000:0B:00.0"
_NAMED = re.compile(rf"(?i)\bGPU ?(?:(?P<index>\d{{1,3}}): ?)?{_BUS_ID}(?![0-9A-Fa-f])")
_NUMBERED = re.compile(r"(?i)\bGPU ?(?P<index>\d{1,3}):")
# Every pattern above holds one of these, in lower case; looking for them first costs a tenth of the patterns.
_SUSPECT = (
    "device handle", "gpu is ", "fallen off", "requires reset", "is not possible", "inforom", "power cable",
    "interrupt", "no devices", "permission", "blocked by", "fabric", "not yet initialized", "system_not",
    "not in ready", "version mismatch", "communicate with", "librar", "initialize nvml", "nvidia-smi has",
    "function not found", "valid field", "input arguments", "reset must", "external power", "readable by",
    "driver not loaded", "expected nvml", "no supported", "product name for", "problem with", "number of",
)  # fmt: skip

STATUS: dict[int, tuple[str, str]] = {
    2: ("software", "an argument is invalid"),
    3: ("config", "the operation is not available on this device"),
    4: ("config", "no permission"),
    6: ("hardware", "the query found no such device"),
    8: ("hardware", "power cables are not attached properly"),
    9: ("software", "the NVIDIA driver is not loaded"),
    10: ("hardware", "the driver detected an interrupt issue with a GPU"),
    12: ("software", "the NVML library was not found"),
    13: ("software", "this NVML version lacks the function"),
    14: ("hardware", "the infoROM is corrupted"),
    15: ("hardware", "a GPU has fallen off the bus"),
    18: ("software", "driver and library versions differ"),
}


def message(text: str) -> Message | None:
    """Return the first complaint in a text."""
    return next(iter(messages(text)), None)


def messages(source: words.Source) -> t.Iterator[Message]:
    """Yield every complaint in a text or file."""
    for line in words.lines(source):
        parsed = complaint(line)
        if parsed:
            yield parsed


def complaint(line: str) -> Message | None:
    """Return what one clean line complains about."""
    line = line[:_REACH]
    lower = line.lower()
    if not any(word in lower for word in _SUSPECT):
        return None
    kind = next((kind for kind, pattern in _FAILURES if pattern.search(line)), None)
    if kind is None:
        return None
    named = _NAMED.search(line) or _NUMBERED.search(line)
    groups = named.groupdict() if named else {}
    bus, index = groups.get("bus"), groups.get("index")
    return Message(line, kind, bus.upper() if bus else None, int(index) if index else None)


def status(code: int | None) -> Message | None:
    """Return what an exit status says; None for 0, for no status, and for one that is not documented."""
    kind, text = STATUS.get(code or 0, ("", ""))
    return Message(f"nvidia-smi: {text} (exit status {code})", kind) if kind else None
