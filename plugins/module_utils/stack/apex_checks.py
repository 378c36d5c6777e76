# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether Apex can be built on a host for its PyTorch: no I/O, no AnsibleModule, private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import apex_facts as read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_probe import HEADERS

Json = t.Dict[str, t.Any]


class Wish(t.NamedTuple):
    """What is asked of a build; ``disk`` is in MiB, ``tools`` whether missing ones are provided."""

    python: str
    cuda: bool
    architectures: t.Sequence[str]
    allow_mismatch: bool
    tools: bool
    disk: int
    build_dir: str


def problems(facts: Json, wish: Wish) -> list[str]:
    """Return all that stands against a build, each with what can be done."""
    if not facts.get("torch"):
        why = facts.get("torch_error", "")
        return [f"{wish.python} cannot import torch ({why}); give the python of an environment with PyTorch"]
    if wish.cuda and not facts["cuda"]:
        return [f"PyTorch {facts['torch']} is built without CUDA: of Apex only cpp_ext can be built for it"]
    if "compiler" not in facts:  # a node that Slurm chooses has not been asked yet
        return []
    return [*(_cuda(facts, wish) if wish.cuda else []), *_compiler(facts, wish.cuda), *_room(facts, wish)]


def _cuda(facts: Json, wish: Wish) -> list[str]:
    home, release = facts["cuda_home"], read.release(facts)
    if not release:
        way = f"give cuda_home, a toolkit of CUDA {facts['cuda']}"
        return [f"the CUDA compiler {home}/bin/nvcc is missing or cannot be run on {facts['host']}; {way}"]
    found = [*_versions(facts, release, wish.allow_mismatch), *_targets(facts, wish.architectures, release)]
    has = set(facts["cuda_headers"]).union(*facts["includes"].values())
    absent = [name for name in HEADERS if name not in has]
    if absent:
        found.append(f"{', '.join(absent)} missing in {home}/include and beside PyTorch: install CUDA's libraries-dev")
    return found


def _versions(facts: Json, release: str, allowed: bool) -> list[str]:
    """Compare as Apex's setup.py does: MAJOR.MINOR of what nvcc calls its release, and torch.version.cuda."""
    built = facts["cuda"]
    if read.parts(release)[:2] == read.parts(built)[:2]:
        return []
    both = f"nvcc in {facts['cuda_home']} is CUDA {release}, PyTorch {facts['torch']} is built with CUDA {built}"
    way = f"give cuda_home, a toolkit of CUDA {built}, or an environment whose PyTorch is built with CUDA {release}"
    if read.parts(release)[0] != read.parts(built)[0]:
        return [f"{both}: another major version, which PyTorch itself refuses to compile with; {way}"]
    if allowed:
        return []
    rule = "Apex's setup.py compares both as MAJOR.MINOR and stops when they differ"
    return [f"{both}: {rule}; {way}, or set allow_cuda_mismatch, at your own risk: only the minor versions differ"]


def _targets(facts: Json, wanted: t.Sequence[str], release: str) -> list[str]:
    if not wanted:
        return ["no architectures are given: name the compute capabilities of the cluster's GPUs, such as 8.0"]
    found = []
    if facts["refused"]:
        found.append(f"PyTorch {facts['torch']} does not build for {', '.join(wanted)}: {facts['refused']}")
    codes = set(re.findall(r"\bsm_(\d+)", facts["codes"]))
    unknown = [one for one in wanted if codes and str(read.number(one)) not in codes]
    if unknown:
        known = ", ".join(f"{int(code) // 10}.{int(code) % 10}" for code in sorted(codes, key=int))
        found.append(f"CUDA {release} does not compile for {', '.join(unknown)} (it does for {known})")
    useless = [one for one in wanted if facts["archs"] and not _runs(read.number(one), facts["archs"])]
    if useless:
        found.append(f"PyTorch {facts['torch']} has no code for {', '.join(useless)}, only {facts['archs']}")
    return found


def _runs(wanted: int, archs: str) -> bool:
    """Return whether code for some architectures runs on a GPU: same major and not newer, or PTX that is not newer."""
    codes = [int(code) for code in re.findall(r"\bsm_(\d+)", archs)]
    portable = [int(code) for code in re.findall(r"\bcompute_(\d+)", archs)]
    near = any(code // 10 == wanted // 10 and code <= wanted for code in codes)
    return near or any(one <= wanted for one in portable)


def _compiler(facts: Json, cuda: bool) -> list[str]:
    kind, version = read.compiler(facts)
    if not version:
        path = facts["compiler_path"]
        return [
            f"the C++ compiler {path} cannot be run on {facts['host']}: install one (package g++), or give compiler"
        ]
    if kind != "g++":  # PyTorch knows no bounds for the clang of every distribution
        return []
    least, most = tuple(facts["least"]), ()
    where = "torch.utils.cpp_extension.MINIMUM_GCC_VERSION"
    release = read.release(facts)
    if cuda and release in facts["bounds"]:
        least, most = map(tuple, facts["bounds"][release])
        where = f"torch.utils.cpp_extension.CUDA_GCC_VERSIONS for CUDA {release}"
    below = f" and older than {_text(most)}" if most else ""
    bounds = f"PyTorch {facts['torch']} wants {_text(least)} or newer{below} ({where}); give compiler, another's path"
    if read.parts(version) < least:
        return [f"{kind} {version} ({facts['compiler']}) is too old: {bounds}"]
    if most and read.parts(version) >= most:
        return [f"{kind} {version} ({facts['compiler']}) is too new: {bounds}"]
    return []


def _room(facts: Json, wish: Wish) -> list[str]:
    found = []
    if not facts["headers"]:
        found.append(f"Python.h is missing in {facts['include']}: install Python's headers (package python3-dev)")
    if facts["free"] < wish.disk << 20:
        free = facts["free"] >> 20
        found.append(f"{wish.build_dir} on {facts['host']} has {free} MiB free, not {wish.disk} (disk); give build_dir")
    absent = read.missing_tools(facts)
    if absent and not wish.tools:
        found.append(f"{', '.join(absent)} missing in the environment: give tools, a directory with their wheels")
    return found


def _text(version: t.Sequence[int]) -> str:
    return ".".join(map(str, version))
