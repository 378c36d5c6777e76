# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a finding reads. No I/O; private."""

from __future__ import annotations

import difflib
import typing as t


def say(variable: str, value: object, problem: str, accepted: str) -> str:
    """Return the one form in which a problem is told: variable, value, what is wrong, what is accepted."""
    return f"{variable} is {value!r}: {problem}; accepted: {accepted}"


def twice(names: t.Iterable[t.Any]) -> list[t.Any]:
    """Return the names that occur more than once."""
    seen: list[t.Any] = [name for name in names if name]
    return sorted({name for name in seen if seen.count(name) > 1})


def one_of(names: t.Iterable[object], otherwise: str = "none is defined") -> str:
    """Return the accepted names in words."""
    listed = ", ".join(sorted({str(name) for name in names}))
    return f"one of {listed}" if listed else otherwise


def slip(name: str, known: t.Iterable[str]) -> str:
    """The name that was probably meant; empty if the name is known, or like none that is."""
    lower = {word.lower(): word for word in known}
    close = difflib.get_close_matches(name.lower(), lower, 1, 0.7)
    return lower[close[0]] if close and name.lower() not in lower else ""
