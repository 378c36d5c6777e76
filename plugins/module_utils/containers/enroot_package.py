# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have a Debian package of enroot that was built from one source for this host's system. Private."""

from __future__ import annotations

import os
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _build, _pinned_source
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lock import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import deb, enroot_build, package_store
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.enroot_build import EnrootError, Platform

_PROOF_TIMEOUT = 30.0
Json = t.Dict[str, t.Any]


class Task(t.NamedTuple):
    """What is asked for, with the digest of all that decides the package."""

    source: str
    place: Platform
    inputs: Json
    cache: Path


def read(source: t.Mapping[str, t.Any], cache: str, root: str = "/") -> Task:
    """Look at this host."""
    text = Path(root, "etc/os-release").read_text(encoding="utf-8")
    library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    place = Platform(enroot_build.system(text), os.uname().machine, enroot_build.glibc(library))
    enroot_build.architecture(place.machine)
    identity = _pinned_source.identity(source)
    return Task(identity, place, enroot_build.inputs(identity, place), Path(cache))


def look(task: Task) -> Json:
    """Say what is there: the package that is installed, the one that is kept, and what a build lacks."""
    version = deb.installed("enroot")
    kept = package_store.find(task.cache, "enroot", task.inputs)
    missing = [] if kept else [name for name in enroot_build.needs(task.place) if not deb.installed(name)]
    current = package_store.is_ours(version, task.inputs)
    return {
        "digest": package_store.digest(task.inputs),
        "system": task.place.system,
        "architecture": enroot_build.architecture(task.place.machine),
        "installed": version,
        "current": current,
        "path": str(kept or ""),
        "version": deb.field(kept, "Version") if kept else version if current else "",
        "packages": missing,
    }


def build(task: Task, archive: str, build_dir: str, timeout: float) -> tuple[Path, float]:
    """Build beside what is kept, prove it, and only then keep it; return the package and the seconds it took.

    A second build at the same time waits and finds the package of the first.
    """
    task.cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    with lock(task.cache / ".enroot.lock"):
        kept = package_store.find(task.cache, "enroot", task.inputs)
        if kept:
            return kept, 0.0
        if not archive:
            raise EnrootError(
                f"enroot was not built for {task.place.system} yet, and no archive of its source is given"
            )
        work = Path(tempfile.mkdtemp(prefix="enroot-build-", dir=build_dir))
        try:
            return _made(task, archive, work, timeout)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _made(task: Task, archive: str, work: Path, timeout: float) -> tuple[Path, float]:
    source = Path(_pinned_source.unpack(archive, task.source, work / "source"))
    makefile = source / "Makefile"
    upstream = enroot_build.upstream_version(makefile.read_text(errors="replace") if makefile.is_file() else "")
    enroot_build.prepare(source)
    stage = work / "stage"
    seconds = _build.run_steps(enroot_build.steps(source, stage, task.place), {"LC_ALL": "C"}, timeout)
    prove(stage, upstream, work)
    control = enroot_build.fields(
        package_store.version(upstream, task.inputs), task.place, "hpcai.gpu_cluster <root@localhost>"
    )
    return deb.pack(stage, control, enroot_build.SCRIPTS, task.cache), seconds


def prove(stage: Path, version: str, work: Path) -> None:
    """Raise unless every program of the build is there and starts, and nothing refers to the place it was built in."""
    programs = stage / "usr/bin"
    missing = [name for name in enroot_build.PROGRAMS if not os.access(programs / name, os.X_OK)]
    if missing:
        raise EnrootError(f"the build ended well but made no {', '.join(missing)}")
    if str(stage) in (programs / "enroot").read_text(errors="replace"):
        raise EnrootError(f"the build wrote its own directory {stage} into the program enroot")
    home = {"HOME": str(work), "XDG_RUNTIME_DIR": str(work), "ENROOT_LIBRARY_PATH": str(stage / "usr/lib/enroot")}
    said = run([str(programs / "enroot"), "version"], _PROOF_TIMEOUT, environment=home)
    if said.rc != 0 or said.out.strip() != version:
        raise EnrootError(f"enroot does not say that it is {version}: {said.problem or said.out.strip()}")
    for name in enroot_build.PROGRAMS[1:]:
        outcome = run([str(programs / name)], _PROOF_TIMEOUT)
        if outcome.rc not in (0, 1):  # without arguments they say how they are called
            raise EnrootError(f"{name} does not start: {outcome.problem or outcome.rc}")
