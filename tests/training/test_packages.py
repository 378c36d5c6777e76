# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of role training_extras: built from the control host's wheels, loaded, and trained with on two hosts.

What each of them came to is written to ``.build/training/records.json``, of which ``make training-table`` draws
docs/training_stack.md.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch_stack
from ansible_playbook import Ended
from plain_hosts import SHARED, PlainHosts
from trained import ROLES, UV, Record, record, train

ENVIRONMENT = SHARED / "pytorch/training"
TRAININGS = {
    "deepspeed": {
        **{f"deepspeed-zero-{stage}": ["deepspeed", "--zero", str(stage)] for stage in (1, 2, 3)},
        "deepspeed-resnet": ["deepspeed", "--model", "resnet"],
        "deepspeed-gpt": ["deepspeed", "--model", "gpt"],
    },
    "fairscale": {"fairscale": ["fairscale"]},
    "megatron-core": {"megatron-core": ["megatron"]},
}


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


def compiled(link: Path) -> list[str]:
    """Return the extensions that PyTorch has compiled in jobs of an environment."""
    argv = [link / "bin/python", ROLES / "training_job/files/torch_extensions.py"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    return [path.name for path in Path(said).iterdir()]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("package", TRAININGS)
def test_a_package_trains_on_two_hosts(hosts: PlainHosts, records: list[Record], package: str) -> None:
    found = record(package, ENVIRONMENT, torch_stack.modules(package), torch_stack.origin(package))
    assert found["version"] == torch_stack.version(package)
    assert found["loaded"] == torch_stack.modules(package)
    found["trained"] = [train(hosts, ENVIRONMENT, name, words) for name, words in TRAININGS[package].items()]
    # Nothing is compiled in a job: that was done once, when the environment was built.
    assert compiled(ENVIRONMENT) == []
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
