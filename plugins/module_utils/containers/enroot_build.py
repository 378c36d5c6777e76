# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How enroot is built from its source alone, without the submodules that its repository names. Private.

What these would bring comes from the distribution: makeself, the kernel's headers, and its C library instead of musl.
The prefixes, dependencies and capabilities are those of the project's own Debian packages (pkg/deb in its source).
"""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._build import Step

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


def steps(source: Path, stage: Path, place: Platform) -> list[Step]:
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
    return [Step([*make, "all"], environment), Step([*make, "install", f"DESTDIR={stage}"], environment)]


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
