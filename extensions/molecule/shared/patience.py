# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a test waits before it gives up: one setting for all of them.

A limit is there to end a test that would never end. It is no verdict: whatever is waited for is a condition.
``HPCAI_TEST_PATIENCE`` multiplies every limit, for a machine that is slow or busy (default 1).
"""

from __future__ import annotations

import os
import time
import typing as t

_T = t.TypeVar("_T")
_LONGEST = 5.0  # seconds between two questions
_SHARE = 20  # of the time that was waited is the next pause


def patience(seconds: float) -> float:
    """A limit in seconds, as long as this machine may need."""
    return seconds * float(os.environ.get("HPCAI_TEST_PATIENCE") or 1)


def pause_after(waited: float, least: float = 0.5) -> float:
    """Seconds until the next question: who has waited for minutes is asked less often, for to ask is work too."""
    return max(least, min(_LONGEST, waited / _SHARE))


def wait_for(what: str, ask: t.Callable[[], _T], seconds: float = 120, pause: float = 0.5) -> _T:
    """Ask until the answer is true, and return it.

    ``what`` completes the sentence "Waited 120 s for …" of the AssertionError, which ends with the last answer;
    ``pause`` is the least time between two questions.
    """
    begin = time.monotonic()
    while True:
        answer = ask()
        if answer:
            return answer
        waited = time.monotonic() - begin
        if waited > patience(seconds):
            raise AssertionError(f"Waited {patience(seconds):.0f} s for {what}. Last answer: {answer!r}")
        time.sleep(pause_after(waited, pause))
