# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fio with --output-format=json: the local disks of the machine, striped."""

from __future__ import annotations

import json
import sys
import time
import typing as t
from pathlib import Path

from emulation.machine import Json, Machine

UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def main(machine: Machine, name: str, arguments: t.Sequence[str]) -> int:
    if "--version" in arguments:
        print("fio-3.36-emulated")
        return 0
    pairs = (word.lstrip("-").partition("=") for word in arguments)
    options = {key.replace("-", "_"): value or "1" for key, dummy, value in pairs}
    named = Path((options.get("filename") or ".").split(":")[0])
    where = Path(options["directory"]) if "directory" in options else named if named.is_dir() else named.parent
    if not where.is_dir():
        print(
            "fio: pid=0, err=2/file:filesetup.c:174, func=open, error=No such file or directory\n"
            f"fio: cannot use {where}",
            file=sys.stderr,
        )
        return 1
    time.sleep(machine["seconds"])
    document = json.dumps(_document(machine, options), indent=2)
    if "output" in options:
        Path(options["output"]).write_text(document + "\n", encoding="utf-8")
    else:
        print(
            "note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1"
            if options.get("ioengine") in ("sync", "psync") and int(options.get("iodepth", 1)) > 1
            else "",
            end="",
        )
        print(document)
    return 0


def size(text: str) -> int:
    """4k, 1m, 2g, with or without b, also KiB."""
    word = text.lower().rstrip("b").rstrip("i")
    return int(word[:-1]) * UNITS[word[-1]] if word[-1:] in UNITS else int(word or 0)


def _document(machine: Machine, options: dict[str, str]) -> Json:
    kind = options.get("rw") or options.get("readwrite") or "read"
    jobs = 1 if "group_reporting" in options else int(options.get("numjobs", 1))
    return {
        "fio version": "fio-3.36-emulated",
        "timestamp": int(time.time()),
        "time": time.strftime("%a %b %e %H:%M:%S %Y"),
        "global options": {},
        "jobs": [_job(machine, options, kind, number, jobs) for number in range(jobs)],
        "disk_util": [],
    }


def _job(machine: Machine, options: dict[str, str], kind: str, number: int, jobs: int) -> Json:
    block, seconds = size(options.get("bs", "4k")), float(options.get("runtime", "10").rstrip("s"))
    found: Json = {"jobname": options.get("name", "job"), "groupid": 0, "error": 0, "job options": options}
    slow = float(machine.faults.get("slow_storage") or 1.0)
    for way in ("read", "write", "trim"):
        busy = way in kind or (kind in ("rw", "randrw") and way != "trim")
        speed = machine["storage"].get(way, 0) * 1e9 * slow * machine.jitter("fio", way, number) / jobs if busy else 0.0
        if "rand" in kind and block < UNITS["m"]:
            speed *= 0.7
        found[way] = _way(int(speed), block, seconds if busy else 0.0)
    return {**found, "elapsed": int(seconds) + 1, "latency_depth": int(options.get("iodepth", 1))}


def _way(speed: int, block: int, seconds: float) -> Json:
    operations = speed // block
    latency = {
        "min": 9000,
        "max": 12000000,
        "mean": 1.2e6 if speed else 0.0,
        "stddev": 2.5e5 if speed else 0.0,
        "N": operations,
    }
    return {
        "io_bytes": int(speed * seconds),
        "io_kbytes": int(speed * seconds) >> 10,
        "bw_bytes": speed,
        "bw": speed >> 10,
        "iops": float(operations),
        "runtime": int(seconds * 1000),
        "total_ios": int(operations * seconds),
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": {**latency, "mean": latency["mean"] / 100},
        "clat_ns": {**latency, "percentile": {"50.000000": 1150000, "99.000000": 2400000} if speed else {}},
        "lat_ns": latency,
        "bw_min": speed >> 10,
        "bw_max": speed >> 10,
        "bw_agg": 100.0,
        "bw_mean": float(speed >> 10),
        "bw_dev": 0.0,
        "bw_samples": 1,
    }
