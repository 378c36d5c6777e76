# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian packages that we build: unpacking, installing, and the store of finished ones."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run

# Making and reading packages.


_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~-]*")
_REQUIRED = ("Package", "Version", "Architecture", "Maintainer", "Description")
_SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
# One time for all files, so that the same inputs make the same package.
_ENVIRONMENT = {"SOURCE_DATE_EPOCH": "1577836800"}
_TIMEOUT = 300.0


class DebError(ValueError):
    """A package cannot be made or read; the text is fit for the user."""


def control(fields: t.Mapping[str, str]) -> str:
    """Write the control file; continuation lines of the description are marked here."""
    missing = [name for name in _REQUIRED if not fields.get(name)]
    if missing:
        raise DebError(f"a package needs {', '.join(missing)}")
    if not _NAME.fullmatch(fields["Package"]):
        raise DebError(f"{fields['Package']!r} is no name for a package")
    if not _VERSION.fullmatch(fields["Version"]):
        raise DebError(f"{fields['Version']!r} is no version for a package: it begins with a digit, e.g. 4.1.2+site.1")
    lines = []
    for name, value in fields.items():
        first, *continuation = value.strip().splitlines() or [""]
        if continuation and name != "Description":
            raise DebError(f"{name} of a package is one line: {value!r}")
        lines += [f"{name}: {first}", *(f" {line.strip() or '.'}" for line in continuation)] if first else []
    return "\n".join(lines) + "\n"


def conffiles(tree: Path) -> str:
    """Name all files below /etc: dpkg asks or keeps, and never overwrites, what was changed there."""
    files = sorted(path for path in (tree / "etc").rglob("*") if path.is_file() and not path.is_symlink())
    return "".join(f"/{path.relative_to(tree)}\n" for path in files)


def pack(tree: Path, fields: t.Mapping[str, str], scripts: t.Mapping[str, str], into: Path) -> Path:
    """Make a package of a directory; return its path. A package that exists is replaced in one step."""
    meta = tree / "DEBIAN"
    shutil.rmtree(meta, ignore_errors=True)
    _plain(tree)
    files = {"control": control(fields), "conffiles": conffiles(tree), **scripts}
    unknown = [name for name in scripts if name not in _SCRIPTS]
    if unknown:
        raise DebError(f"a package has no script {', '.join(unknown)}")
    meta.mkdir()
    meta.chmod(0o755)  # whatever the umask
    for name, text in files.items():
        (meta / name).write_text(text)
        (meta / name).chmod(0o755 if name in _SCRIPTS else 0o644)
    into.mkdir(parents=True, exist_ok=True)
    package = into / f"{fields['Package']}_{fields['Version']}_{fields['Architecture']}.deb"
    partial = package.with_name(f".{package.name}.partial")
    argv = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(partial)]
    outcome = run(argv, _TIMEOUT, environment=_ENVIRONMENT)
    if outcome.rc != 0:
        partial.unlink(missing_ok=True)
        raise DebError(f"{' '.join(argv)} failed: {outcome.problem}")
    partial.chmod(0o644)
    partial.rename(package)
    return package


def _plain(tree: Path) -> None:
    """Give directories and files the modes that packages have, whatever umask they were made with."""
    tree.chmod(0o755)
    for path in tree.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def installed(name: str) -> str:
    """Return the version of a package that is completely installed; empty when it is not."""
    outcome = run(["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}|${Version}", name], _TIMEOUT)
    status, dummy, version = outcome.out.partition("|")
    # The third letter tells of a reinstallation that is required.
    return version.strip() if outcome.rc == 0 and status in ("ii ", "hi ") else ""


def field(deb: Path, name: str) -> str:
    """Read one control field of a package file; a file that was cut short is an error."""
    outcome = run(["dpkg-deb", "--field", str(deb), name], _TIMEOUT)
    if outcome.rc != 0:
        raise DebError(f"{deb} is no package: {outcome.problem}")
    return outcome.out.strip()


def whole(deb: Path) -> bool:
    """Return whether a package file can be read to its end."""
    return deb.is_file() and run(["dpkg-deb", "--contents", str(deb)], _TIMEOUT).rc == 0


# The store of built packages: their versions end with a digest of everything that decides their content.


_MARK = "+hpcai."
_LENGTH = 12


def digest(inputs: t.Mapping[str, t.Any]) -> str:
    text = json.dumps(inputs, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def version(upstream: str, inputs: t.Mapping[str, t.Any]) -> str:
    """Return the version of a package, e.g. ``4.1.2+hpcai.3f1c52a09b7e``."""
    return f"{upstream}{_MARK}{digest(inputs)}"


def is_ours(version: str, inputs: t.Mapping[str, t.Any] | None = None) -> bool:
    """Return whether a version is that of a package built here, and from these inputs if some are given."""
    return version.endswith(f"{_MARK}{digest(inputs)}") if inputs is not None else _MARK in version


def find(cache: Path, name: str, inputs: t.Mapping[str, t.Any]) -> Path | None:
    """Return the stored package that was built from these inputs; an incomplete file does not count."""
    candidates = sorted(cache.glob(f"{name}_*{_MARK}{digest(inputs)}_*.deb"))
    return next((path for path in candidates if whole(path)), None)


# Which packages of a set have to be installed, and the command for it.


Known = t.Mapping[str, t.Mapping[str, str]]
Installed = t.Callable[[str], str]
_APT = (
    "apt-get --yes --quiet --no-install-recommends --allow-downgrades"
    # What an administrator changed stays; a package manager that is at work is waited for.
    " -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold -o DPkg::Lock::Timeout=300 install"
)


class InstallError(ValueError):
    """A package cannot be installed; the text is fit for the user."""


class PackageFile(t.NamedTuple):
    """A package file: what is known of it, and its path on this host, if it is here."""

    name: str = ""
    version: str = ""
    sha256: str = ""
    path: str = ""

    @property
    def label(self) -> str:
        """What identifies the file to the caller: its digest, or name and version."""
        return self.sha256 or f"{self.name}={self.version}"


def check(files: t.Sequence[PackageFile], names: t.Sequence[str]) -> None:
    """Refuse options that name no packages, or files that cannot be identified."""
    if bool(files) == bool(names):
        raise InstallError("give files or names")
    unnamed = [file for file in files if not file.sha256 and not (file.name and file.version)]
    if unnamed:
        raise InstallError(f"a file is told by its sha256, or by name and version: {unnamed[0]._asdict()}")


def lacking(files: t.Sequence[PackageFile], known: Known, installed: Installed) -> list[PackageFile]:
    """Return the files whose packages are not installed in just that version."""
    return [file for file in files if not _is_installed(file, known, installed)]


def _is_installed(file: PackageFile, known: Known, installed: Installed) -> bool:
    noted = known.get(file.sha256, {}) if not file.name else {"name": file.name, "version": file.version}
    return bool(noted) and installed(noted["name"]) == noted["version"]


def absent(names: t.Sequence[str], installed: Installed) -> list[str]:
    """Return the requested packages of a repository that are not installed, as apt takes them."""
    missing = []
    for request in names:
        name, dummy, version = request.partition("=")
        current = installed(name)
        if not version and is_ours(current):
            raise InstallError(f"{name} {current} was built from source; to replace it, name a version: {name}=VERSION")
        if not current or (version and current != version):
            missing.append(request)
    return missing


def without_path(files: t.Iterable[PackageFile]) -> list[str]:
    return [file.label for file in files if not file.path]


def command(arguments: t.Sequence[str]) -> list[str]:
    """Return the command that installs all in one transaction, as packages of one release depend on each other."""
    return [*_APT.split(), *arguments]


def noted(known: Known, installed: Installed) -> dict[str, dict[str, str]]:
    """Return the known packages that are still installed."""
    return {key: dict(package) for key, package in known.items() if installed(package["name"]) == package["version"]}
