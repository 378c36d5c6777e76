# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers and times as people read them. Private."""

from __future__ import annotations

import datetime
import math
import re
import typing as t

NONE = "\u2013"


def number(value: t.Any) -> float | None:
    """Return a finite number or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def short(value: t.Any) -> str:
    """Show three significant digits, whole numbers in full with thin groups."""
    finite = number(value)
    if finite is None:
        return NONE if value is None else str(value)
    if finite == int(finite) and abs(finite) < 1e15:
        return f"{int(finite):,}".replace(",", "\u202f")
    if abs(finite) >= 1000:
        return f"{finite:,.0f}".replace(",", "\u202f")
    return f"{finite:.3g}"


def quantity(value: t.Any, unit: t.Any) -> str:
    """Show a number with its unit; bytes become KiB to TiB."""
    if unit in ("bytes", "byte", "B") and number(value) is not None:
        return size(value)
    return short(value) if value is None or not unit else f"{short(value)}\u00a0{unit}"


def size(value: t.Any) -> str:
    """Show a number of bytes in powers of 1024."""
    finite = number(value)
    if finite is None:
        return NONE
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(finite) < 1024:
            return f"{finite:.3g}\u00a0{unit}"
        finite /= 1024
    return f"{finite:.4g}\u00a0TiB"


def duration(value: t.Any) -> str:
    """Show seconds as 0.4 s, 12 s, 3 min 05 s or 2 h 10 min."""
    finite = number(value)
    if finite is None:
        return NONE
    if finite < 10:
        return f"{finite:.1f}\u00a0s"
    whole = round(finite)
    if whole < 60:
        return f"{whole}\u00a0s"
    if whole < 3600:
        return f"{whole // 60}\u00a0min {whole % 60:02d}\u00a0s"
    return f"{whole // 3600}\u00a0h {whole % 3600 // 60:02d}\u00a0min"


def clock(value: float) -> str:
    """Show a place on a time axis: 30 s, 2 min, 1:30 h."""
    whole = int(value)
    if whole < 60:
        return f"{whole}\u00a0s"
    if whole < 3600:
        return f"{whole // 60}\u00a0min" if whole % 60 == 0 else f"{whole // 60}:{whole % 60:02d}\u00a0min"
    return f"{whole // 3600}\u00a0h" if whole % 3600 == 0 else f"{whole // 3600}:{whole % 3600 // 60:02d}\u00a0h"


def when(value: t.Any) -> str:
    """Show an ISO 8601 text or seconds since 1970 as a date in UTC; what cannot be read is shown as it is."""
    try:
        if number(value) is not None:
            moment = datetime.datetime.fromtimestamp(value, tz=datetime.timezone.utc)
        else:
            moment = datetime.datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except (ValueError, OverflowError, OSError):
        return NONE if value is None else str(value)
    return moment.strftime("%-d %b %Y, %H:%M UTC")


_MACHINE_WORDS: tuple[tuple[re.Pattern[str], t.Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\bsize=(\d+)"), lambda match: size(int(match[1]))),
    (re.compile(r"\b(?:collective|op)=(\S+?)(?=[ ,;)])"), lambda match: match[1]),
    (re.compile(r"\bgpu=(\d+)"), lambda match: f"GPU {match[1]}"),
    (re.compile(r"\b\d+\.\d{3,}\b"), lambda match: f"{float(match[0]):.4g}"),
    (re.compile(r"\.0+(?=$|[;,) ])"), lambda match: ""),
    (re.compile(r">= ?"), lambda match: "≥ "),
    (re.compile(r"<= ?"), lambda match: "≤ "),
)


def readable(reason: t.Any) -> str:
    """Show a record's reason as people write: sizes in GiB, four digits, signs."""
    text = str(reason or "")
    for pattern, put in _MACHINE_WORDS:
        text = pattern.sub(put, text)
    return text


def shorten(text: str, limit: int = 180) -> str:
    """Return a text that fits, with an ellipsis where it was cut."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def plural(amount: int, noun: str, nouns: str | None = None) -> str:
    """Return ``1 node`` or ``2 nodes``."""
    return f"{short(amount)} {noun if amount == 1 else nouns or noun + 's'}"


def listing(names: t.Sequence[str], limit: int = 6) -> str:
    """Return the first names and how many more there are."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
