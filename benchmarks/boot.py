# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a node takes from its kernel's start until slurmd is ready, with and without the units of this collection.

One machine boots again and again: without them, with them, and with them on disks that came back blank, so that array
and filesystem have to be made. Every round has one boot of each kind, in turns. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from machines import ROOT, Bench

UNITS = "hpcai-scratch.service hpcai-gpu-clocks.service hpcai-node-ready.target"
DROP_IN = "/etc/systemd/system/slurmd.service.d/hpcai-boot-order.conf"
# A node without GPUs has no unit for clocks.
EACH = f"for unit in {UNITS}; do systemctl cat $unit > /dev/null 2>&1 || continue; systemctl --quiet {{}} $unit; done"
KINDS = ("without", "with", "blank disks")
# systemd's clock and the kernel's start together; "started on" is what slurmd says once it serves.
READY = "journalctl --boot --unit=slurmd --grep='slurmd started on' --output=json --output-fields=__MONOTONIC_TIMESTAMP"


def boot(bench: Bench, kind: str) -> float:
    """Seconds from the kernel's start to slurmd's readiness."""
    if kind == "without":
        bench.sh(f"{EACH.format('disable')}; test ! -e {DROP_IN} || mv --force {DROP_IN} {DROP_IN}.off")
    else:
        bench.sh(f"test ! -e {DROP_IN}.off || mv --force {DROP_IN}.off {DROP_IN}; {EACH.format('enable')}")
    bench.sh("sync")
    bench.machine.stop()
    if kind == "blank disks":
        bench.machine.blank()
    bench.boot()
    for dummy in range(60):
        found = [json.loads(line) for line in bench.sh(f"{READY} || true").splitlines()]
        if found:
            check(bench, kind)
            return int(found[0]["__MONOTONIC_TIMESTAMP"]) / 1e6
        time.sleep(1)
    raise SystemExit(f"{bench.name}: slurmd did not start within a minute of the boot ({kind})")


def check(bench: Bench, kind: str) -> None:
    """A boot without its scratch would be a fast one."""
    state = bench.sh("systemctl is-active hpcai-scratch.service || true").strip()
    if (state == "active") != (kind != "without"):
        raise SystemExit(f"{bench.name}: hpcai-scratch is {state} in a boot that was to be one of kind: {kind}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", type=Path, default=ROOT / ".build/lab", help="a lab of `make lab BACKEND=vm`")
    parser.add_argument("--machine", default="c1", help="a compute node; what is on its disks is lost")
    parser.add_argument("--repeat", type=int, default=5, help="rounds, of which medians are taken")
    args = parser.parse_args()
    bench = Bench(args.lab, args.machine)
    bench.boot()
    print(bench.describe(), flush=True)
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(args.repeat):
        for place in range(len(KINDS)):
            kind = KINDS[(number + place) % len(KINDS)]
            seconds[kind].append(boot(bench, kind))
            print(f"  {kind}: {seconds[kind][-1]:.1f} s", flush=True)
    base = statistics.median(seconds["without"])
    for kind, taken in seconds.items():
        spread = f"{min(taken):.1f} to {max(taken):.1f}"
        print(f"{kind:<12}{statistics.median(taken):>8.1f} s{spread:>16}{statistics.median(taken) / base:>8.2f}")


if __name__ == "__main__":
    main()
