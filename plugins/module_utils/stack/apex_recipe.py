# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a wheel of Apex is built, and all that decides what it is: no I/O, no AnsibleModule, private."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import identity
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import apex_facts as read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_release import (
    ApexError,
    Extension,
    Release,
    without_toolkit,
    without_version_check,
)

Json = t.Dict[str, t.Any]

# Raised when the commands below change in a way that makes another wheel.
RECIPE = 1
# pip hands several values of one --config-settings key on since 23.1.
_SETTINGS = (23, 1)
# Whoever is killed takes the shell along with a signal, and that all of its session: pip would leave compilers behind.
_TOGETHER = """trap 'trap "" TERM; kill 0' TERM; "$@" & wait $!"""
_LONG = re.compile(r"[a-z][a-z0-9_-]*")


class Build(t.NamedTuple):
    """One build. All that is in ``scratch`` goes when it ends; ``path`` is where the host's own programs are."""

    params: t.Mapping[str, t.Any]
    facts: Json
    release: Release
    extensions: t.Sequence[Extension]
    scratch: str
    source: str
    pip: str
    path: str


def inputs(params: t.Mapping[str, t.Any], facts: Json) -> Json:
    """Return all that decides what a build makes; None stands for what has not been asked of a host yet."""
    known = "compiler" in facts
    cuda = any(name != "cpp_ext" for name in params["extensions"])
    return {
        "recipe": RECIPE,
        "source": identity(params["source"]),
        "submodules": {path: identity(source) for path, source in sorted(params["submodules"].items())},
        "extensions": sorted(set(params["extensions"])),
        "abi": facts["abi"],
        "torch": facts.get("torch") or "",
        "cuda": facts.get("cuda") or "",
        "cxx11abi": bool(facts.get("cxx11abi")),
        "architectures": read.architectures(params["architectures"]) if cuda else [],
        "mismatch": bool(params["allow_cuda_mismatch"]) if cuda else False,
        "nvcc": (read.nvcc(facts) if known else None) if cuda else "",
        "compiler": " ".join(read.compiler(facts)) if known else None,
        # Only its digest, as a manifest is for everyone to read.
        "environment": digest({key: str(value) for key, value in params["environment"].items()}),
    }


def same(wanted: t.Mapping[str, t.Any], built: t.Mapping[str, t.Any]) -> bool:
    """Return whether a wheel is the wanted one, as far as it is known: a login node may have no toolkit."""
    return set(wanted) == set(built) and all(value is None or value == built[key] for key, value in wanted.items())


def digest(wanted: t.Mapping[str, t.Any]) -> str:
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:12]


def prefix(through: str, options: t.Mapping[str, t.Any], name: str) -> list[str]:
    """Return what starts a program where it is to run; underscores in the names of srun's options stand for dashes."""
    if through == "local":
        return []
    wrong = [key for key in options if not _LONG.fullmatch(str(key))]
    if wrong:
        raise ApexError(f"{wrong[0]!r} is no long option of srun")
    given = {str(key).replace("_", "-"): value for key, value in options.items()}
    merged = {"job-name": name, "nodes": 1, "ntasks": 1, **given}
    words = [f"--{key}" if value is True else f"--{key}={value}" for key, value in merged.items() if value is not False]
    return ["srun", *words]


def missing_sources(extensions: t.Iterable[Extension], given: t.Mapping[str, t.Any]) -> str:
    """Say which extensions need what the source does not carry; empty when nothing is missing."""
    absent = [(one.name, path) for one in extensions for path in one.submodules if path not in given]
    named = ", ".join(f"{name} needs {path}" for name, path in absent)
    return named and (
        f"{named}: a git submodule, which an archive of Apex's source does not hold and a build without network cannot "
        "fetch; give its own pinned source in submodules, or leave the extension out"
    )


def variables(build: Build) -> dict[str, str]:
    """Return the environment of the build; the names of Apex's own variables come from the release."""
    params, facts, scratch = build.params, build.facts, build.scratch
    asked = {one.name for one in build.extensions}
    folders = [f"{scratch}/tools/bin", f"{facts['cuda_home']}/bin", params["python"].rpartition("/")[0], build.path]
    found = {
        "PATH": ":".join(folders),
        "PYTHONPATH": f"{scratch}/tools",
        "PYTHONNOUSERSITE": "1",
        "TMPDIR": f"{scratch}/temporary",
        "HOME": f"{scratch}/temporary",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        # Also where no extension is for GPUs: releases of 2022 ask nvcc when it is not set.
        "TORCH_CUDA_ARCH_LIST": ";".join(read.architectures(params["architectures"])) or "8.0",
        "MAX_JOBS": str(read.jobs(facts, params["memory_per_job"], params["jobs"])),
        # setup.py calls git submodule update, and git would answer for a repository that happens to lie above.
        "GIT_CEILING_DIRECTORIES": scratch,
        "CUDA_HOME": facts["cuda_home"],
        "CPATH": ":".join(read.includes(facts)),
        **compilers(params["compiler"] or ""),
        "APEX_ALL_CONTRIB_EXT": "0",
        **{variable: str(int(name in asked)) for name, variable in build.release.variables.items()},
    }
    return {**found, **{key: str(value) for key, value in params["environment"].items()}}


def compilers(given: str) -> dict[str, str]:
    """Return what names another C++ compiler; PyTorch makes nvcc use the C compiler that belongs to it."""
    folder, slash, name = given.rpartition("/")
    c = name.replace("clang++", "clang") if "clang" in name else name.replace("g++", "gcc")
    return {"CXX": given, "CC": f"{folder}{slash}{c}"} if given else {}


def command(build: Build, start: t.Sequence[str]) -> list[str]:
    """Return the command that builds: variables ask for extensions since 25.09, options did before."""
    argv = [build.params["python"], "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir", "-v"]
    if not build.release.variables:
        argv += _options(build.extensions, build.pip)
    together = [] if start else ["sh", "-c", _TOGETHER, "sh"]  # srun ends what it started by itself
    return [*together, *start, *argv, f"--wheel-dir={build.scratch}/wheels", build.source]


def _options(extensions: t.Sequence[Extension], pip: str) -> list[str]:
    version = tuple(int(part) for part in re.findall(r"\d+", pip)[:2])
    if version >= _SETTINGS:
        return ["--use-pep517", *(f"--config-settings=--build-option=--{one.name}" for one in extensions)]
    return ["--no-use-pep517", *(f"--global-option=--{one.name}" for one in extensions)]


def edit(text: str, release: Release, extensions: t.Sequence[Extension], allow_mismatch: bool) -> tuple[str, str]:
    """Return setup.py as it is built, and what was changed in it; mostly nothing is."""
    if not any(one.cuda for one in extensions):
        return (without_toolkit(text), "setup.py asks no nvcc") if release.asks_nvcc else (text, "")
    return (without_version_check(text), "setup.py compares no CUDA versions") if allow_mismatch else (text, "")
