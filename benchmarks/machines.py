# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine of the lab as benchmarks use it: commands in it, modules on it, its disks made slow."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".build/collections"))

from ansible_collections.hpcai.gpu_cluster.lab.machine.machine import Machine  # noqa: E402

LIMIT = 900  # seconds for one command, or one boot of an emulated machine on a busy host


class Bench:
    """One machine of a lab that runs."""

    def __init__(self, lab: Path, name: str) -> None:
        self.lab, self.name = lab.resolve(), name
        self.machine = Machine(self.lab, name)
        self.disks = [disk.name for disk in self.machine.spec.disks]

    def boot(self, after: str = "") -> str:
        self.machine.start()
        return self.machine.wait(LIMIT, after=after)

    def sh(self, command: str) -> str:
        """Run a command line as root; a failure ends the benchmark."""
        done = self.machine.system.run(command, timeout=LIMIT)
        if done.problem:
            raise SystemExit(f"{self.name}: {command}: {done.problem}\n{done.out[-2000:]}{done.err[-2000:]}")
        return done.out

    def module(self, name: str, options: dict[str, t.Any]) -> None:
        """Run a module of the collection on the machine, with the inventory of the lab."""
        words = [
            "-i",
            str(self.lab / "hosts.yml"),
            self.name,
            "-m",
            f"hpcai.gpu_cluster.{name}",
            "-a",
            json.dumps(options),
        ]
        argv = [str(ROOT / ".build/venv/bin/ansible"), *words]
        done = subprocess.run(
            argv, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, check=False, timeout=LIMIT
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}:\n{(done.stdout + done.stderr)[-4000:]}")

    def throttle(self, megabytes: float) -> None:
        """Let QEMU hold every disk to so many MB/s, reads and writes together; 0 lifts it."""
        rest = dict.fromkeys(("bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"), 0)
        for disk in self.disks:
            self.machine.ask("block_set_io_throttle", {"id": disk, "bps": int(megabytes * 1e6), **rest})

    def describe(self) -> str:
        """Say on what this is measured."""
        spec = self.machine.spec
        host = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.release()}"
        own = f"{spec.cpus} cores, {spec.memory} MiB, {len(self.disks)} NVMe disks"
        return f"virtual machine ({spec.accelerator}): {own}; its host: {host}"
