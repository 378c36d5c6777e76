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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _sources, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import BuildStep
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import debian

# How enroot is built without the submodules that its repository names.


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
    """The system that a build is for: a program built against one release's C library need not start on another."""

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
    """Read the version of the C library, e.g. ``glibc 2.36``."""
    match = re.fullmatch(r"glibc (\d+)\.(\d+)", text.strip())
    if not match:
        raise EnrootError(f"the C library here is {text or 'unknown'}; enroot is built against glibc")
    return int(match[1]), int(match[2])


def architecture(machine: str) -> str:
    """Return Debian's name for the kernel's name of the machine type."""
    known = {"x86_64": "amd64", "aarch64": "arm64"}
    if machine not in known:
        raise EnrootError(f"enroot is not built for {machine}, only for {', '.join(known)}")
    return known[machine]


def needs(platform: Platform) -> list[str]:
    """Return the packages that a build needs."""
    common = ["gcc", "libc6-dev", "linux-libc-dev", "make", "makeself"]
    return common if platform.glibc >= _OWN_STRLCPY else [*common, "libbsd-dev"]


def inputs(source: str, platform: Platform) -> dict[str, t.Any]:
    """Return everything that decides the content of a package."""
    return {
        "package": "enroot",
        "recipe": RECIPE,
        "source": source,
        "system": platform.system,
        "machine": platform.machine,
    }


def upstream_version(makefile: str) -> str:
    match = re.search(r"^VERSION\s*:=\s*(\d[\w.~]*)\s*$", makefile, re.MULTILINE)
    if not match:
        raise EnrootError("its Makefile names no VERSION: this is no source of enroot, or one of a kind not known yet")
    return match[1]


def prepare(source: Path) -> None:
    """Link the distribution's packages where the build looks for its submodules."""
    script = source / "deps/makeself/makeself.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    if not script.is_symlink() and not script.exists():
        script.symlink_to(_MAKESELF)
    headers = source / "deps/linux-headers"
    headers.mkdir(parents=True, exist_ok=True)
    (headers / ".stamp").touch()


def steps(source: Path, stage: Path, platform: Platform) -> list[BuildStep]:
    """Return the build commands. DESTDIR is for the second alone: the first would write it into the program."""
    # It would fetch submodules, for ten seconds, if a directory above were a repository.
    environment = {"GIT_CEILING_DIRECTORIES": str(source.parent)}
    options = ["FORCE_GLIBC=1", *PREFIXES]
    if platform.glibc < _OWN_STRLCPY:
        library = f"/usr/lib/{platform.machine}-linux-gnu"
        # From the environment, because the Makefile adds to it; on the command line that would be lost.
        environment["CPPFLAGS"] = "-D_GNU_SOURCE= -include /usr/include/bsd/string.h"
        options.append(f"LDLIBS=-l:libbsd.a {library}/libbsd.a {library}/libmd.a")
    make = ["make", "-C", str(source), *options]
    return [BuildStep([*make, "all"], environment), BuildStep([*make, "install", f"DESTDIR={stage}"], environment)]


def fields(version: str, platform: Platform, maintainer: str) -> dict[str, str]:
    """Return the fields of the package's control file."""
    return {
        "Package": "enroot",
        "Version": version,
        "Architecture": architecture(platform.machine),
        "Maintainer": maintainer,
        "Section": "utils",
        "Priority": "optional",
        "Homepage": "https://github.com/NVIDIA/enroot",
        "Depends": f"{_DEPENDS}, libc6 (>= {platform.glibc[0]}.{platform.glibc[1]})",
        "Recommends": "ca-certificates",
        "Suggests": "fuse-overlayfs, libnvidia-container-tools, squashfuse",
        "Conflicts": _OTHERS,
        "Provides": "enroot+caps",
        "Replaces": _OTHERS,
        "Description": "Unprivileged container sandboxing utility\n"
        f"Built by hpcai.gpu_cluster for {platform.system}, with the capabilities that users\nneed to import images.",
    }


# Building the Debian package for this host's system.


_PROOF_TIMEOUT = 30.0
Json = t.Dict[str, t.Any]


class EnrootBuild(t.NamedTuple):
    """The requested build, with everything that decides the content of its package."""

    source: str
    platform: Platform
    inputs: Json
    cache: Path


def read(source: t.Mapping[str, t.Any], cache: str, root: str = "/") -> EnrootBuild:
    """Return the build that a source and this host's system make."""
    text = Path(root, "etc/os-release").read_text(encoding="utf-8")
    library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    platform = Platform(system(text), os.uname().machine, glibc(library))
    architecture(platform.machine)
    identity = _sources.identity(source)
    return EnrootBuild(identity, platform, inputs(identity, platform), Path(cache))


def look(task: EnrootBuild) -> Json:
    """Return which package is installed, which one is stored, and what a build lacks."""
    version = debian.installed("enroot")
    _trusted.check(str(task.cache.absolute()), _trusted.trusted_users())  # root installs what is in it
    stored = debian.find(task.cache, "enroot", task.inputs)
    missing = [] if stored else [name for name in needs(task.platform) if not debian.installed(name)]
    current = debian.is_ours(version, task.inputs)
    return {
        "digest": debian.digest(task.inputs),
        "system": task.platform.system,
        "architecture": architecture(task.platform.machine),
        "installed": version,
        "current": current,
        "path": str(stored or ""),
        "version": debian.field(stored, "Version") if stored else version if current else "",
        "packages": missing,
    }


def build(task: EnrootBuild, archive: str, build_dir: str, timeout: float) -> tuple[Path, float]:
    """Build in a temporary directory, prove the result, and only then store it; return the package and the seconds.

    A second build at the same time waits and finds the package of the first.
    """
    task.cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    with lock(task.cache / ".enroot.lock"):
        stored = debian.find(task.cache, "enroot", task.inputs)
        if stored:
            return stored, 0.0
        if not archive:
            raise EnrootError(
                f"enroot was not built for {task.platform.system} yet, and no archive of its source is given"
            )
        work = Path(tempfile.mkdtemp(prefix="enroot-build-", dir=build_dir))
        try:
            return _build_from_source(task, archive, work, timeout)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _build_from_source(task: EnrootBuild, archive: str, work: Path, timeout: float) -> tuple[Path, float]:
    source = Path(_sources.unpack(archive, task.source, work / "source"))
    makefile = source / "Makefile"
    upstream = upstream_version(makefile.read_text(errors="replace") if makefile.is_file() else "")
    prepare(source)
    stage = work / "stage"
    seconds = _sources.run_steps(steps(source, stage, task.platform), {"LC_ALL": "C"}, timeout)
    prove(stage, upstream, work)
    control = fields(debian.version(upstream, task.inputs), task.platform, "hpcai.gpu_cluster <root@localhost>")
    return debian.pack(stage, control, SCRIPTS, task.cache), seconds


def prove(stage: Path, version: str, work: Path) -> None:
    """Raise unless every program of the build exists and starts, and none refers to the build directory."""
    programs = stage / "usr/bin"
    missing = [name for name in PROGRAMS if not os.access(programs / name, os.X_OK)]
    if missing:
        raise EnrootError(f"the build ended well but made no {', '.join(missing)}")
    if str(stage) in (programs / "enroot").read_text(errors="replace"):
        raise EnrootError(f"the build wrote its own directory {stage} into the program enroot")
    home = {"HOME": str(work), "XDG_RUNTIME_DIR": str(work), "ENROOT_LIBRARY_PATH": str(stage / "usr/lib/enroot")}
    version_outcome = run([str(programs / "enroot"), "version"], _PROOF_TIMEOUT, environment=home)
    if version_outcome.rc != 0 or version_outcome.out.strip() != version:
        raise EnrootError(
            f"enroot does not say that it is {version}: {version_outcome.problem or version_outcome.out.strip()}"
        )
    for name in PROGRAMS[1:]:
        outcome = run([str(programs / name)], _PROOF_TIMEOUT)
        if outcome.rc not in (0, 1):  # without arguments they say how they are called
            raise EnrootError(f"{name} does not start: {outcome.problem or outcome.rc}")
