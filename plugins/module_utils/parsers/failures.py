# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures that any program can show: what the line means, and which of several lines is the cause.

One broken rank makes a hundred lines: its own, those of its peers, of the launcher and of the scheduler. Three sorts
are told apart: a failure; a consequence, which counts when nothing better was said; and a hint, a warning that
healthy runs show as well: it explains a consequence, but is no failure by itself.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import _failures_table as table

# A line is looked at so far, which bounds the cost of every search.
_REACH = 2000
_TEXT = 400


@dataclass(frozen=True)
class Cause:
    """Why a run cannot be trusted, in the program's own words; ``kind`` is the class of a check record."""

    text: str
    kind: str


def find(line: str) -> Cause | None:
    """Return what a line says about a failure or its consequences."""
    line = line[:_REACH]
    return _search(line, table.FAILURES) or _search(line, table.CONSEQUENCES)


def cause(line: str, kind: str) -> Cause:
    """Return a cause of that kind; ``?`` is replaced by what the words of the line stand for."""
    text = line[:_REACH].strip()[:_TEXT]
    return Cause(text, _meaning(text) if kind == "?" else kind)


class FirstCause:
    """Look at every line of a run; `cause` is the first failure, or what comes nearest to one."""

    def __init__(self, extra: t.Sequence[tuple[t.Pattern[str] | str, str]] = ()) -> None:
        self._extra = [(re.compile(pattern), kind) for pattern, kind in extra]
        self._failure: Cause | None = None
        self._consequence: Cause | None = None
        self._hint: Cause | None = None

    @property
    def failure(self) -> Cause | None:
        """Return a failure that leaves no doubt."""
        return self._failure

    @property
    def cause(self) -> Cause | None:
        return self._failure or (self._consequence and (self._hint or self._consequence))

    def add(self, cause: Cause, instead_of: Cause | None = None) -> None:
        """Take a failure that the caller found by other means, unless there was another one before."""
        if self._failure is None or self._failure is instead_of:
            self._failure = cause

    def see(self, line: str) -> None:
        # NCCL tells of what it tries and then retries: thousands of lines, none of them a failure.
        if self._failure or " NCCL INFO " in line:
            return
        line = line[:_REACH]
        self._failure = self._own(line)
        if self._failure or not table.SUSPECT.search(line):
            return
        self._failure = _search(line, table.FAILURES)
        if self._failure:
            return
        self._consequence = self._consequence or _search(line, table.CONSEQUENCES)
        self._hint = self._hint or (None if self._consequence else _search(line, table.HINTS))

    def _own(self, line: str) -> Cause | None:
        return next((cause(line, kind) for pattern, kind in self._extra if pattern.search(line)), None)


def _search(line: str, rules: t.Sequence[table.Rule]) -> Cause | None:
    for rule in rules:
        if rule.literal in line and (rule.pattern is None or rule.pattern.search(line)):
            return cause(line, rule.kind)
    return None


def _meaning(text: str) -> str:
    low = text.lower()
    return next((kind for kind, words in table.MEANING if any(word in low for word in words)), "software")
