# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpcai-agent round FILE: many tests at once, each a step of the job that this runs in. Private, stdlib only."""

from __future__ import annotations

import concurrent.futures
import sys
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
    # The steps have to end before the pool waits for its threads.
    with concurrent.futures.ThreadPoolExecutor(max(1, int(job["concurrent"]))) as pool, _child.ending():
        list(pool.map(lambda test: _one(test, job, book), tests))
    return 0


def _one(test: Json, job: Json, book: journals.Journal) -> None:
    try:
        book.answer(test["id"], steps.measure(test, job["how"], job["run"], str(book.folder / "logs")))
    except (OSError, journals.JournalError) as exc:
        sys.stderr.write(f"{test['id']}: its result was lost: {exc}\n")
