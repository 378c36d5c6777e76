# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module enroot_package: build enroot from its pinned source into Debian packages."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _sources
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import BuildStep
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import debian

# How enroot is built from its source alone, without the submodules that its repository names.


# Raised when this file makes another package of the same source.
RECIPE = 1
PREFIXES = ("prefix=", "exec_prefix=/usr", "datarootdir=/usr/share")
PROGRAMS = (
    "enroot",
    "enroot-aufs2ovlfs",
    "enroot-mksquashovlfs",
    "enroot-mount",
    "enroot-nsenter",
    "enroot-switchroot",
)
# glibc has strlcpy and strlcat from this version on (its NEWS); before, libbsd has them.
_OWN_STRLCPY = (2, 38)
_MAKESELF = "/usr/bin/makeself"

# As in pkg/deb/control. column is in bsdextrautils since Debian 11; "enroot list" and pyxis call it.
_DEPENDS = (
    "bash (>= 4.2), bsdextrautils, curl, gawk | mawk, jq (>= 1.5), libcap2-bin, parallel, passwd, pigz, "
    "squashfs-tools, zstd"
)
_OTHERS = "enroot+caps, enroot-hardened, enroot-hardened+caps"
# Users import images themselves; pkg/deb/PACKAGE+caps.postinst sets the same.
_POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
    setcap cap_sys_admin+pe /usr/bin/enroot-mksquashovlfs
    setcap cap_sys_admin,cap_mknod+pe /usr/bin/enroot-aufs2ovlfs
fi
"""
SCRIPTS = {"postinst": _POSTINST}


class EnrootError(ValueError):
    """enroot cannot be built; the text is fit for the user."""


class Platform(t.NamedTuple):
    """What a build is for. A program built against one release's C library need not start on another."""

    system: str
    machine: str
    glibc: tuple[int, int]


def system(os_release: str) -> str:
    """Name a release of a distribution by what /etc/os-release says, e.g. ``debian 12``."""
    fields = dict(line.replace('"', "").split("=", 1) for line in os_release.splitlines() if "=" in line)
    release = fields.get("VERSION_ID") or fields.get("VERSION_CODENAME", "")
    if not fields.get("ID") or not release:
        raise EnrootError("/etc/os-release does not name the distribution and its release")
    return f"{fields['ID']} {release}"


def glibc(text: str) -> tuple[int, int]:
    """Read what the C library says of itself, e.g. ``glibc 2.36``."""
    found = re.fullmatch(r"glibc (\d+)\.(\d+)", text.strip())
    if not found:
        raise EnrootError(f"the C library here is {text or 'unknown'}; enroot is built against glibc")
    return int(found[1]), int(found[2])


def architecture(machine: str) -> str:
    """Return Debian's name for what the kernel calls the machine."""
    known = {"x86_64": "amd64", "aarch64": "arm64"}
    if machine not in known:
        raise EnrootError(f"enroot is not built for {machine}, only for {', '.join(known)}")
    return known[machine]


def needs(place: Platform) -> list[str]:
    """Return the packages that a build needs."""
    common = ["gcc", "libc6-dev", "linux-libc-dev", "make", "makeself"]
    return common if place.glibc >= _OWN_STRLCPY else [*common, "libbsd-dev"]


def inputs(source: str, place: Platform) -> dict[str, t.Any]:
    """Return all that decides what a package is."""
    return {"package": "enroot", "recipe": RECIPE, "source": source, "system": place.system, "machine": place.machine}


def upstream_version(makefile: str) -> str:
    found = re.search(r"^VERSION\s*:=\s*(\d[\w.~]*)\s*$", makefile, re.MULTILINE)
    if not found:
        raise EnrootError("its Makefile names no VERSION: this is no source of enroot, or one of a kind not known yet")
    return found[1]


def prepare(source: Path) -> None:
    """Put the distribution's parts where the build looks for its submodules."""
    script = source / "deps/makeself/makeself.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    if not script.is_symlink() and not script.exists():
        script.symlink_to(_MAKESELF)
    headers = source / "deps/linux-headers"
    headers.mkdir(parents=True, exist_ok=True)
    (headers / ".stamp").touch()


def steps(source: Path, stage: Path, place: Platform) -> list[BuildStep]:
    """Return the commands. With DESTDIR given to the first already, it would be written into the program."""
    # It would fetch submodules, for ten seconds, if a directory above were a repository.
    environment = {"GIT_CEILING_DIRECTORIES": str(source.parent)}
    options = ["FORCE_GLIBC=1", *PREFIXES]
    if place.glibc < _OWN_STRLCPY:
        library = f"/usr/lib/{place.machine}-linux-gnu"
        # From the environment, because the Makefile adds to it; on the command line that would be lost.
        environment["CPPFLAGS"] = "-D_GNU_SOURCE= -include /usr/include/bsd/string.h"
        options.append(f"LDLIBS=-l:libbsd.a {library}/libbsd.a {library}/libmd.a")
    make = ["make", "-C", str(source), *options]
    return [BuildStep([*make, "all"], environment), BuildStep([*make, "install", f"DESTDIR={stage}"], environment)]


def fields(version: str, place: Platform, maintainer: str) -> dict[str, str]:
    return {
        "Package": "enroot",
        "Version": version,
        "Architecture": architecture(place.machine),
        "Maintainer": maintainer,
        "Section": "utils",
        "Priority": "optional",
        "Homepage": "https://github.com/NVIDIA/enroot",
        "Depends": f"{_DEPENDS}, libc6 (>= {place.glibc[0]}.{place.glibc[1]})",
        "Recommends": "ca-certificates",
        "Suggests": "fuse-overlayfs, libnvidia-container-tools, squashfuse",
        "Conflicts": _OTHERS,
        "Provides": "enroot+caps",
        "Replaces": _OTHERS,
        "Description": "Unprivileged container sandboxing utility\n"
        f"Built by hpcai.gpu_cluster for {place.system}, with the capabilities that users\nneed to import images.",
    }


# Have a Debian package of enroot that was built from one source for this host's system.


_PROOF_TIMEOUT = 30.0
Json = t.Dict[str, t.Any]


class EnrootBuild(t.NamedTuple):
    """What is asked for, with the digest of all that decides the package."""

    source: str
    place: Platform
    inputs: Json
    cache: Path


def read(source: t.Mapping[str, t.Any], cache: str, root: str = "/") -> EnrootBuild:
    """Look at this host."""
    text = Path(root, "etc/os-release").read_text(encoding="utf-8")
    library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    place = Platform(system(text), os.uname().machine, glibc(library))
    architecture(place.machine)
    identity = _sources.identity(source)
    return EnrootBuild(identity, place, inputs(identity, place), Path(cache))


def look(task: EnrootBuild) -> Json:
    """Say what is there: the package that is installed, the one that is kept, and what a build lacks."""
    version = debian.installed("enroot")
    kept = debian.find(task.cache, "enroot", task.inputs)
    missing = [] if kept else [name for name in needs(task.place) if not debian.installed(name)]
    current = debian.is_ours(version, task.inputs)
    return {
        "digest": debian.digest(task.inputs),
        "system": task.place.system,
        "architecture": architecture(task.place.machine),
        "installed": version,
        "current": current,
        "path": str(kept or ""),
        "version": debian.field(kept, "Version") if kept else version if current else "",
        "packages": missing,
    }


def build(task: EnrootBuild, archive: str, build_dir: str, timeout: float) -> tuple[Path, float]:
    """Build beside what is kept, prove it, and only then keep it; return the package and the seconds it took.

    A second build at the same time waits and finds the package of the first.
    """
    task.cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    with lock(task.cache / ".enroot.lock"):
        kept = debian.find(task.cache, "enroot", task.inputs)
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


def _made(task: EnrootBuild, archive: str, work: Path, timeout: float) -> tuple[Path, float]:
    source = Path(_sources.unpack(archive, task.source, work / "source"))
    makefile = source / "Makefile"
    upstream = upstream_version(makefile.read_text(errors="replace") if makefile.is_file() else "")
    prepare(source)
    stage = work / "stage"
    seconds = _sources.run_steps(steps(source, stage, task.place), {"LC_ALL": "C"}, timeout)
    prove(stage, upstream, work)
    control = fields(debian.version(upstream, task.inputs), task.place, "hpcai.gpu_cluster <root@localhost>")
    return debian.pack(stage, control, SCRIPTS, task.cache), seconds


def prove(stage: Path, version: str, work: Path) -> None:
    """Raise unless every program of the build is there and starts, and nothing refers to the place it was built in."""
    programs = stage / "usr/bin"
    missing = [name for name in PROGRAMS if not os.access(programs / name, os.X_OK)]
    if missing:
        raise EnrootError(f"the build ended well but made no {', '.join(missing)}")
    if str(stage) in (programs / "enroot").read_text(errors="replace"):
        raise EnrootError(f"the build wrote its own directory {stage} into the program enroot")
    home = {"HOME": str(work), "XDG_RUNTIME_DIR": str(work), "ENROOT_LIBRARY_PATH": str(stage / "usr/lib/enroot")}
    said = run([str(programs / "enroot"), "version"], _PROOF_TIMEOUT, environment=home)
    if said.rc != 0 or said.out.strip() != version:
        raise EnrootError(f"enroot does not say that it is {version}: {said.problem or said.out.strip()}")
    for name in PROGRAMS[1:]:
        outcome = run([str(programs / name)], _PROOF_TIMEOUT)
        if outcome.rc not in (0, 1):  # without arguments they say how they are called
            raise EnrootError(f"{name} does not start: {outcome.problem or outcome.rc}")
