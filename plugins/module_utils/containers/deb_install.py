# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages of a set have to be installed, and the command for it. Pure, private.

A file is told by its name and version, where these are known, or by its checksum; what a checksum stands for is noted
when it was installed.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import package_store

Known = t.Mapping[str, t.Mapping[str, str]]
Installed = t.Callable[[str], str]
_APT = (
    "apt-get --yes --quiet --no-install-recommends --allow-downgrades"
    # What an administrator changed stays; a package manager that is at work is waited for.
    " -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold -o DPkg::Lock::Timeout=300 install"
)


class InstallError(ValueError):
    """A package cannot be installed; the text is fit for the user."""


class File(t.NamedTuple):
    """A package file: what is known of it, and where it lies on this host, if it does."""

    name: str = ""
    version: str = ""
    sha256: str = ""
    path: str = ""

    @property
    def label(self) -> str:
        """What the caller can find it by again."""
        return self.sha256 or f"{self.name}={self.version}"


def check(files: t.Sequence[File], names: t.Sequence[str]) -> None:
    """Refuse a set that says nothing."""
    if bool(files) == bool(names):
        raise InstallError("give files or names")
    bad = [one for one in files if not one.sha256 and not (one.name and one.version)]
    if bad:
        raise InstallError(f"a file is told by its sha256, or by name and version: {bad[0]._asdict()}")


def lacking(files: t.Sequence[File], known: Known, installed: Installed) -> list[File]:
    """Return the files whose packages are not installed in just that version."""
    return [one for one in files if not _there(one, known, installed)]


def _there(one: File, known: Known, installed: Installed) -> bool:
    noted = known.get(one.sha256, {}) if not one.name else {"name": one.name, "version": one.version}
    return bool(noted) and installed(noted["name"]) == noted["version"]


def absent(names: t.Sequence[str], installed: Installed) -> list[str]:
    """Return the packages from a repository that have to be installed, as apt takes them."""
    wanted = []
    for one in names:
        name, dummy, version = one.partition("=")
        found = installed(name)
        if not version and package_store.is_ours(found):
            raise InstallError(f"{name} {found} was built from source; to replace it, name a version: {name}=VERSION")
        if not found or (version and found != version):
            wanted.append(one)
    return wanted


def without_path(files: t.Iterable[File]) -> list[str]:
    return [one.label for one in files if not one.path]


def command(arguments: t.Sequence[str]) -> list[str]:
    """Install all in one transaction, as packages of one release depend on each other."""
    return [*_APT.split(), *arguments]


def noted(known: Known, installed: Installed) -> dict[str, dict[str, str]]:
    """Forget what is not installed any more."""
    return {key: dict(one) for key, one in known.items() if installed(one["name"]) == one["version"]}
