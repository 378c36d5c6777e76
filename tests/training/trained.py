# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trainings on two hosts, and what is recorded of the packages that they train with."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import torch_stack
from patience import patience
from plain_hosts import NAMES, PlainHosts

ROLES = torch_stack.ROLES
Record = t.Dict[str, t.Any]
Json = t.Dict[str, t.Any]
UV = str(Path(sys.executable).with_name("uv"))
STEPS = 40
# How far the loss has to fall in so many steps; what each came to by itself is below half of that.
RATIO = 0.9
PROGRAMS = (
    "training_extras/files/train_sharded.py",
    "training_extras/files/example_models.py",
    "training_job/files/stripes.py",
)
_VERSIONS = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"


def record(name: str, link: Path, modules: t.Sequence[str], built: str, commit: str = "") -> Record:
    """Return what is known of a package once it is in an environment."""
    said = subprocess.run([link / "bin/python", "-I", "-c", _VERSIONS], capture_output=True, text=True, check=True)
    versions = json.loads(said.stdout)
    environment = link.resolve()
    check = [UV, "pip", "check", "--quiet", "--offline", "--python", link / "bin/python"]
    fits = subprocess.run(check, capture_output=True, text=True, check=False)
    proof = json.loads((environment.parent / f".{environment.name}.json").read_text())["proofs"]["local"]
    return {
        "package": name,
        "version": versions[name] + (f", commit {commit[:10]}" if commit else ""),
        "torch": versions["torch"],
        "python": proof["python"],
        "resolved": fits.returncode == 0,
        "built": built,
        "loaded": sorted(set(modules) & set(proof["imports"])),
        "trained": [],
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }


def train(hosts: PlainHosts, link: Path, name: str, words: t.Sequence[str], **inputs: t.Any) -> Json:
    """Train on both hosts; return what the record of the run says of it."""
    scripts = hosts.directory / "scripts"
    scripts.mkdir(exist_ok=True)
    for path in PROGRAMS:
        shutil.copy(ROLES / path, scripts)
    folder = hosts.directory / "shared" / name
    done = hosts.play(
        "launch_ddp",
        ddp_launch_name=name,
        ddp_launch_dir=str(folder),
        ddp_launch_python=str(link / "bin/python"),
        ddp_launch_script=str(scripts / "train_sharded.py"),
        ddp_launch_arguments=[*words, "--steps", str(STEPS)],
        ddp_launch_result="result.json",
        ddp_launch_max_loss_ratio=RATIO,
        ddp_launch_timeout=round(patience(300)),
        **inputs,
    )
    ranks = "".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("run-1/ranks/*.txt"))
    assert done.returncode == 0, done.stdout + done.stderr + ranks
    result = json.loads((folder / "run-1/result.json").read_text())
    assert [rank["host"] for rank in result["ranks"]] == list(NAMES)
    judged = hosts.trainings()[name]
    assert judged["verdict"] == "pass"
    ratio = next(metric["value"] for metric in judged["metrics"] if metric["name"] == "loss_ratio")
    return {"name": name, "nodes": len(NAMES), "steps": STEPS, "loss_ratio": round(ratio, 3)}
