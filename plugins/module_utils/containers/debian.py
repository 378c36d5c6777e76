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

# Make Debian packages of programs that were built from source, and read them again.


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
        first, *more = value.strip().splitlines() or [""]
        if more and name != "Description":
            raise DebError(f"{name} of a package is one line: {value!r}")
        lines += [f"{name}: {first}", *(f" {line.strip() or '.'}" for line in more)] if first else []
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
    goal = into / f"{fields['Package']}_{fields['Version']}_{fields['Architecture']}.deb"
    partial = goal.with_name(f".{goal.name}.partial")
    argv = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(partial)]
    outcome = run(argv, _TIMEOUT, environment=_ENVIRONMENT)
    if outcome.rc != 0:
        partial.unlink(missing_ok=True)
        raise DebError(f"{' '.join(argv)} failed: {outcome.problem}")
    partial.chmod(0o644)
    partial.rename(goal)
    return goal


def _plain(tree: Path) -> None:
    """Give directories and files the modes that packages have, whatever umask they were made with."""
    tree.chmod(0o755)
    for path in tree.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def installed(name: str) -> str:
    """Return the version of a package that is installed and whole; empty when it is not."""
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
    """Tell whether a package file can be read to its end."""
    return deb.is_file() and run(["dpkg-deb", "--contents", str(deb)], _TIMEOUT).rc == 0


# Packages that were built here, kept by the digest of what decided them.


_MARK = "+hpcai."
_LENGTH = 12


def digest(inputs: t.Mapping[str, t.Any]) -> str:
    text = json.dumps(inputs, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def version(upstream: str, inputs: t.Mapping[str, t.Any]) -> str:
    """Return the version of a package, e.g. ``4.1.2+hpcai.3f1c52a09b7e``."""
    return f"{upstream}{_MARK}{digest(inputs)}"


def is_ours(found: str, inputs: t.Mapping[str, t.Any] | None = None) -> bool:
    """Tell whether a version is that of a package built here, and from these inputs if some are given."""
    return found.endswith(f"{_MARK}{digest(inputs)}") if inputs is not None else _MARK in found


def find(cache: Path, name: str, inputs: t.Mapping[str, t.Any]) -> Path | None:
    """Return the package that was built from these inputs; one that was cut short is none."""
    found = sorted(cache.glob(f"{name}_*{_MARK}{digest(inputs)}_*.deb"))
    return next((path for path in found if whole(path)), None)


# Which packages of a set have to be installed, and the command for it. Pure, private.


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
    """A package file: what is known of it, and where it lies on this host, if it does."""

    name: str = ""
    version: str = ""
    sha256: str = ""
    path: str = ""

    @property
    def label(self) -> str:
        """What the caller can find it by again."""
        return self.sha256 or f"{self.name}={self.version}"


def check(files: t.Sequence[PackageFile], names: t.Sequence[str]) -> None:
    """Refuse a set that says nothing."""
    if bool(files) == bool(names):
        raise InstallError("give files or names")
    bad = [one for one in files if not one.sha256 and not (one.name and one.version)]
    if bad:
        raise InstallError(f"a file is told by its sha256, or by name and version: {bad[0]._asdict()}")


def lacking(files: t.Sequence[PackageFile], known: Known, installed: Installed) -> list[PackageFile]:
    """Return the files whose packages are not installed in just that version."""
    return [one for one in files if not _there(one, known, installed)]


def _there(one: PackageFile, known: Known, installed: Installed) -> bool:
    noted = known.get(one.sha256, {}) if not one.name else {"name": one.name, "version": one.version}
    return bool(noted) and installed(noted["name"]) == noted["version"]


def absent(names: t.Sequence[str], installed: Installed) -> list[str]:
    """Return the packages from a repository that have to be installed, as apt takes them."""
    wanted = []
    for one in names:
        name, dummy, version = one.partition("=")
        found = installed(name)
        if not version and is_ours(found):
            raise InstallError(f"{name} {found} was built from source; to replace it, name a version: {name}=VERSION")
        if not found or (version and found != version):
            wanted.append(one)
    return wanted


def without_path(files: t.Iterable[PackageFile]) -> list[str]:
    return [one.label for one in files if not one.path]


def command(arguments: t.Sequence[str]) -> list[str]:
    """Install all in one transaction, as packages of one release depend on each other."""
    return [*_APT.split(), *arguments]


def noted(known: Known, installed: Installed) -> dict[str, dict[str, str]]:
    """Forget what is not installed any more."""
    return {key: dict(one) for key, one in known.items() if installed(one["name"]) == one["version"]}
