# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON that a program did not finish, or did not write to the letter; private."""

from __future__ import annotations

import json
import re
import typing as t

# Strings first: what looks like a bracket or a number inside of one is none. C prints infinities bare.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\]]|-?\b(?:inf|nan)(?:inity)?\b', re.DOTALL | re.IGNORECASE)
_CLOSE = {"{": "}", "[": "]"}
_DEEPEST = 64


class Read(t.NamedTuple):
    """``whole`` says that no part of the document is missing."""

    data: t.Any
    whole: bool


def read(text: str) -> Read:
    """Return the first document of a text, or of one that breaks off what was closed in it; no number is infinite."""
    pieces, whole = _closed(text)
    try:
        return Read(json.loads("".join(pieces), parse_float=_finite, parse_int=_short), whole)
    except (ValueError, RecursionError):
        return Read(None, False)


def _closed(text: str) -> tuple[list[str], bool]:
    """Return the text up to the last bracket that was closed, and the brackets that close the others."""
    start = text.find("{")
    if start < 0:
        return [], False
    pieces: list[str] = []
    still: list[str] = []
    position, safe, rest = start, 0, ""
    for match in _TOKEN.finditer(text, start):
        token = match.group()
        pieces.append(text[position : match.start()])
        pieces.append("null" if token[-1] in "fFnNyY" else token)
        position = match.end()
        if token in _CLOSE:
            still.append(_CLOSE[token])
        elif still and token == still[-1]:
            still.pop()
            safe, rest = len(pieces), "".join(reversed(still))
        if not still or len(still) > _DEEPEST:
            break
    return [*pieces[:safe], rest], not still


def _finite(text: str) -> float | None:
    value = float(text)
    return value if abs(value) != float("inf") else None


def _short(text: str) -> int | float | None:
    return int(text) if len(text) < 19 else _finite(text)
