# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpcai-agent round FILE: many tests at once, each a step of the job that this runs in. Private, stdlib only."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _child
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import journal as journals
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import steps


def main(argv: t.Sequence[str]) -> int:
    """Measure what the file lists and has no result yet; each result is kept as soon as it is there."""
    if len(argv) != 1:
        sys.stderr.write("usage: hpcai-agent round FILE\n")
        return 2
    job = journals.load(Path(argv[0]))
    if not isinstance(job, dict):
        sys.stderr.write(f"{argv[0]} holds no job\n")
        return 2
    book = journals.Journal(job["folder"])
    book.start(Path(argv[0]).stem)
    done = book.answered()
    tests = [test for test in job["tests"] if test["id"] not in done]
    # What the same nodes do, they do one after the other.
    groups: dict[tuple[t.Any, ...], list[Json]] = {}
    for test in tests:
        groups.setdefault((*test["nodes"], test.get("collective"), steps.paired(test)), []).append(test)
    _run(list(groups.values()), job, book)
    return 0


def _run(groups: t.Sequence[t.Sequence[Json]], job: Json, book: journals.Journal) -> None:
    """Do groups of tests side by side; when the process is told to end their steps end first, and no other begins."""
    over, door = threading.Event(), threading.Lock()
    busy: set[str] = set()

    def enter(few: t.Sequence[Json]) -> None:
        with door:
            if over.is_set():
                return
            busy.add(few[0]["id"])
        try:
            _together(few, job, book)
        finally:
            busy.discard(few[0]["id"])

    with concurrent.futures.ThreadPoolExecutor(max(1, int(job["concurrent"]))) as pool:
        try:
            with _child.ending():
                try:
                    running = [pool.submit(enter, few) for few in groups]
                    # A signal that comes just before a thread begins to wait does not end the waiting: so not for long.
                    while concurrent.futures.wait(running, 1.0).not_done:
                        pass
                except (SystemExit, KeyboardInterrupt):
                    with door:
                        over.set()
                    raise
            for one in running:
                one.result()
        except (SystemExit, KeyboardInterrupt):
            # The pool waits for its threads, which wait for their steps; one of them may just be starting one.
            while busy:
                _child.end_all()
                time.sleep(0.1)
            raise


def _together(tests: t.Sequence[Json], job: Json, book: journals.Journal) -> None:
    for name, found in steps.measure(tests, job["how"], job["run"], str(book.folder / "logs")):
        try:
            book.answer(name, found)
        except (OSError, journals.JournalError) as exc:
            sys.stderr.write(f"{name}: its result was lost: {exc}\n")
