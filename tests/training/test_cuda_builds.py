# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is compiled for GPUs where there is neither a GPU nor a CUDA toolkit: Apex and DeepSpeed, by NVIDIA's packages.

The environment takes 3 GB of downloads and 12 GB of disk, and the compilers some minutes, on a busy machine half an
hour; both stay for the next run. What needs a GPU is built, loaded and looked at, not run.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import typing as t
import zipfile
from pathlib import Path

import pytest
import torch_stack
from ansible_playbook import Ended
from plain_hosts import SHARED, PlainHosts
from trained import UV, Record, record, train

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _elf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex import device_code
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_recipe import architectures

ASKED = os.environ.get("HPCAI_TRAINING_CUDA", "") not in ("", "0")
PLACE = SHARED / "cuda"
ENVIRONMENT = PLACE / "pytorch/training"
ARCHITECTURES = ["8.0", "9.0", "10.0"]
# cuda_ext takes several times as long, see roles/apex/README.md; HPCAI_APEX_EXTENSIONS names it where there is time.
EXTENSIONS = os.environ.get("HPCAI_APEX_EXTENSIONS", "cpp_ext xentropy deprecated_fused_adam").split()
FOR_APEX = os.environ.get("HPCAI_APEX_ARCHITECTURES", " ".join(ARCHITECTURES)).split()
OPERATORS = os.environ.get("HPCAI_DEEPSPEED_OPS", "fused_adam").split()


def apex_inputs() -> Record:
    source = torch_stack.apex()
    place = os.environ.get("HPCAI_APEX_GIT", "")
    if not place and not torch_stack.fetched("apex", source["commit"]).exists():
        pytest.skip(f"no source of Apex: set HPCAI_APEX_GIT to a clone that has {source['commit']}")
    return {
        "cluster_apex": True,
        "apex_source": {"git": place or source["git"], "commit": source["commit"]},
        "apex_extensions": EXTENSIONS,
        "apex_architectures": FOR_APEX,
        "apex_jobs": int(os.environ.get("HPCAI_APEX_JOBS", "0")),
        # Beside other work cuda_ext takes hours of an architecture's half hour.
        "apex_timeout": 5 * 3600,
        "apex_install": False,
        "apex_staging_dir": str(PLACE),
        "apex_build_dir": str(PLACE),
    }


@pytest.fixture(scope="module")
def built(hosts: PlainHosts) -> Ended:
    if not ASKED:
        pytest.skip("make training-cuda compiles for GPUs: 3 GB of downloads, and compilers for half an hour")
    inputs = {
        "cluster_shared_dir": str(PLACE),
        "pytorch_build": "cu130",
        "pytorch_cuda_compiler": True,
        "training_extras_list": ["deepspeed", "torchvision", "torchaudio"],
        "training_extras_architectures": ARCHITECTURES,
        "training_extras_deepspeed_ops": OPERATORS,
        "training_extras_uv": UV,
        "training_extras_staging_dir": str(PLACE),
        **apex_inputs(),
    }
    PLACE.mkdir(mode=0o755, parents=True, exist_ok=True)
    done = hosts.stack(**inputs)
    assert done.returncode == 0, done.stdout + done.stderr
    again = hosts.stack(**inputs)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "changed=0 " in again.stdout, "what was built is built again: " + again.stdout
    return done


def imported(module: str) -> bool:
    program = f"import torch, importlib; importlib.import_module({module!r})"
    done = subprocess.run([ENVIRONMENT / "bin/python", "-I", "-c", program], capture_output=True, check=False)
    return done.returncode == 0


def codes(architectures: t.Sequence[str]) -> list[str]:
    return [f"sm_{one.replace('.', '')}" for one in architectures]


@pytest.mark.usefixtures("built")
def test_apex_is_compiled_for_gpus_and_what_it_holds_is_read(records: list[Record], tmp_path: Path) -> None:
    manifests = {path: json.loads(path.read_text()) for path in (PLACE / "wheels").glob("apex-*/manifest.json")}
    # Wheels of other extensions and for other GPUs are kept beside it.
    wanted = {"extensions": sorted(EXTENSIONS), "architectures": architectures(FOR_APEX)}
    (path,) = (path for path, one in manifests.items() if wanted.items() <= one["inputs"].items())
    manifest = manifests[path]
    inputs, proof = manifest["inputs"], manifest["proof"]
    assert inputs["nvcc"].startswith("13.0.")
    # Only C++ is in apex_C. What was built before modules were looked at does not say it.
    with zipfile.ZipFile(path.with_name(manifest["wheel"])) as wheel:
        wheel.extractall(tmp_path)
    code = device_code(tmp_path, FOR_APEX)
    assert code == {name: codes(FOR_APEX) for name in proof["modules"] if name != "apex_C"}
    assert len(code) >= len(EXTENSIONS) - 1
    assert proof.get("code", code) == code
    records.append(
        {
            "package": "apex",
            "version": f"{manifest['wheel'].split('-')[1]}, commit {torch_stack.apex()['commit'][:10]}",
            "torch": inputs["torch"],
            "python": f"{inputs['abi'].split('-')[1][0]}.{inputs['abi'].split('-')[1][1:]}",
            "resolved": True,
            "built": f"from source, {', '.join(EXTENSIONS)} by nvcc {inputs['nvcc']} for {', '.join(codes(FOR_APEX))}",
            "loaded": sorted(["apex", *proof["modules"]]),
            "trained": [],
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        }
    )


@pytest.mark.usefixtures("built")
def test_deepspeeds_operators_are_compiled_for_gpus_and_load(records: list[Record]) -> None:
    compiled = []
    for operator in OPERATORS:
        (path,) = ENVIRONMENT.resolve().glob(f"lib/python3*/site-packages/deepspeed/ops/**/{operator}_op*.so")
        assert _elf.architectures(Path(path)) == codes(ARCHITECTURES)
        below = path.relative_to(next(parent for parent in path.parents if parent.name == "site-packages"))
        compiled.append(str(below).partition(".")[0].replace("/", "."))
        assert imported(compiled[-1])
    built = f"from source, {', '.join(OPERATORS)} for {', '.join(codes(ARCHITECTURES))}"
    found = record("deepspeed", ENVIRONMENT, torch_stack.modules("deepspeed"), built)
    records.append({**found, "loaded": sorted([*found["loaded"], *compiled])})


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("package", ["torchvision", "torchaudio"])
def test_a_companion_of_pytorch_loads_and_torchvisions_resnet_trains(
    hosts: PlainHosts, records: list[Record], package: str
) -> None:
    found = record(package, ENVIRONMENT, [package], "wheel of the index")
    assert found["loaded"] == [package]
    assert found["version"] == torch_stack.version(package)
    if package == "torchvision":
        words: t.Sequence[str] = ["ddp", "--model", "resnet18", "--batch-size", "16"]
        found["trained"] = [train(hosts, ENVIRONMENT, "torchvision-resnet18", words)]
    records.append(found)
