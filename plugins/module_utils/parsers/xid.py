# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xid and SXid messages of NVIDIA's drivers in records of the kernel log, as /dev/kmsg gives them.

``4,1234,2500000,c;NVRM: Xid (PCI:0001:00:00): 79, pid=1234, GPU has fallen off the bus.`` tells of a GPU,
``3,1235,2600000,-;nvidia-nvswitch3: SXid (PCI:0005:00:00.0): 12028, Non-fatal, Link 32 ..`` of an NVSwitch.

Text that dmesg or syslog printed is no source: other parts of the kernel quote what users chose (the path of a mount,
the name of a program), and a newline in it becomes a line that looks like a message. In a record a message keeps its
beginning, and control characters are escaped.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

_TEXT = 300
# Priority, sequence number, microseconds since the system started, flags and what later kernels add. The flag is not
# looked at: the driver prints with KERN_CONT (nv_printf of os-interface.c), so its messages have "c" as well as "-".
_RECORD = re.compile(r"(\d{1,4}),\d{1,20},(\d{1,19}),[^;]{1,60};(.*)")
_MARK = re.compile(r"NVRM: (Xid) \(|nvidia-nvswitch\d{1,4}: (SXid) \(")
# A part of a GPU (MIG) is named behind the address: (PCI:0000:3b:00 GPU-I:05).
_EVENT = re.compile(
    r"(?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?[^)]{0,80}\): (\d{1,6})\b[, ]*(.*)"
)
_FATAL = re.compile(r"(?i)(?<![-\w])(non-?\s?)?fatal\b")


class KernelRecord(t.NamedTuple):
    """A record of the kernel log. Only the kernel itself has facility 0: what a program writes gets 1 or more.

    ``message`` is as the kernel escapes it, so it has no control characters.
    """

    facility: int
    seconds: float
    message: str


@dataclass(frozen=True)
class Event:
    """One message. ``code`` is None of a message that has the prefix and not the form; ``fatal`` if it says so or not.

    ``time`` is seconds since the epoch, None where nobody knows when the system started.
    """

    kind: str
    code: int | None
    bus_id: str
    text: str
    time: float | None
    fatal: bool | None


def records(lines: t.Iterable[str]) -> t.Iterator[KernelRecord]:
    """Yield the records; lines that begin with a space are the properties of the record above, and no messages."""
    for line in lines:
        match = _RECORD.match(line)
        if match:
            yield KernelRecord(int(match.group(1)) >> 3, int(match.group(2)) / 1e6, match.group(3))


def parse(lines: t.Iterable[str], boot: float | None = None) -> list[Event]:
    """Return all messages of the drivers in their order; ``boot`` is when the system started."""
    events = []
    for record in records(lines):
        mark = _MARK.match(record.message) if record.facility == 0 else None
        if mark:
            time = None if boot is None else boot + record.seconds
            events.append(_event(mark.group(1) or mark.group(2), record.message[mark.end() :], record.message, time))
    return events


def _event(kind: str, rest: str, message: str, time: float | None) -> Event:
    match = _EVENT.match(rest)
    if match is None:
        return Event(kind, None, "", message[:_TEXT], time, None)
    bus, code, text = match.groups()
    # The name of a user's program may stand before the driver's own words, and never after them.
    fatal = None
    for word in _FATAL.finditer(text):
        fatal = word.group(1) is None
    return Event(kind, int(code), _full(bus), text[:_TEXT].strip(), time, fatal)


def _full(bus: str) -> str:
    domain, rest = bus.split(":", 1)
    return f"{domain[-8:]:0>8}:{rest}.0".upper()
