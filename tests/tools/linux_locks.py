# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leave in a lock file the digests of what its hosts can install: ``linux_locks.py LOCK PYLOCK OLDEST``

``uv pip compile`` writes the digest of every file of a package: of macOS, Windows, musl, other interpreters, sources,
which is two thirds of a lock. Here those of wheels for CPython from OLDEST on, on Linux with glibc, stay, where the
pin's own marker lets them; free-threaded builds of CPython are not among the hosts. PYLOCK, of the same pins in uv's
format ``pylock.toml``, says which digest is of what file; a package that it lacks keeps all. The first line says what
the lock was made from.
"""

from __future__ import annotations

import re
import sys
import typing as t
from pathlib import Path

import tomllib
from packaging.markers import Marker
from packaging.utils import canonicalize_name, parse_wheel_filename

if t.TYPE_CHECKING:
    from packaging.tags import Tag

Files = dict[str, dict[str, str]]
_PLATFORM = re.compile(r"any|(many)?linux.*_(x86_64|aarch64)")


def files(pylock: str) -> Files:
    """Return the names of each package's wheels by their SHA-256."""
    names: Files = {}
    for package in tomllib.loads(pylock)["packages"]:
        wheels = names.setdefault(canonicalize_name(package["name"]), {})
        wheels.update(
            {wheel["hashes"]["sha256"]: wheel["url"].rsplit("/", 1)[-1] for wheel in package.get("wheels", [])}
        )
    return names


def usable(wheel: str, oldest: int, marker: Marker | None = None) -> bool:
    """Say whether CPython 3.OLDEST or a newer one that the marker allows can install a wheel on Linux with glibc."""
    tags = parse_wheel_filename(wheel)[3]
    return any(_PLATFORM.fullmatch(tag.platform) and _runs(tag, oldest, marker) for tag in tags)


def _runs(tag: Tag, oldest: int, marker: Marker | None) -> bool:
    version = re.fullmatch(r"cp3(\d+)", tag.interpreter)
    if version is None:
        return tag.interpreter.startswith("py") and tag.abi == "none"
    if tag.abi == "abi3":
        return True
    return tag.abi == tag.interpreter and int(version[1]) >= oldest and _allows(marker, f"3.{version[1]}")


def _allows(marker: Marker | None, python: str) -> bool:
    """Say whether a marker lets a release of Python install its pin on either machine."""
    here = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    return not marker or any(marker.evaluate({**here, "platform_machine": name}) for name in ("x86_64", "aarch64"))


def shortened(lock: str, known: Files, oldest: int) -> str:
    """Return the lock without the digests of files that none of its hosts can install."""
    return "".join(_pin(pin, known, oldest) for pin in re.split(r"(?m)^(?=\S)", lock))


def _pin(pin: str, known: Files, oldest: int) -> str:
    first, *lines = re.split(r" \\\n +", pin.rstrip("\n"))
    wheels = known.get(canonicalize_name(first.partition("==")[0]))
    if not lines or wheels is None:
        return pin
    digests = [line.removeprefix("--hash=sha256:") for line in lines]
    marker = first.partition(";")[2]
    allowed = Marker(marker) if marker else None
    kept = [digest for digest in digests if digest in wheels and usable(wheels[digest], oldest, allowed)]
    if not kept:
        raise SystemExit(f"nothing could install {first}: it has no wheel for Linux with glibc in the pylock")
    return " \\\n    ".join([first, *(f"--hash=sha256:{digest}" for digest in kept)]) + "\n"


def main() -> None:
    lock, pylock, oldest = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3].removeprefix("3."))
    pins = shortened(lock.read_text(encoding="utf-8"), files(pylock.read_text(encoding="utf-8")), oldest)
    lock.write_text(f"# Made from {lock.stem}.in by make lock-pytorch.\n{pins}", "utf-8")


if __name__ == "__main__":
    main()
