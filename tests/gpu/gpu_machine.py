# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This machine with its GPUs: modules and programs run on it as they would on a node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLLECTIONS = ROOT / ".build/collections"
Json = t.Dict[str, t.Any]

QUERY = "index,name,compute_cap,pci.bus_id,memory.total"
# What gpu_clocks would change. It is asked before and after every test.
SETTINGS = "persistence_mode,clocks.applications.graphics,clocks.applications.memory,clocks.max.graphics,power.limit"
# nccl-tests writes its whole environment into its JSON, and that file may become a fixture.
PASSED = ["PATH", "HOME", "LD_LIBRARY_PATH", *os.environ.get("GPU_TEST_ENVIRONMENT", "").split()]


class Said(t.NamedTuple):
    """What a program did."""

    argv: t.Sequence[str]
    rc: int
    out: str
    err: str


class Machine:
    """``keep`` is the directory that gets what programs print, for later use as fixtures."""

    def __init__(self, gpus: t.Sequence[t.Mapping[str, str]], scratch: Path, keep: Path | None) -> None:
        self.gpus, self.scratch, self.keep = gpus, scratch, keep

    def module(self, name: str, *, check_mode: bool = False, **options: t.Any) -> Json:
        """Run a module as Ansible does: arguments as JSON on standard input, result as JSON on standard output."""
        assert check_mode or name != "gpu_clocks", "these tests never change clocks, power or persistence"
        arguments = {"_ansible_check_mode": check_mode, "_ansible_remote_tmp": str(self.scratch), **options}
        done = subprocess.run(
            [sys.executable, "-m", f"ansible_collections.hpcai.gpu_cluster.plugins.modules.{name}"],
            input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
            env={**os.environ, "PYTHONPATH": str(COLLECTIONS)},
            text=True,
            capture_output=True,
            timeout=1800,
            check=False,
        )
        assert done.stdout.lstrip().startswith("{"), done.stdout + done.stderr
        result: Json = json.loads(done.stdout)
        result.pop("invocation", None)
        if self.keep:
            self._write("modules", f"{name}.json", json.dumps(result, indent=2, sort_keys=True) + "\n")
        return result

    def run(self, kept: str, *argv: str, timeout: float = 600) -> Said:
        """Run a program with a plain environment; ``kept`` is directory and name of the output, should it be kept."""
        variables = {"LC_ALL": "C", **{key: os.environ[key] for key in PASSED if key in os.environ}}
        done = subprocess.run(
            argv,
            env=variables,
            cwd=self.scratch,
            text=True,
            errors="replace",
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        if self.keep:
            tool, name = kept.split("/")
            for end, text in ((".txt", done.stdout), (".stderr.txt", done.stderr)):
                if text:
                    self._write(tool, f"captured-{name}{end}", text)
            with (self.keep / tool / "captured.md").open("a") as index:
                index.write(
                    f"| `captured-{name}` | `{' '.join([Path(argv[0]).name, *argv[1:]])}` | {done.returncode} |\n"
                )
        return Said(argv, done.returncode, done.stdout, done.stderr)

    def file(self, tool: str, name: str) -> str:
        """Return a file that a program wrote, and keep it."""
        text = (self.scratch / name).read_text()
        if self.keep:
            self._write(tool, f"captured-{name}", text)
        return text

    def settings(self) -> str:
        argv = ["nvidia-smi", f"--query-gpu={SETTINGS}", "--format=csv,noheader"]
        return subprocess.run(argv, text=True, capture_output=True, timeout=60, check=False).stdout

    def _write(self, directory: str, name: str, text: str) -> None:
        assert self.keep
        (self.keep / directory).mkdir(parents=True, exist_ok=True)
        (self.keep / directory / name).write_text(text)


def look() -> tuple[list[dict[str, str]], str]:
    """Return the GPUs of this machine, or none and the reason."""
    program = shutil.which("nvidia-smi")
    if not program:
        return [], "nvidia-smi is not on PATH"
    argv = [program, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, text=True, capture_output=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return [], "nvidia-smi did not end within 60 s"
    if done.returncode != 0 or not done.stdout.strip():
        return [], f"nvidia-smi: {(done.stdout + done.stderr).strip() or 'no output'}"
    names = QUERY.split(",")
    return [dict(zip(names, line.split(", "))) for line in done.stdout.strip().splitlines()], ""
