# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove that an environment works where it is run: no AnsibleModule, private."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._build import trouble
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_driver import (
    Driver,
    EnvironmentRefused,
    driver_problems,
)

# What a build of PyTorch was compiled for is only told by this private name where there is no GPU.
SCRIPT = """
import importlib, json, os, platform, socket, sys
import torch
from torch.utils.data import DataLoader
facts = {"host": socket.gethostname().split(".")[0], "python": platform.python_version(), "torch": torch.__version__,
  "cuda": torch.version.cuda, "site": os.path.dirname(os.path.dirname(torch.__file__)),
  "cxx11abi": bool(torch.compiled_with_cxx11_abi()), "imports": [], "gpus": 0, "gpu_sum": None, "gpu_error": None}
facts["archs"] = (getattr(torch._C, "_cuda_getArchFlags", str)() or "").split() if torch.version.cuda else []
facts["sum"] = float(torch.ones(2, 2).matmul(torch.ones(2, 2)).sum())
for name in sys.argv[1:]:
    importlib.import_module(name)
    facts["imports"].append(name)
if torch.version.cuda:
    try:
        facts["gpus"] = torch.cuda.device_count()
        facts["gpu_sum"] = float(torch.ones(64, 64, device="cuda").matmul(torch.ones(64, 64, device="cuda")).sum())
    except (RuntimeError, AssertionError) as exc:
        facts["gpu_error"] = str(exc).strip().splitlines()[0]
print("\\n" + json.dumps(facts))
"""


def argv(target: str, imports: t.Sequence[str]) -> list[str]:
    return [f"{target}/bin/python", "-I", "-c", SCRIPT, *imports]


def read(outcome: Outcome, where: str) -> dict[str, t.Any]:
    """Return what the script found; raises EnvironmentRefused with what it said instead."""
    for line in reversed(outcome.out.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if outcome.rc == 0 and isinstance(found, dict) and "torch" in found:
            return found
    raise EnvironmentRefused(f"the environment does not work {where}: {_last(outcome)}")


def _last(outcome: Outcome) -> str:
    """Return the end of a traceback, or what a launcher complained about."""
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    return "\n".join(lines[-4:]) if lines and outcome.rc is not None else trouble(outcome)


def problems(facts: t.Mapping[str, t.Any], want: t.Mapping[str, t.Any], gpu: bool) -> list[str]:
    """Say what a proof lacks; ``gpu`` is whether it had to compute on one."""
    found = []
    if facts["sum"] != 8:
        found.append(f"ones(2, 2) times itself sums up to {facts['sum']}, not 8")
    if want.get("torch") and facts["torch"].split("+")[0] != want["torch"].split("+")[0]:
        found.append(f"it holds torch {facts['torch']}, the lock file says {want['torch']}")
    cuda = facts["cuda"] or ""
    if want.get("cuda") is not None and cuda != want["cuda"]:
        found.append(f"torch {facts['torch']} is built for {_kind(cuda)}, asked for was {_kind(want['cuda'])}")
    compiled = [f"{one[3:-1]}.{one[-1]}" for one in facts["archs"] if one.startswith("sm_") and one[3:].isdigit()]
    for driver in want.get("drivers") or []:
        found += [f"torch {facts['torch']}: {text}" for text in driver_problems(cuda, compiled, Driver(**driver))]
    if gpu and facts["gpu_sum"] != 64.0**3:
        said = facts["gpu_error"] or f"a product sums up to {facts['gpu_sum']}"
        found.append(f"torch {facts['torch']} for CUDA {cuda} cannot compute on the GPU of {facts['host']}: {said}")
    return found


def _kind(cuda: str) -> str:
    return f"CUDA {cuda}" if cuda else "CPUs"


def accept(facts: dict[str, t.Any], want: t.Mapping[str, t.Any], gpu: bool, where: str) -> dict[str, t.Any]:
    found = problems(facts, want, gpu)
    if found:
        raise EnvironmentRefused(f"the environment is not what was asked for, {where}: {'; '.join(found)}")
    return facts


def enough(recorded: t.Mapping[str, t.Any], wanted: str, imports: t.Collection[str]) -> bool:
    """Return whether a recorded proof covers what is asked: a proof through Slurm is one on a host as well."""
    if wanted == "none":
        return True
    good = ("slurm",) if wanted == "slurm" else ("slurm", "local")
    return any(one in recorded and set(imports) <= set(recorded[one].get("imports", [])) for one in good)
