# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a PyTorch environment takes with uv and with pip, from the same files, side by side in one run."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "roles/pytorch/files"
COLLECTIONS = ROOT / ".build/collections"


def module(module_name: str, /, **params: t.Any) -> t.Any:
    argv = [sys.executable, "-m", f"ansible_collections.hpcai.gpu_cluster.plugins.modules.{module_name}"]
    sent = json.dumps({"ANSIBLE_MODULE_ARGS": params})
    environment = {**os.environ, "PYTHONPATH": str(COLLECTIONS)}
    done = subprocess.run(argv, input=sent, env=environment, text=True, capture_output=True, check=False)
    found = json.loads(done.stdout or "{}")
    if done.returncode:
        sys.exit(f"{module_name}: {found.get('msg', done.stderr)}")
    return found


class Bench:
    def __init__(self, folder: Path, build: str, python: str, wheels: str | None) -> None:
        self.folder, self.python, self.build = folder, python, build
        locks = {name: (FILES / f"{name}.txt").read_text() for name in (build, "uv")}
        self.given = {
            "builds": {build: {"lock": locks[build], "cuda": None}},
            "installer_lock": locks["uv"],
            "python": python,
        }
        interpreter = module("python_environment", path=str(folder), _ansible_check_mode=True, **self.given)
        asked = {"interpreter": interpreter["environment"]["python"], "python": sys.executable}
        houses = {
            name: module("python_wheelhouse", path=wheels or str(folder / "wheels"), name=name, lock=text, **asked)[
                "path"
            ]
            for name, text in locks.items()
        }
        self.folders = list(houses.values())

    def once(self, installer: str) -> tuple[float, float]:
        """Return the seconds of a first and of a second run."""
        with tempfile.TemporaryDirectory(prefix=f"{installer}-", dir=self.folder) as path:
            spent = []
            for dummy in range(2):
                begin = time.monotonic()
                module("python_environment", path=path, installer=installer, folders=self.folders, **self.given)
                spent.append(time.monotonic() - begin)
        return spent[0], spent[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="cpu", help="lock file in roles/pytorch/files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--dir", help="a directory on the file system to measure")
    parser.add_argument("--wheels", help="a directory to keep downloads in")
    asked = parser.parse_args()
    seconds: dict[str, list[tuple[float, float]]] = {"pip": [], "uv": []}
    with tempfile.TemporaryDirectory(prefix="environments-", dir=asked.dir) as folder:
        bench = Bench(Path(folder), asked.build, asked.python, asked.wheels)
        for dummy in range(asked.rounds):
            for installer, found in seconds.items():
                found.append(bench.once(installer))
    first = {name: statistics.median(one for one, dummy in found) for name, found in seconds.items()}
    second = {name: statistics.median(two for dummy, two in found) for name, found in seconds.items()}
    print(f"{asked.build}, median of {asked.rounds} rounds, build and proof")
    for name in seconds:
        print(f"{name:4} first run {first[name]:6.1f} s   second run {second[name]:5.2f} s")
    print(f"pip takes {first['pip'] / first['uv']:.2f} times as long as uv")


if __name__ == "__main__":
    main()
