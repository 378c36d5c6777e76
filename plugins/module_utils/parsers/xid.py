# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xid and SXid messages of NVIDIA's drivers in a kernel log: dmesg, journalctl, syslog or /dev/kmsg.

``NVRM: Xid (PCI:0001:00:00): 79, pid=1234, GPU has fallen off the bus.`` tells of a GPU,
``nvidia-nvswitch3: SXid (PCI:0005:00:00.0): 12028, Non-fatal, Link 32 ..`` of an NVSwitch.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass
from datetime import datetime

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines

_TEXT = 300
_MARK = re.compile(r"(?:NVRM: |nvidia-nvswitch\d{0,4}: )?(S?Xid)\b")
# A part of a GPU (MIG) is named behind the address: (PCI:0000:3b:00 GPU-I:05).
_EVENT = re.compile(
    r"(S?Xid) \((?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?[^)]{0,80}\): (\d{1,6})\b[, ]*(.*)"
)
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?")
_SINCE_BOOT = re.compile(r"\[\s*(\d{1,12}\.\d{1,9})\]")
_KMSG = re.compile(r"\d{1,4},\d{1,19},(\d{1,19}),[^;]{0,40};")
_FATAL = re.compile(r"(?i)(?<![-\w])(non-?\s?)?fatal\b")


@dataclass(frozen=True)
class Event:
    """One message. ``code`` is None of a line that has the word and not the form; ``fatal`` if it says so or not.

    ``time`` is seconds since the epoch, None where the line has no time that can be read without guessing a year.
    """

    kind: str
    code: int | None
    bus_id: str
    text: str
    time: float | None
    fatal: bool | None


def parse(source: Source, boot: float | None = None) -> list[Event]:
    """Return all messages in their order; ``boot`` is when the system started, for times that count from there."""
    found = []
    for line in lines(source):
        mark = _MARK.search(line) if "Xid" in line else None
        if mark:
            event = _event(line, mark.group(1), boot)
            if event:
                found.append(event)
    return found


def _event(line: str, kind: str, boot: float | None) -> Event | None:
    match = _EVENT.search(line)
    if match is None:
        # Other programs write of Xids, too; only the driver's own lines count.
        own = "NVRM: Xid" in line or ("nvidia-nvswitch" in line and "SXid" in line)
        return Event(kind, None, "", line[:_TEXT], stamp(line, boot), None) if own else None
    kind, bus, code, text = match.groups()
    said = _FATAL.search(text)
    fatal = None if said is None else said.group(1) is None
    return Event(kind, int(code), _full(bus), text[:_TEXT].strip(), stamp(line[: match.start()], boot), fatal)


def _full(bus: str) -> str:
    domain, rest = bus.split(":", 1)
    return f"{domain[-8:]:0>8}:{rest}.0".upper()


def stamp(line: str, boot: float | None) -> float | None:
    """Return when a line was written."""
    iso = _ISO.search(line)
    if iso:
        return _seconds(*iso.groups())
    counted = _SINCE_BOOT.search(line)
    kmsg = None if counted else _KMSG.match(line)
    since = float(counted.group(1)) if counted else int(kmsg.group(1)) / 1e6 if kmsg else None
    return None if since is None or boot is None else boot + since


def _seconds(moment: str, fraction: str | None, zone: str | None) -> float | None:
    text = moment.replace(" ", "T") + ("+0000" if zone == "Z" else (zone or "").replace(":", ""))
    try:
        # Without a zone it is the node's own time.
        found: t.Any = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z" if zone else "%Y-%m-%dT%H:%M:%S")
        return float(found.timestamp()) + float(f"0.{fraction or 0}")
    except (ValueError, OverflowError, OSError):
        return None
