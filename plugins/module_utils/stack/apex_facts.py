# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What apex_probe read on a host, in terms of a build of Apex: no I/O, no AnsibleModule, private."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_probe import MARK
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_release import ApexError

Json = t.Dict[str, t.Any]

_TOOLS = ("pip", "setuptools", "wheel", "packaging")
_ARCHITECTURE = re.compile(r"(\d+\.\d)([af]?)(\+PTX)?")


def parse(output: str, python: str, problem: str) -> Json:
    """Return what the probe printed; everything else that Python and srun print is passed over."""
    lines = [line[len(MARK) :] for line in output.splitlines() if line.startswith(MARK)]
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ApexError(f"nothing was changed. {python} cannot tell what it offers: {problem or 'no answer'}")
    return found


def architectures(asked: t.Iterable[t.Any]) -> list[str]:
    """Return compute capabilities as PyTorch writes them, each once and in order."""
    found = [str(item).strip() for item in asked]
    wrong = [one for one in found if not _ARCHITECTURE.fullmatch(one)]
    if wrong:
        raise ApexError(f"architecture {wrong[0]!r} is no compute capability such as 8.0, 9.0a or 8.0+PTX")
    return sorted(set(found), key=lambda one: (number(one), one))


def number(architecture: str) -> int:
    """Return 90 for 9.0a."""
    match = re.match(r"(\d+)\.(\d)", architecture)
    return int("".join(match.groups())) if match else 0


def parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0]))


def nvcc(facts: Json) -> str:
    """Return the full version of the CUDA compiler, such as 13.0.88; empty when there is none."""
    match = re.search(r"release [\d.]+, V([\d.]+)", facts.get("nvcc") or "")
    return match.group(1) if match else ""


def release(facts: Json) -> str:
    """Return what nvcc calls its release, such as 13.0."""
    return ".".join(nvcc(facts).split(".")[:2])


def compiler(facts: Json) -> tuple[str, str]:
    """Return what the C++ compiler is and its version."""
    version = (facts.get("compiler_version") or "").strip()
    return "clang" if "clang version" in (facts.get("compiler_name") or "") else "g++", version


def missing_tools(facts: Json) -> list[str]:
    """Return what a build needs and the environment lacks; setuptools packs wheels itself since 70.1."""
    has: t.Mapping[str, str | None] = facts["tools"]
    packs = parts(has["setuptools"] or "0") >= (70, 1)
    absent = [name for name in _TOOLS if has[name] is None and not (name == "wheel" and packs)]
    return absent + ([] if facts.get("ninja") else ["ninja"])


def includes(facts: Json) -> list[str]:
    """Return the include directories of PyTorch's wheels that a build needs beside the toolkit's own."""
    has = set(facts["cuda_headers"])
    return [folder for folder, names in facts["includes"].items() if not names or set(names) - has]


def jobs(facts: Json, memory_per_job: int, most: int | None) -> int:
    """Return how many compilers may run at a time; the kernel would end one that finds no memory."""
    fit = int(facts["memory"] // (memory_per_job << 20))
    return max(1, min(facts["cpus"], fit, most or facts["cpus"]))
