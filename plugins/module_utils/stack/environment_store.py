# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Environments kept side by side: which is current, which is complete, which may go."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import lock_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.cuda_driver import (
    CudaBuild,
    Driver,
    EnvironmentRefused,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.installer import Interpreter

# What an environment is made of, what its directory is called, and which old ones may go: no I/O, private.


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


def checked(build: CudaBuild, extra: t.Sequence[t.Mapping[str, str]], installer: str) -> list[tuple[str, str]]:
    """Return lock files with their names in the order of installation; refuses one that the installer cannot read."""
    found = [(build.name, build.lock), *((str(one["name"]), one["text"]) for one in extra)]
    for name, text in found:
        conda = lock_files.is_conda(text)
        if conda != (installer == "conda") and not (conda is False and name != build.name):
            kind = "an explicit conda specification" if conda else "a requirements file"
            raise EnvironmentRefused(f"lock file {name} is {kind}, which the installer {installer} does not read")
        (lock_files.packages if conda else lock_files.pins)(name, text)
    return found


def inputs(
    build: CudaBuild,
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
        "locks": {name: _digest("\n".join(lock_files.lines(text))) for name, text in texts},
        "wheels": {wheel.path.rpartition("/")[2]: wheel.sha256 for wheel in more},
        "installer": installer,
        "indexes": [re.sub(r"//[^/@]*@", "//", one) for one in indexes],
        "python": None if own else [python.path, python.version, python.markers["platform_python_implementation"]],
        "platform": [python.markers["sys_platform"], python.machine],
    }


def label(build: CudaBuild, python: Interpreter, installer: str, wanted: t.Mapping[str, t.Any]) -> str:
    """Return the name of an environment's directory: what a person looks for, and what decides."""
    stem = re.sub(r"[^\w.+-]", "_", build.name)
    kind = "conda" if installer == "conda" else f"py{python.version}"
    return f"{stem}-{kind}-{_digest(json.dumps(wanted, sort_keys=True))[:12]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def want(
    build: CudaBuild, seen: t.Sequence[Driver], imports: t.Sequence[str], texts: t.Sequence[tuple[str, str]]
) -> dict[str, t.Any]:
    """Return what a proof has to show."""
    held = {} if lock_files.is_conda(build.lock) else {pin.name: pin.version for pin in lock_files.pins(*texts[0])}
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


# Where environments are kept, on a directory that all nodes see.


MANIFEST = "manifest.json"
_GONE = ".gone-"
_LITTLE = 1 << 20


class EnvironmentStore:
    def __init__(self, path: str) -> None:
        self.root = Path(path)
        self.envs = self.root / "envs"
        self.lock = self.envs / ".lock"

    def target(self, name: str) -> Path:
        return self.envs / name

    def manifest(self, name: str) -> dict[str, t.Any]:
        return _read(self.envs / name / MANIFEST)

    def state(self, name: str) -> dict[str, t.Any]:
        return _read(self.envs / f".{name}.json")

    def remember(self, name: str, **known: t.Any) -> None:
        _write(self.envs / f".{name}.json", {**self.state(name), **known})

    def there(self) -> list[Environment]:
        """Return the complete environments."""
        names = [one.name for one in _entries(self.envs) if NAME.fullmatch(one.name) and self.manifest(one.name)]
        return [
            Environment(one, float(self.manifest(one).get("made", 0)), self.state(one).get("retired")) for one in names
        ]

    def goal(self, link: str) -> str:
        """Return the name of the environment that a link points to; empty when there is none."""
        with contextlib.suppress(OSError):
            return os.path.basename(os.readlink(self.root / link))  # noqa: PTH119 - of what the link says
        return ""

    def linked(self) -> set[str]:
        return {self.goal(one.name) for one in _entries(self.root) if one.is_symlink()} - {""}

    def unfinished(self) -> list[str]:
        """Return environments that an interrupted run left half made or half removed."""
        marks = [one.name[1 : -len(".building")] for one in self.envs.glob(".*.building")]
        gone = [one.name for one in self.envs.glob(f"{_GONE}*")]
        return sorted([name for name in marks if not self.manifest(name)] + gone)

    def clean(self) -> None:
        for name in self.unfinished():
            shutil.rmtree(self.envs / name, ignore_errors=True)
        for mark in [*self.envs.glob(".*.building"), *self.envs.glob(".cache-*")]:
            shutil.rmtree(mark) if mark.is_dir() else mark.unlink()

    def begin(self, name: str) -> Path:
        (self.envs / f".{name}.building").touch()
        shutil.rmtree(self.envs / name, ignore_errors=True)
        return self.envs / name

    def abandon(self, name: str) -> None:
        shutil.rmtree(self.envs / name, ignore_errors=True)
        (self.envs / f".{name}.building").unlink(missing_ok=True)

    def finish(self, name: str, content: t.Mapping[str, t.Any]) -> None:
        """Make a built environment one that may be used."""
        _write(self.envs / name / MANIFEST, content)
        (self.envs / f".{name}.building").unlink()

    def drop(self, name: str) -> None:
        """Remove an environment; its name is gone before its files are."""
        with contextlib.suppress(FileNotFoundError):
            (self.envs / name).rename(self.envs / f"{_GONE}{name}")
        shutil.rmtree(self.envs / f"{_GONE}{name}", ignore_errors=True)
        (self.envs / f".{name}.json").unlink(missing_ok=True)

    def point(self, link: str, name: str) -> None:
        """Move a link in one step, never a moment without one."""
        fresh = self.root / f".{link}.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(f"envs/{name}")
        os.replace(fresh, self.root / link)  # noqa: PTH105 - a rename over the old link

    def free(self) -> int:
        known = os.statvfs(self.envs if self.envs.exists() else self.root)
        return known.f_bavail * known.f_frsize

    def full(self) -> bool:
        """Return whether next to no space, or no further file, is left; a quota is not seen."""
        known = os.statvfs(self.envs)
        return known.f_bavail * known.f_frsize < _LITTLE or known.f_files > 0 == known.f_favail


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> dict[str, t.Any]:
    """Read a file of ours; one that was cut short is none."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path: Path, content: t.Mapping[str, t.Any]) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with fresh.open("w") as out:
        json.dump(content, out, indent=2, sort_keys=True)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)


# Who uses environments, as far as this host and Slurm can tell. Reads only, private.


_STATES = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING"
_ARGV = ["squeue", "--all", "--noheader", f"--states={_STATES}", "--format=%S"]


def read(envs: str, names: t.Collection[str], proc: str = "/proc") -> Use:
    oldest, unknown = jobs(run(_ARGV, 60.0))
    return Use(processes(envs, names, proc), oldest, unknown)


def processes(envs: str, names: t.Collection[str], proc: str) -> dict[str, list[int]]:
    """Return processes of this host that run or mention an environment; the owner may not see all of another user's."""
    found: dict[str, list[int]] = {}
    # The kernel names mapped files by their real path, a command line may name the link.
    places = sorted({envs, os.path.realpath(envs)})
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, places))})/([^/\s\0:]+)")
    for folder in Path(proc).iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        for name in set(pattern.findall(_said(folder))) & set(names):
            found.setdefault(name, []).append(int(folder.name))
    return found


def _said(folder: Path) -> str:
    said = []
    for link in ("exe", "cwd"):
        with contextlib.suppress(OSError):
            said.append(os.readlink(folder / link))
    for file in ("cmdline", "maps", "environ"):
        with contextlib.suppress(OSError):
            said.append((folder / file).read_bytes().decode(errors="replace"))
    return "\n".join(said)


def jobs(outcome: Outcome) -> tuple[float | None, str]:
    """Return when the oldest running job started, or why nobody knows."""
    if outcome.rc != 0:
        return None, f"squeue says: {outcome.problem or outcome.err.strip()}"
    times = []
    for line in outcome.out.split():
        try:
            times.append(time.mktime(time.strptime(line, "%Y-%m-%dT%H:%M:%S")))
        except ValueError:
            return None, f"squeue gives the start of a job as {line}"
    return min(times, default=None), ""
