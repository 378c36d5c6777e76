#!/usr/bin/env python3
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long configure.yml takes beside a minimal shell script, and how its second run grows with the inventory.

Everything is measured in this one run on this one machine; only the ratios mean something elsewhere.
Each variant starts from freshly booted nodes. Takes about ten minutes with the default sizes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".build/benchmark"
LAB = ["-e", "lab_name=bench", "-e", "lab_subnet=10.213.2.0/24", "-e", f"lab_state_dir={STATE}"]
INVENTORY = ["-i", str(ROOT / "inventories/lab"), "-i", str(STATE / "hosts.yml")]


def playbook(name: str, *args: str) -> float:
    """Run a playbook of the collection and return its wall time in seconds."""
    environment = {**os.environ, "HPCAI_REPORT_DIR": str(STATE / "report")}
    command = [ROOT / ".build/venv/bin/ansible-playbook", *LAB, *args, ROOT / "playbooks" / name]
    return timed([str(word) for word in command], environment)


def timed(command: list[str], environment: dict[str, str] | None = None) -> float:
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return time.monotonic() - start


def hosts(tree: dict[str, t.Any]) -> dict[str, str]:
    """Names and addresses in the lab's inventory."""
    found = {}
    for group in filter(None, tree.values()):
        found.update({k: v["ansible_host"] for k, v in (group.get("hosts") or {}).items() if v and "ansible_host" in v})
        found.update(hosts(group.get("children") or {}))
    return found


def fresh_lab(nodes: int) -> dict[str, str]:
    playbook("lab_down.yml")
    playbook("lab_up.yml", "-e", f"lab_compute_nodes={nodes}")
    return hosts(yaml.safe_load((STATE / "hosts.yml").read_text()))


def floor(known: dict[str, str]) -> float:
    compute = [f"{name}={address}" for name, address in known.items() if name != "ctl"]
    return timed([str(ROOT / "benchmarks/floor.sh"), str(STATE / "ssh_key"), known["ctl"], *compute])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="3,30,100", help="inventory sizes for the second run, smallest first")
    sizes = [int(size) for size in parser.parse_args().hosts.split(",")]
    try:
        known = fresh_lab(2)
        script = [floor(known), floor(known)]
        second = {}
        for size in sizes:
            fresh_lab(size - 1)
            first = playbook("configure.yml", *INVENTORY)
            second[size] = playbook("configure.yml", *INVENTORY)
            if size == 3:
                print(f"{'three nodes':<28}{'script':>10}{'ours':>10}{'ratio':>8}")
                for label, theirs, ours in zip(("first run", "second run"), script, (first, second[size])):
                    print(f"{label:<28}{theirs:>8.1f} s{ours:>8.1f} s{ours / theirs:>8.2f}", flush=True)
        print(f"\n{'second run, hosts':<28}{'seconds':>10}{'ratio':>18}")
        for size in sizes:
            print(f"{size:<28}{second[size]:>8.1f} s{second[size] / second[sizes[0]]:>18.2f}")
    finally:
        playbook("lab_down.yml")


if __name__ == "__main__":
    main()
