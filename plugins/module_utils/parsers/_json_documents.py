# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON documents among other lines of a log. Private; ``_json`` reads them."""

from __future__ import annotations

import re
import typing as t

# The largest document known here, all tests on 72 GPUs, has 3 MB.
_LONGEST = 1 << 24
_DEEPEST = 64
_SOON = 4
# Strings first: what looks like a bracket inside of one is none.
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"?|[{}\[\]]')
_CLOSE = {"{": "}", "[": "]"}
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
