# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long configure.yml takes beside a minimal shell script, and how its second run grows with the inventory.

Everything is measured in this one run on this one machine; only the ratios mean something elsewhere. Each variant
starts from freshly booted nodes of a lab of its own; second runs are medians. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
import typing as t
from pathlib import Path

import tidy
import yaml

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".build/benchmark"
LAB = ["-e", "lab_name=bench", "-e", "lab_subnet=10.213.2.0/24", "-e", f"lab_state_dir={STATE}"]
INVENTORY = ["-i", str(ROOT / "lab/inventory"), "-i", str(STATE / "hosts.yml")]
PLAYBOOK = ROOT / ".build/venv/bin/ansible-playbook"
LIMIT = 1800  # seconds for one command


def timed(command: t.Sequence[object], environment: dict[str, str] | None = None) -> tuple[float, str]:
    """Run a command; return its wall time in seconds and what it printed."""
    argv = [str(word) for word in command]
    start = time.monotonic()
    done = tidy.run(argv, LIMIT, cwd=ROOT, env=environment)
    seconds, said = time.monotonic() - start, done.stdout
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}:\n{said[-4000:]}")
    return seconds, said


def playbook(name: str, *args: str, **settings: str) -> tuple[float, str]:
    environment = {**os.environ, "HPCAI_REPORT_DIR": str(STATE / "report"), "ANSIBLE_NOCOLOR": "1", **settings}
    return timed([PLAYBOOK, *LAB, *args, ROOT / name], environment)


def settled(*inventory: str, **settings: str) -> float:
    """Run configure.yml where nothing is to be done; return its wall time in seconds."""
    taken, said = playbook("playbooks/configure.yml", *inventory, **settings)
    changed = sum(int(count) for count in re.findall(r" changed=(\d+) ", said))
    if changed:
        raise SystemExit(f"A second run changed {changed} things:\n{said[-4000:]}")
    return taken


def fresh_lab(size: int) -> dict[str, str]:
    """Boot nodes that nothing was done to; return their addresses by name."""
    playbook("lab/down.yml")
    playbook("lab/up.yml", "-e", f"lab_compute_nodes={size - 1}")
    hosts = yaml.safe_load((STATE / "hosts.yml").read_text())["all"]["children"]["lab_nodes"]["hosts"]
    return {name: variables["ansible_host"] for name, variables in hosts.items()}


def script(repeat: int) -> tuple[float, float]:
    """First and second run of the floor, on three nodes."""
    known = fresh_lab(3)
    compute = [f"{name}={address}" for name, address in known.items() if name != "ctl"]
    command = [ROOT / "benchmarks/floor.sh", STATE / "ssh_key", known["ctl"], *compute]
    first = timed(command)[0]
    return first, statistics.median(timed(command)[0] for dummy in range(repeat))


def ours(size: int, repeat: int) -> tuple[float, float]:
    """First and second run of configure.yml."""
    fresh_lab(size)
    first = playbook("playbooks/configure.yml", *INVENTORY)[0]
    return first, statistics.median(settled(*INVENTORY) for dummy in range(repeat))


def show(*rows: t.Sequence[str]) -> None:
    for row in rows:
        print(f"{row[0]:<24}" + "".join(f"{cell:>12}" for cell in row[1:]), flush=True)


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, load {os.getloadavg()[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="3,30,100", help="inventory sizes, the controller included; 3 is the first")
    parser.add_argument("--repeat", type=int, default=3, help="second runs of which the median is taken")
    args = parser.parse_args()
    sizes = [int(size) for size in args.hosts.split(",")]
    if sizes[0] != 3:
        parser.error("--hosts begins with 3, the size that the script is made for")
    print(machine())
    # Of the containers of others and of the largest lab, as role lab_nodes counts.
    needed = 6 * (max(sizes) + len(re.findall(r"(?m)^[0-9a-f]{12,}$", timed(["podman", "ps", "--quiet"])[1]))) + 16
    # A lab that was left is found by its label, and its containers count until it is gone.
    with tidy.orderly(STATE, lambda: playbook("lab/down.yml")), tidy.at_least(
        needed, STATE.with_name("benchmark.inotify")
    ):
        floor = script(args.repeat)
        runs = {3: ours(3, args.repeat)}
        show(("three hosts", "script", "configure", "ratio"))
        for label, theirs, mine in zip(("first run", "second run"), floor, runs[3]):
            show((label, f"{theirs:.1f} s", f"{mine:.1f} s", f"{mine / theirs:.2f}"))
        print()
        show(("hosts", "first run", "second run", "ratio", "per host"))
        for size in sizes:
            first, second = runs[size] if size in runs else ours(size, args.repeat)
            growth = (second - runs[3][1]) / (size - 3) if size > 3 else 0.0
            show((str(size), f"{first:.1f} s", f"{second:.1f} s", f"{second / runs[3][1]:.2f}", f"{growth:.2f} s"))
    print(machine())


if __name__ == "__main__":
    main()
