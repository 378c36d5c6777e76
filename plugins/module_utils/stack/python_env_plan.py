# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an environment is made of, what its directory is called, and which old ones may go: no I/O, private."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import python_env_lock as locks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_driver import (
    Build,
    Driver,
    EnvironmentRefused,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_python import Interpreter

# Raised when the commands change in a way that makes other environments.
RECIPE = 1
NAME = re.compile(r"[A-Za-z0-9][\w.+-]*-[0-9a-f]{12}")
# Seconds by which the clock of Slurm's controller may be ahead of this host's.
CLOCKS = 300.0


class Wheel(t.NamedTuple):
    path: str
    sha256: str


class Environment(t.NamedTuple):
    """One that is there. Times are seconds since the epoch; ``retired`` is None for one that no link has left yet."""

    name: str
    made: float
    retired: float | None = None


class Use(t.NamedTuple):
    """What is known of programs that use environments: processes of this host, and Slurm's jobs.

    ``oldest`` is when the oldest job started that runs, None without one; ``unknown`` says why nobody can tell.
    """

    processes: t.Mapping[str, t.Sequence[int]] = {}
    oldest: float | None = None
    unknown: str = ""


def wheels(given: t.Iterable[t.Mapping[str, t.Any]]) -> list[Wheel]:
    found = []
    for one in given:
        path, digest = str(one.get("path") or ""), str(one.get("sha256") or "")
        if not path.endswith(".whl") or not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise EnvironmentRefused(f"a wheel needs path and sha256 (64 hexadecimal digits); given: {dict(one)}")
        found.append(Wheel(path, digest))
    return sorted(found, key=lambda wheel: wheel.path.rpartition("/")[2])


def checked(build: Build, extra: t.Sequence[t.Mapping[str, str]], installer: str) -> list[tuple[str, str]]:
    """Return lock files with their names in the order of installation; refuses one that the installer cannot read."""
    found = [(build.name, build.lock), *((str(one["name"]), one["text"]) for one in extra)]
    for name, text in found:
        conda = locks.is_conda(text)
        if conda != (installer == "conda") and not (conda is False and name != build.name):
            kind = "an explicit conda specification" if conda else "a requirements file"
            raise EnvironmentRefused(f"lock file {name} is {kind}, which the installer {installer} does not read")
        (locks.packages if conda else locks.pins)(name, text)
    return found


def inputs(
    build: Build,
    texts: t.Sequence[tuple[str, str]],
    more: t.Sequence[Wheel],
    installer: str,
    python: Interpreter,
    indexes: t.Sequence[str],
) -> dict[str, t.Any]:
    """Return all that decides what an environment is; where files lie and secrets in URLs do not."""
    own = installer == "conda"
    return {
        "recipe": RECIPE,
        "build": build.name,
        "locks": {name: _digest("\n".join(locks.lines(text))) for name, text in texts},
        "wheels": {wheel.path.rpartition("/")[2]: wheel.sha256 for wheel in more},
        "installer": installer,
        "indexes": [re.sub(r"//[^/@]*@", "//", one) for one in indexes],
        "python": None if own else [python.path, python.version, python.markers["platform_python_implementation"]],
        "platform": [python.markers["sys_platform"], python.machine],
    }


def label(build: Build, python: Interpreter, installer: str, wanted: t.Mapping[str, t.Any]) -> str:
    """Return the name of an environment's directory: what a person looks for, and what decides."""
    stem = re.sub(r"[^\w.+-]", "_", build.name)
    kind = "conda" if installer == "conda" else f"py{python.version}"
    return f"{stem}-{kind}-{_digest(json.dumps(wanted, sort_keys=True))[:12]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def want(
    build: Build, seen: t.Sequence[Driver], imports: t.Sequence[str], texts: t.Sequence[tuple[str, str]]
) -> dict[str, t.Any]:
    """Return what a proof has to show."""
    held = {} if locks.is_conda(build.lock) else {pin.name: pin.version for pin in locks.pins(*texts[0])}
    return {
        "cuda": build.cuda,
        "torch": held.get("torch", ""),
        "imports": list(imports),
        "drivers": [driver._asdict() for driver in seen],
    }


def removable(
    there: t.Sequence[Environment], linked: t.Collection[str], use: Use, keep: int
) -> tuple[list[str], dict[str, str]]:
    """Return which environments may be removed, and why each of the others stays.

    A job that started before a link left an environment may have followed that link, wherever it runs.
    """
    newest = [one.name for one in sorted(there, key=lambda one: -one.made)]
    kept: dict[str, str] = {}
    for position, name in enumerate(newest):
        one = next(item for item in there if item.name == name)
        if name in linked:
            kept[name] = "a link points to it, or pointed to it before"
        elif keep == 0 or position < keep:
            kept[name] = "one of the newest" if keep else "nothing is ever removed (pytorch_keep: 0)"
        elif use.processes.get(name):
            kept[name] = f"used by process {', '.join(map(str, use.processes[name]))}"
        elif use.unknown:
            kept[name] = f"nobody can tell whether a job uses it: {use.unknown}"
        elif use.oldest is not None and (one.retired is None or use.oldest <= one.retired + CLOCKS):
            kept[name] = "a job runs that started before it was left"
    return [name for name in newest if name not in kept], kept
