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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import TrustError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import lock_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.installer import Interpreter
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.versions import (
    CudaBuild,
    Driver,
    EnvironmentRefused,
)

# What decides an environment, its directory's name, and which old ones may be removed.


# Raised when the commands change in a way that makes other environments.
RECIPE = 1
NAME = re.compile(r"[A-Za-z0-9][\w.+-]*-[0-9a-f]{12}")
# Seconds by which the clock of Slurm's controller may be ahead of this host's.
CLOCKS = 300.0


class Wheel(t.NamedTuple):
    path: str
    sha256: str


class Environment(t.NamedTuple):
    """A complete environment. Times are seconds since the epoch; ``retired`` is when a link left it, None before."""

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


def wheels(described: t.Iterable[t.Mapping[str, t.Any]]) -> list[Wheel]:
    known = []
    for fields in described:
        path, digest = str(fields.get("path") or ""), str(fields.get("sha256") or "")
        if not path.endswith(".whl") or not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise EnvironmentRefused(f"a wheel needs path and sha256 (64 hexadecimal digits); given: {dict(fields)}")
        known.append(Wheel(path, digest))
    return sorted(known, key=lambda wheel: wheel.path.rpartition("/")[2])


def checked_locks(build: CudaBuild, extra: t.Sequence[t.Mapping[str, str]], installer: str) -> list[tuple[str, str]]:
    """Return lock files with their names in the order of installation; refuses one that the installer cannot read."""
    locks = [(build.name, build.lock), *((str(entry["name"]), entry["text"]) for entry in extra)]
    for name, text in locks:
        conda = lock_files.is_conda(text)
        if conda != (installer == "conda") and not (conda is False and name != build.name):
            kind = "an explicit conda specification" if conda else "a requirements file"
            raise EnvironmentRefused(f"lock file {name} is {kind}, which the installer {installer} does not read")
        (lock_files.packages if conda else lock_files.pins)(name, text)
    return locks


def inputs(
    build: CudaBuild,
    texts: t.Sequence[tuple[str, str]],
    wheels: t.Sequence[Wheel],
    installer: str,
    python: Interpreter,
    indexes: t.Sequence[str],
) -> dict[str, t.Any]:
    """Return everything that decides an environment's content; paths of files and secrets in URLs do not."""
    own = installer == "conda"
    return {
        "recipe": RECIPE,
        "build": build.name,
        "locks": {name: _digest("\n".join(lock_files.lines(text))) for name, text in texts},
        "wheels": {wheel.path.rpartition("/")[2]: wheel.sha256 for wheel in wheels},
        "installer": installer,
        "indexes": [re.sub(r"//[^/@]*@", "//", index) for index in indexes],
        "python": None if own else [python.path, python.version, python.markers["platform_python_implementation"]],
        "platform": [python.markers["sys_platform"], python.machine],
    }


def label(build: CudaBuild, python: Interpreter, installer: str, inputs: t.Mapping[str, t.Any]) -> str:
    """Return the name of an environment's directory: build, Python, and a digest of the inputs."""
    stem = re.sub(r"[^\w.+-]", "_", build.name)
    kind = "conda" if installer == "conda" else f"py{python.version}"
    return f"{stem}-{kind}-{_digest(json.dumps(inputs, sort_keys=True))[:12]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def proof_request(
    build: CudaBuild, observed: t.Sequence[Driver], imports: t.Sequence[str], texts: t.Sequence[tuple[str, str]]
) -> dict[str, t.Any]:
    """Return what a proof has to show: versions of CUDA and torch, imports, drivers."""
    held = {} if lock_files.is_conda(build.lock) else {pin.name: pin.version for pin in lock_files.pins(*texts[0])}
    return {
        "cuda": build.cuda,
        "torch": held.get("torch", ""),
        "imports": list(imports),
        "drivers": [driver._asdict() for driver in observed],
    }


def removable(
    environments: t.Sequence[Environment], linked: t.Collection[str], use: Use, keep: int
) -> tuple[list[str], dict[str, str]]:
    """Return which environments may be removed, and why each of the others stays.

    A job that started before a link left an environment may have followed that link, wherever it runs.
    """
    newest = [environment.name for environment in sorted(environments, key=lambda environment: -environment.made)]
    kept: dict[str, str] = {}
    for position, name in enumerate(newest):
        environment = next(candidate for candidate in environments if candidate.name == name)
        if name in linked:
            kept[name] = "a link points to it, or pointed to it before"
        elif keep == 0 or position < keep:
            kept[name] = "one of the newest" if keep else "nothing is ever removed (pytorch_keep: 0)"
        elif use.processes.get(name):
            kept[name] = f"used by process {', '.join(map(str, use.processes[name]))}"
        elif use.unknown:
            kept[name] = f"nobody can tell whether a job uses it: {use.unknown}"
        elif use.oldest is not None and (environment.retired is None or use.oldest <= environment.retired + CLOCKS):
            kept[name] = "a job runs that started before it was left"
    return [name for name in newest if name not in kept], kept


# The store of environments, in a directory that all nodes share. What is in it runs as its users: only what root or the
# user who runs this can have put there counts.


MANIFEST = "manifest.json"
# All files of an environment in one, for roles/training_job/files/staging.py.
ARCHIVE = "environment.tar"
_GONE = ".gone-"
_LITTLE = 1 << 20


class EnvironmentStore:
    def __init__(self, path: str) -> None:
        self.root = Path(path)
        self.envs = self.root / "envs"
        self.lock = self.envs / ".lock"
        self.trusted = _trusted.trusted_users()

    def refuse_others(self) -> None:
        """Raise EnvironmentRefused where somebody else could exchange an environment or the way to it."""
        self._guarded(_trusted.check, self.envs)

    def make(self) -> None:
        """Make the directories that are missing, as the user who runs this."""
        self._guarded(_trusted.make, self.envs)

    def _guarded(self, act: t.Callable[[str, t.AbstractSet[int]], None], path: Path) -> None:
        try:
            act(str(path), self.trusted)
        except TrustError as exc:
            raise EnvironmentRefused(f"environments cannot be kept in {self.root}: {exc}") from exc

    def target(self, name: str) -> Path:
        return self.envs / name

    def manifest(self, name: str) -> dict[str, t.Any]:
        """Return the manifest, empty without one; an environment that somebody else made is refused."""
        return self._read(self.envs / name / MANIFEST)

    def state(self, name: str) -> dict[str, t.Any]:
        return self._read(self.envs / f".{name}.json")

    def _read(self, path: Path) -> dict[str, t.Any]:
        """Read a file of ours; an incomplete one reads as empty."""
        try:
            content = json.loads(_trusted.read(str(path), self.trusted))
        except TrustError as exc:
            raise EnvironmentRefused(f"{path} is not used: {exc}") from exc
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _is_ours(self, name: str) -> bool:
        return not _trusted.distrust(str(self.envs / name), self.trusted)

    def remember(self, name: str, **known: t.Any) -> None:
        _write(self.envs / f".{name}.json", {**self.state(name), **known})

    def complete(self) -> list[Environment]:
        """Return the complete environments."""
        names = [
            entry.name
            for entry in _entries(self.envs)
            if NAME.fullmatch(entry.name) and self._is_ours(entry.name) and self.manifest(entry.name)
        ]
        return [
            Environment(entry, float(self.manifest(entry).get("made", 0)), self.state(entry).get("retired"))
            for entry in names
        ]

    def goal(self, link: str) -> str:
        """Return the name of the environment that a link of ours points to; empty when there is none."""
        with contextlib.suppress(OSError):
            folder, dummy, name = os.readlink(self.root / link).rpartition("/")
            if folder == self.envs.name and (self.root / link).lstat().st_uid in self.trusted:
                return name
        return ""

    def linked(self) -> set[str]:
        """Return the names that any link beside the environments ends with, whoever made it."""
        return {os.readlink(entry).rpartition("/")[2] for entry in _entries(self.root) if entry.is_symlink()} - {""}

    def unfinished(self) -> list[str]:
        """Return environments that an interrupted run left half made or half removed."""
        marks = [path.name[1 : -len(".building")] for path in self._entries_of_ours(".*.building")]
        removed = [path.name for path in self._entries_of_ours(f"{_GONE}*")]
        return sorted([name for name in marks if not self.manifest(name)] + removed)

    def _entries_of_ours(self, pattern: str) -> list[Path]:
        ours = []
        for path in self.envs.glob(pattern):
            with contextlib.suppress(FileNotFoundError):  # another run removed it
                ours += [path] if path.lstat().st_uid in self.trusted else []
        return ours

    def clean(self) -> None:
        for name in self.unfinished():
            shutil.rmtree(self.envs / name, ignore_errors=True)
        for mark in [*self._entries_of_ours(".*.building"), *self._entries_of_ours(".cache-*")]:
            shutil.rmtree(mark) if mark.is_dir() else mark.unlink()

    def begin(self, name: str) -> Path:
        (self.envs / f".{name}.building").touch()
        shutil.rmtree(self.envs / name, ignore_errors=True)
        return self.envs / name

    def abandon(self, name: str) -> None:
        shutil.rmtree(self.envs / name, ignore_errors=True)
        (self.envs / f".{name}.building").unlink(missing_ok=True)

    def finish(self, name: str, content: t.Mapping[str, t.Any]) -> None:
        """Write the manifest of a built environment, which makes it complete."""
        _write(self.envs / name / MANIFEST, content)
        (self.envs / f".{name}.building").unlink()

    def drop(self, name: str) -> None:
        """Remove an environment; it is renamed first, so that nobody starts in a half removed one."""
        with contextlib.suppress(FileNotFoundError):
            (self.envs / name).rename(self.envs / f"{_GONE}{name}")
        shutil.rmtree(self.envs / f"{_GONE}{name}", ignore_errors=True)
        (self.envs / f".{name}.json").unlink(missing_ok=True)

    def point(self, link: str, name: str) -> None:
        """Point a link to an environment in one step: at every moment there is one."""
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


def _write(path: Path, content: t.Mapping[str, t.Any]) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with fresh.open("w") as out:
        json.dump(content, out, indent=2, sort_keys=True)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)


# Who uses environments, as far as this host and Slurm can tell.


_STATES = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING"
_ARGV = ["squeue", "--all", "--noheader", f"--states={_STATES}", "--format=%S"]


def read(envs: str, names: t.Collection[str], proc: str = "/proc") -> Use:
    oldest, unknown = jobs(run(_ARGV, 60.0))
    return Use(processes(envs, names, proc), oldest, unknown)


def processes(envs: str, names: t.Collection[str], proc: str) -> dict[str, list[int]]:
    """Return processes of this host that run or mention an environment; the owner may not see all of another user's."""
    pids: dict[str, list[int]] = {}
    # The kernel names mapped files by their real path, a command line may name the link.
    folders = sorted({envs, os.path.realpath(envs)})
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, folders))})/([^/\s\0:]+)")
    for folder in Path(proc).iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        for name in set(pattern.findall(_process_texts(folder))) & set(names):
            pids.setdefault(name, []).append(int(folder.name))
    return pids


def _process_texts(folder: Path) -> str:
    texts = []
    for link in ("exe", "cwd"):
        with contextlib.suppress(OSError):
            texts.append(os.readlink(folder / link))
    for file in ("cmdline", "maps", "environ"):
        with contextlib.suppress(OSError):
            texts.append((folder / file).read_bytes().decode(errors="replace"))
    return "\n".join(texts)


def jobs(outcome: Outcome) -> tuple[float | None, str]:
    """Return when the oldest running job started, or why that is not known."""
    if outcome.rc != 0:
        return None, f"squeue says: {outcome.problem or outcome.err.strip()}"
    times = []
    for line in outcome.out.split():
        try:
            times.append(time.mktime(time.strptime(line, "%Y-%m-%dT%H:%M:%S")))
        except ValueError:
            return None, f"squeue gives the start of a job as {line}"
    return min(times, default=None), ""
