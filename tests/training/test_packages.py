# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of role training_extras: built from the control host's wheels, loaded, and trained with on two hosts.

What each of them came to is written to ``.build/training/records.json``, of which ``make training-table`` draws
docs/training_stack.md.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import torch_stack
from ansible_playbook import Ended
from patience import patience
from plain_hosts import NAMES, SHARED, PlainHosts, Unable

ROLES = torch_stack.ROLES
Record = t.Dict[str, t.Any]
Json = t.Dict[str, t.Any]
UV = str(Path(sys.executable).with_name("uv"))
ENVIRONMENT = SHARED / "pytorch/training"
STEPS = 40
# How far the loss has to fall in so many steps; what each came to by itself is below half of that.
RATIO = 0.9
TRAININGS = {
    "deepspeed": {f"deepspeed-zero-{stage}": ["deepspeed", "--zero", str(stage)] for stage in (1, 2, 3)},
    "fairscale": {"fairscale": ["fairscale"]},
    "megatron-core": {"megatron-core": ["megatron"]},
}
_VERSIONS = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[PlainHosts]:
    try:
        made = PlainHosts(tmp_path_factory.mktemp("hosts"))
    except Unable as exc:
        pytest.skip(str(exc))
    yield made
    made.close()


@pytest.fixture(scope="module")
def built(hosts: PlainHosts) -> Ended:
    """The environment with all packages; its second build changes nothing."""
    inputs = {
        "training_extras_list": list(TRAININGS),
        "training_extras_uv": UV,
        "training_extras_staging_dir": str(SHARED),
    }
    done = hosts.stack(**inputs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def records() -> t.Iterator[list[Record]]:
    """What the tests found of each package."""
    found: list[Record] = []
    yield found
    if found:
        (SHARED / "records.json").write_text(json.dumps(found, indent=1) + "\n")


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


def compiled(link: Path) -> list[str]:
    """Return the extensions that PyTorch has compiled in jobs of an environment."""
    argv = [link / "bin/python", ROLES / "training_job/files/torch_extensions.py"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    return [path.name for path in Path(said).iterdir()]


def train(hosts: PlainHosts, link: Path, name: str, words: t.Sequence[str]) -> Json:
    """Train on both hosts; return what the record of the run says of it."""
    scripts = hosts.place / "scripts"
    scripts.mkdir(exist_ok=True)
    for path in ("training_extras/files/train_sharded.py", "training_job/files/stripes.py"):
        shutil.copy(ROLES / path, scripts)
    folder = hosts.place / "shared" / name
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
    )
    ranks = "".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("run-1/ranks/*.txt"))
    assert done.returncode == 0, done.stdout + done.stderr + ranks
    result = json.loads((folder / "run-1/result.json").read_text())
    assert [rank["host"] for rank in result["ranks"]] == list(NAMES)
    judged = hosts.trainings()[name]
    assert judged["verdict"] == "pass"
    # Nothing is compiled in a job: that was done once, when the environment was built.
    assert compiled(link) == []
    ratio = next(metric["value"] for metric in judged["metrics"] if metric["name"] == "loss_ratio")
    return {"name": name, "nodes": len(NAMES), "steps": STEPS, "loss_ratio": round(ratio, 3)}


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("package", TRAININGS)
def test_a_package_trains_on_two_hosts(hosts: PlainHosts, records: list[Record], package: str) -> None:
    found = record(package, ENVIRONMENT, torch_stack.modules(package), torch_stack.origin(package))
    assert found["version"] == torch_stack.version(package)
    assert found["loaded"] == torch_stack.modules(package)
    found["trained"] = [train(hosts, ENVIRONMENT, name, words) for name, words in TRAININGS[package].items()]
    records.append(found)


def test_what_apex_has_without_cuda_trains_on_two_hosts(hosts: PlainHosts, records: list[Record]) -> None:
    commit = torch_stack.apex()["commit"]
    place = os.environ.get("HPCAI_APEX_GIT", "")
    if not place and not torch_stack.fetched("apex", commit).exists():
        pytest.skip(f"no source of Apex: set HPCAI_APEX_GIT to a clone that has {commit} once, and later runs find it")
    inputs = {"apex_source": {"git": place or "/nonexistent", "commit": commit}, "apex_extensions": ["cpp_ext"]}
    done = hosts.stack(cluster_apex=True, apex_architectures=[], apex_staging_dir=str(SHARED), **inputs)
    assert done.returncode == 0, done.stdout + done.stderr
    link = SHARED / "pytorch/apex"
    found = record("apex", link, ["apex", "apex_C"], "from source, cpp_ext", commit)
    assert found["loaded"]
    found["trained"] = [train(hosts, link, "apex", ["apex"])]
    records.append(found)
