# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What fio gets from scratch beside what it gets from the same disks: one alone, and all at once with nothing between.

Every round measures both ways on the same machine, in turns with the other one first. QEMU holds each disk to the same
bandwidth, so what the disks can do together is known on any host. All data on the disks is lost. See README.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import typing as t
from pathlib import Path

from machines import ROOT, Bench

MOUNT = "/mnt/bench_scratch"
FIO = "fio --direct=1 --ioengine=libaio --bs=1M --iodepth=16 --time_based --group_reporting --output-format=json"
WAYS = ("write", "read")
FILES = 4
Speeds = t.Dict[str, t.Dict[str, float]]


def fio(bench: Bench, way: str, seconds: int, jobs: t.Mapping[str, str]) -> float:
    """MB/s of all jobs together; a job is a device, or a file with its size."""
    parts = [f"--name={name} {target}" for name, target in jobs.items()]
    out = bench.sh(f"{FIO} --rw={way} --runtime={seconds} {' '.join(parts)}")
    return sum(job[way]["bw_bytes"] for job in json.loads(out)["jobs"]) / 1e6


def devices(bench: Bench) -> list[str]:
    """The disks by their serial numbers, for kernel names change with every boot."""
    found = json.loads(bench.sh("lsblk --json --nodeps --output PATH,SERIAL"))["blockdevices"]
    wanted = {disk.serial for disk in bench.machine.spec.disks}
    return sorted(disk["path"] for disk in found if disk["serial"] in wanted)


def blank(bench: Bench) -> None:
    """Empty the disks, as they came: the module refuses disks with data that is not its own."""
    bench.sh(f"for disk in {' '.join(devices(bench))}; do blkdiscard --force $disk; done")


def striped(bench: Bench, options: dict[str, t.Any], seconds: int, size: int) -> dict[str, float]:
    """Scratch as the module makes it, and files on it."""
    blank(bench)
    bench.module("nvme_scratch", options)
    try:
        if not bench.sh(f"findmnt --noheadings --output SOURCE {MOUNT} || true").startswith("/dev/md"):
            raise SystemExit(f"{bench.name}: scratch was not made; run nvme_scratch by hand to see why")
        files = {"scratch": f"--directory={MOUNT} --numjobs={FILES} --size={size}M"}
        return {way: fio(bench, way, seconds, files) for way in WAYS}
    finally:
        bench.module("nvme_scratch", {**options, "state": "absent", "destroy": True})


def singly(bench: Bench, seconds: int, repeat: int) -> Speeds:
    """One disk alone, another one in every round; then all at once, each by itself: what they can do together."""
    found = devices(bench)
    one = {"one": f"--filename={found[repeat % len(found)]}"}
    every = {f"disk{number}": f"--filename={device}" for number, device in enumerate(found)}
    return {
        name: {way: fio(bench, way, seconds, jobs) for way in WAYS} for name, jobs in (("one", one), ("all", every))
    }


def rounds(bench: Bench, seconds: int, repeat: int, size: int) -> t.Iterator[Speeds]:
    """The two ways in turns, each first in every other round."""
    options = {"mount": MOUNT, "name": "bench", "ids": [disk.serial for disk in bench.machine.spec.disks]}
    for number in range(repeat):
        found: Speeds = {}
        for way in ("striped", "singly") if number % 2 == 0 else ("singly", "striped"):
            if way == "striped":
                found["striped"] = striped(bench, options, seconds, size)
            else:
                found.update(singly(bench, seconds, number))
        told = ", ".join(f"{name} {way} {speed:.1f}" for name, ways in found.items() for way, speed in ways.items())
        print(f"  {told} MB/s", flush=True)
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", type=Path, default=ROOT / ".build/lab", help="a lab of `make lab-up BACKEND=vm`")
    parser.add_argument("--machine", default="c1", help="its disks must be blank, and are blank afterwards")
    parser.add_argument(
        "--limit", type=float, default=10.0, help="MB/s of each disk; little, so that nothing else limits"
    )
    parser.add_argument("--seconds", type=int, default=10, help="of each run of fio")
    parser.add_argument("--repeat", type=int, default=4, help="rounds, of which medians are taken")
    args = parser.parse_args()
    bench = Bench(args.lab, args.machine)
    bench.boot()
    print(f"{bench.describe()}; each disk held to {args.limit:g} MB/s", flush=True)
    # Written in half of the time, for a read of what was never written does not touch a disk.
    size = max(1, int(args.limit * len(bench.disks) * args.seconds / FILES / 2))
    bench.throttle(args.limit)
    try:
        found = list(rounds(bench, args.seconds, args.repeat, size))
    finally:
        bench.throttle(0)
        blank(bench)
    limit = args.limit * len(bench.disks)
    print(
        f"{'':<8}"
        + "".join(f"{title:>14}" for title in ("one disk", "all singly", "striped", "/ one disk", "/ all", "/ limit"))
    )
    for way in WAYS:
        one, every, ours = (statistics.median(item[name][way] for item in found) for name in ("one", "all", "striped"))
        cells = [f"{one:.1f} MB/s", f"{every:.1f} MB/s", f"{ours:.1f} MB/s", f"{ours / one:.2f}", f"{ours / every:.2f}"]
        print(f"{way:<8}" + "".join(f"{cell:>14}" for cell in [*cells, f"{ours / limit:.2f}"]))


if __name__ == "__main__":
    main()
