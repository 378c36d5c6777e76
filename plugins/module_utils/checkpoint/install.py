# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Has one pinned azcopy in a directory, proved before anything uses it. Private."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command, _lock, _pinned_source
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError

# Releases have it in a directory of their own; the npm package holds only the program, with the architecture's name.
_NAMES = {"x86_64": ("azcopy", "azcopy_linux_amd64"), "aarch64": ("azcopy", "azcopy_linux_arm64")}
_LOCK = ".lock"


class Wanted(t.NamedTuple):
    """The azcopy that shall be in a directory, from an archive with this digest."""

    directory: Path
    version: str
    sha256: str

    @property
    def place(self) -> Path:
        return self.directory / "azcopy" / f"{self.version}-{self.sha256[:12]}"

    @property
    def link(self) -> Path:
        return self.directory / "bin/azcopy"

    @property
    def target(self) -> str:
        return os.path.relpath(self.place / "azcopy", self.link.parent)


def check(wanted: Wanted) -> None:
    """Refuse a pin that is none before anything is fetched."""
    if not re.fullmatch(r"[0-9a-f]{64}", wanted.sha256):
        raise CheckpointError(f"sha256 of azcopy is {wanted.sha256!r}; 64 hexadecimal digits are needed")
    if not re.fullmatch(r"10\.[0-9]+\.[0-9]+", wanted.version):
        raise CheckpointError(f"version of azcopy is {wanted.version!r}; one like 10.32.2 is needed")


def state(wanted: Wanted) -> tuple[bool, bool]:
    """Say whether that azcopy is there, and whether it is the one that is used."""
    there = (wanted.place / "azcopy").is_file()
    return there, there and wanted.link.is_symlink() and os.readlink(wanted.link) == wanted.target


def install(wanted: Wanted, archive: str) -> None:
    """Unpack azcopy aside, prove it, then name it; a run that was cut off leaves nothing that counts."""
    wanted.place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _lock.lock(wanted.place.parent / _LOCK):
        if not state(wanted)[0]:
            aside = Path(tempfile.mkdtemp(prefix="new-", dir=wanted.place.parent))
            try:
                program = _find(Path(_pinned_source.unpack(archive, f"sha256:{wanted.sha256}", aside / "archive")))
                program.replace(aside / "azcopy")
                (aside / "azcopy").chmod(0o755)
                prove(aside / "azcopy", wanted.version)
                shutil.rmtree(aside / "archive")
                aside.chmod(0o755)
                aside.rename(wanted.place)
            except (_pinned_source.SourceError, OSError) as exc:
                raise CheckpointError(str(exc)) from exc
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        _use(wanted)


def _find(root: Path) -> Path:
    names = _NAMES.get(platform.machine(), ("azcopy",))
    found = [path for path in sorted(root.rglob("*")) if path.name in names and path.is_file()]
    if len(found) != 1:
        raise CheckpointError(f"the archive of azcopy holds {len(found)} programs {' or '.join(names)}, not one")
    return found[0]


def prove(program: Path, version: str) -> None:
    """Start it, for a program of another machine or without its libraries is a file like any other."""
    done = _command.run([str(program), "--version"], 60)
    said = f"{done.out} {done.err}"
    if "libsecret" in said and done.rc != 0:
        raise CheckpointError(
            "this build of azcopy is linked with libsecret, which this host lacks: install its package (libsecret-1-0"
            " on Debian and Ubuntu) with checkpoint_upload_packages, or take an archive of an azcopy release"
        )
    if done.rc != 0:
        raise CheckpointError(f"azcopy of the archive does not start: {done.problem}")
    if f"azcopy version {version}" not in done.out.splitlines():
        raise CheckpointError(f"the archive holds {done.out.strip()[:100]!r}, not azcopy {version}")


def _use(wanted: Wanted) -> None:
    wanted.link.parent.mkdir(mode=0o755, exist_ok=True)
    fresh = wanted.link.with_name(".azcopy.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(wanted.target)
    fresh.replace(wanted.link)
