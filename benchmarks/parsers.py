# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast the parsers read a large NCCL_DEBUG log: python benchmarks/parsers.py [--megabytes 100].

Side by side in one run, each in a process of its own and on the same files: a loop that only splits every line into
words, and the parser; on a log of a tenth of the size and on the whole. First nccl_tests with and without rank tags,
then every parser there is, as any of them may be given such a log.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / ".build" / "collections"), str(ROOT / "tests" / "fuzz")]

import harness  # noqa: E402

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests, text  # noqa: E402

RANKS = 16
TAGS = ("", "[1,0]<stdout>:", "0: ")
ROUNDS = 5
HEAD = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
{devices}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
DEVICE = "#  Rank {rank:2} Group  0 Pid {pid} on ndv4-{node:04} device {gpu:2} [0001:00:00] NVIDIA A100-SXM4-40GB"
ROW = "{size:12}  {count:12}     float     sum      -1"
REST = "    564.6   59.43  111.43      0    563.1   59.59  111.73      0\n"
FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 111.58 \n#\n\n"
DEBUG = (
    "{host} [{gpu}] NCCL INFO Channel {number:02}/16 :  0  7  6  5  4  3  2  1  8 15 14 13 12 11 10  9\n",
    "{host} [{gpu}] NCCL INFO Channel {number:02}/0 : {number}[{gpu}] -> 9[1] [send] via NET/IB/3/GDRDMA/Shared\n",
    "{host} [{gpu}] NCCL INFO NET/IB: NCCL Dev 3 IbDev 5 Port 1 qpn 4711 mtu 5 LID 77 (mlx5_ib3)\n",
    "{host} [{gpu}] NCCL INFO Trees [0] 9/-1/-1->8->7 [1] 9/-1/-1->8->7 [2] 9/-1/-1->8->7 [3] 9/-1/-1->8->{number}\n",
    "{host} [{gpu}] NCCL INFO AllReduce: opCount {number:x} sendbuff 0x7f2a8e000000 recvbuff 0x7f2a8c000000\n",
    "{host} [{gpu}] NCCL TRACE ncclAllReduce hash 7 channel {number} time 12.44\n",
    "[2026-03-14 09:26:53] {host} [{gpu}] graph/xml.h:77 NCCL WARN Attribute busid of node nic not found {number}\n",
)


def write_log(path: Path, size: int, tag: str = "") -> None:
    """Write a table of 31 rows with the debug lines of its ranks between and within the rows, line by line."""
    devices = [DEVICE.format(rank=n, pid=21000 + n, node=n // 8, gpu=n % 8) for n in range(RANKS)]
    with path.open("w") as file:
        written = file.write(HEAD.format(devices="\n".join(devices)))
        for power in range(3, 34):
            written += file.write(tag + ROW.format(size=1 << power, count=1 << power - 2))
            number = 0
            while written < size * (power - 2) // 31 - 200:
                host = f"ndv4-{number % 2:04}:{21000 + number % RANKS}:{21100 + number % RANKS}"
                line = DEBUG[number % 5 if number % 50 else number % 7]
                line = line.format(host=host, gpu=number % 8, number=number % 64)
                written += file.write(f"{tag}{line}" if number else line)
                number += 1
            written += file.write(tag + REST)
        file.write(FOOT)


def split_only(path: Path) -> int:
    words = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            words += len(line.split())
    return words


def parse(path: Path) -> int:
    with text.opened(path) as file:
        log = nccl_tests.parse(file)
    assert log.ok, log.cause
    assert log.runs[0].ranks == RANKS
    return len(log.runs[0].rows)


def any_parser(parser: harness.Parser) -> t.Callable[[Path], int]:
    def call(path: Path) -> int:
        with text.opened(path) as file:
            parser.call(file)
        return 0

    return call


PARSERS = {parser.name: any_parser(parser) for parser in harness.discover()}
WORK: dict[str, t.Callable[[Path], int]] = {
    "nothing": lambda dummy: 0,
    "split": split_only,
    "parse": parse,
    **PARSERS,
}


class Measured(t.NamedTuple):
    """Seconds of processor time, and the most memory that the process ever had."""

    seconds: float
    kibibytes: int
    result: int


def measure(name: str, path: Path) -> Measured:
    """Run one piece of work in a process of its own; the median of the rounds is what a quiet machine would show."""
    rounds = []
    for dummy in range(ROUNDS if name in ("split", "parse") else 1):
        argv = [sys.executable, __file__, "--work", name, "--file", str(path)]
        rounds.append(Measured(*json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout)))
    return rounds[0]._replace(seconds=statistics.median(one.seconds for one in rounds))


def work(name: str, path: Path) -> None:
    begin = time.process_time()
    result = WORK[name](path)
    print(json.dumps([time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, result]))


class Log(t.NamedTuple):
    """A log with what it costs to do nothing at all, and to split its lines."""

    path: Path
    megabytes: float
    nothing: Measured
    split: Measured


def make_log(path: Path, size: int, tag: str) -> Log:
    write_log(path, size, tag)
    return Log(path, path.stat().st_size / 1e6, measure("nothing", path), measure("split", path))


def compare(title: str, name: str, log: Log) -> float:
    """Print one line of the table; return the parser's time."""
    parsed = measure(name, log.path)
    speeds = [f"{log.megabytes / one.seconds:6.0f} MB/s" for one in (log.split, parsed)]
    more = (parsed.kibibytes - log.nothing.kibibytes) / 1024
    times = parsed.seconds / log.split.seconds
    print(f"{title:>25}  {log.megabytes:5.0f} MB  {'  '.join(speeds)}  {times:5.2f}  {more:5.1f} MiB", flush=True)
    return parsed.seconds


def compare_all(megabytes: int, folder: Path) -> None:
    print(f"{'':>25}  {'log':>8}  {'split':>11}  {'parse':>11}  {'ratio':>5}  {'memory':>9}")
    titles = {tag: [(tag or "no tags", "parse")] for tag in TAGS}
    titles[""] += [(name, name) for name in PARSERS]
    for tag, rows in titles.items():
        logs = [make_log(folder / f"{part}.log", megabytes * part * 100_000, tag) for part in (1, 10)]
        for title, name in rows:
            seconds = [compare(title, name, log) for log in logs]
            print(f"{'':>25}  ten times the log takes {seconds[1] / seconds[0]:.1f} times as long")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--megabytes", type=int, default=100)
    options.add_argument("--work", choices=WORK, help=argparse.SUPPRESS)
    options.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.work:
        work(arguments.work, arguments.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        compare_all(arguments.megabytes, Path(folder))


if __name__ == "__main__":
    main()
