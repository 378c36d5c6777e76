# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the report of a fleet takes: python benchmarks/report.py [--nodes 4000] [--checks 60].

It invents a certification of so many nodes and draws it, each time in a process of its own: a loop that only reads the
records as JSON, as the anchor; JSON lines and the page; every format. It ends with 1 when JSON lines and the page take
more than 10 s of processor time or 1 GB, or when the page has more than 5 MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / ".build" / "collections"), str(ROOT / "tests" / "unit" / "plugins" / "plugin_utils")]

import report_fleet  # noqa: E402

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._exports import write  # noqa: E402

WAYS = {"json only": [], "JSON + HTML": ["json_lines", "html"], "all formats": list(write.FORMATS)}
MOST_SECONDS, MOST_BYTES, MOST_PAGE = 10.0, 1e9, 5e6


class Took(t.NamedTuple):
    """What one way took: processor and wall seconds, memory at most, bytes of the page."""

    cpu: float
    wall: float
    memory: float
    page: float


def draw(folder: Path, formats: list[str]) -> Took:
    """Draw in this process."""
    begin = time.monotonic()
    if formats:
        write.write(write.find({}, folder), folder, "report", formats)
    else:
        with (folder / "records.jsonl").open() as lines:
            for line in lines:
                json.loads(line)
    used = resource.getrusage(resource.RUSAGE_SELF)
    page = folder / "report.html"
    size = page.stat().st_size if "html" in formats else 0
    return Took(used.ru_utime + used.ru_stime, time.monotonic() - begin, used.ru_maxrss * 1024, size)


def apart(folder: Path, way: str) -> Took:
    """Draw in a process of its own, so that memory is that of the drawing alone."""
    argv = [sys.executable, __file__, "--draw", str(folder), "--way", way]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=600)
    return Took(*json.loads(done.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--checks", type=int, default=60)
    parser.add_argument("--draw", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=list(WAYS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.draw:
        sys.stdout.write(json.dumps(draw(options.draw, WAYS[options.way])))
        return 0
    found: dict[tuple[int, str], Took] = {}
    for nodes in (options.nodes // 10, options.nodes):
        with tempfile.TemporaryDirectory() as name:
            folder = report_fleet.store(report_fleet.invented(nodes, checks=options.checks), Path(name))
            size = (folder / "records.jsonl").stat().st_size
            sys.stdout.write(f"{nodes} nodes x {options.checks} checks, {size / 1e6:.0f} MB of records\n")
            for way in WAYS:
                took = found[nodes, way] = apart(folder, way)
                ratio = took.cpu / found[nodes, "json only"].cpu
                words = (
                    f"{took.cpu:5.1f} s cpu {took.wall:5.1f} s wall  {ratio:4.1f} times  {took.memory / 1e6:4.0f} MB"
                )
                sys.stdout.write(f"  {way:12} {words}  page {took.page / 1e6:.2f} MB\n")
    took = found[options.nodes, "JSON + HTML"]
    return int(took.cpu > MOST_SECONDS or took.memory > MOST_BYTES or took.page > MOST_PAGE)


if __name__ == "__main__":
    raise SystemExit(main())
