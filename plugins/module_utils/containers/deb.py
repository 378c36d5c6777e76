# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make Debian packages of programs that were built from source, and read them again. Private.

What apt installed it can also replace and remove, and it keeps what an administrator changed below ``/etc``.
"""

from __future__ import annotations

import re
import shutil
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run

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
