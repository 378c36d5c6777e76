# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON among other lines of a log, also when its program did not finish it or did not write it to the letter."""

from __future__ import annotations

import json
import re
import typing as t

# JSON that a program did not finish, or did not write to the letter.


# Strings first: what looks like a bracket or a number inside of one is none. C prints infinities bare.
_LOOSE_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\]]|-?\b(?:inf|nan)(?:inity)?\b', re.DOTALL | re.IGNORECASE)
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
    for match in _LOOSE_TOKEN.finditer(text, start):
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


# JSON documents among other lines of a log. Private; ``_json`` reads them.


# The largest document known here, all tests on 72 GPUs, has 3 MB.
_LONGEST = 1 << 24
_SOON = 4
# Strings first: what looks like a bracket inside of one is none.
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"?|[{}\[\]]')
# How a line of a document starts; lines of other programs come in between.
_INSIDE = re.compile(r'[{}\]",:\d-]|\[\s*(?:$|["\[{\d\]-])|true\b|false\b|null\b')


class _Document:
    """The lines of one document so far; ``mark`` is a text in its first lines that tells it from others."""

    def __init__(self, mark: str, head: t.Iterable[str] = ()) -> None:
        self._lines: list[str] = []
        self._open: list[str] = []
        self._mark = mark
        self._size = 0
        self._marked = False
        for line in head:
            self.add(line)

    def add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)
        self._marked = self._marked or self._mark in line
        _follow(line, self._open)

    @property
    def done(self) -> bool:
        """Say that it is closed, or that it can be none of the documents that are looked for."""
        late = len(self._lines) >= _SOON and not self._marked
        return not self._open or late or self._size > _LONGEST or len(self._open) > _DEEPEST

    def begins_again(self, line: str) -> bool:
        """Say that the program was killed in the middle, and another run follows."""
        return self._marked and self._mark in line

    def take_head(self, line: str) -> list[str]:
        """Give up the bracket before the mark when it stands on a line of its own: it belongs to the next run."""
        return [] if line.startswith("{") else [self._lines.pop()]

    def parts(self) -> t.Iterator[tuple[str, str | None]]:
        """Give one document, or the lines of something else."""
        if self._marked:
            yield "", "\n".join(self._lines)
        else:
            yield from ((line, None) for line in self._lines)


def split(lines: t.Iterable[str], mark: str) -> t.Iterator[tuple[str, str | None]]:
    """Yield each line with None, and each document as its text; one that is cut off as far as it goes."""
    current: _Document | None = None
    for line in lines:
        if current is None and not line.startswith("{"):
            yield line, None
            continue
        if current is None:
            current = _Document(mark)
        elif not _INSIDE.match(line):
            yield line, None
            continue
        elif current.begins_again(line):
            head = current.take_head(line)
            yield from current.parts()
            current = _Document(mark, head)
        current.add(line)
        if current.done:
            yield from current.parts()
            current = None
    if current is not None:
        yield from current.parts()


def _follow(text: str, still: list[str]) -> None:
    for token in _TOKEN.findall(text):
        if token in _CLOSE:
            still.append(_CLOSE[token])
        elif still and token == still[-1]:
            still.pop()
