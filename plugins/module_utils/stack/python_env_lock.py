# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lock files of Python and conda environments: no I/O, no AnsibleModule, private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_driver import EnvironmentRefused

_PINNED = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?\s*===?\s*(?P<version>[^\s;*]+)\s*(?:;(?P<marker>.*))?"
)
_EXPLICIT = "@EXPLICIT"
_PACKAGE = re.compile(
    r"(?P<url>\S+/(?P<file>[^/#]+\.(?:conda|tar\.bz2)))(?:#(?:(?P<kind>sha256|md5):)?(?P<digest>[0-9a-f]+))?"
)


class Pin(t.NamedTuple):
    """One line of a requirements file; ``marker`` says where it applies."""

    name: str
    version: str
    marker: str
    hashes: t.Sequence[str]


class Package(t.NamedTuple):
    """One line of an explicit conda specification."""

    url: str
    file: str
    kind: str
    digest: str


def is_conda(text: str) -> bool:
    return _EXPLICIT in lines(text)


def lines(text: str) -> list[str]:
    """Return logical lines without comments: what counts in a lock file."""
    joined = re.sub(r"\\\r?\n", " ", text)
    bare = (re.sub(r"(^|\s)#.*", "", line) if "://" not in line else line for line in joined.splitlines())
    return [" ".join(line.split()) for line in bare if line.strip() and not line.lstrip().startswith("#")]


def pins(name: str, text: str) -> list[Pin]:
    """Read a requirements file; refuses whatever is not pinned, and hashes for a part of it."""
    found = []
    for line in lines(text):
        bare, *hashes = line.split(" --hash=")
        match = _PINNED.fullmatch(bare.strip())
        if not match or any(" " in one.strip() for one in hashes):
            raise EnvironmentRefused(
                f"lock file {name}: {line[:120]!r} is no name==version with optional marker and hashes"
            )
        found.append(
            Pin(normal(match["name"]), match["version"], (match["marker"] or "").strip(), [h.strip() for h in hashes])
        )
    bare_names = sorted({pin.name for pin in found if not pin.hashes})
    if not found:
        raise EnvironmentRefused(f"lock file {name} names no package")
    if bare_names and len(bare_names) != len({pin.name for pin in found}):
        raise EnvironmentRefused(
            f"lock file {name} has hashes for a part of its packages only, which pip refuses; "
            f"without: {', '.join(bare_names)}"
        )
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def hashed(found: t.Iterable[Pin]) -> bool:
    return all(pin.hashes for pin in found)


def applicable(found: t.Iterable[Pin], applies: t.Callable[[str], bool]) -> list[Pin]:
    """Return the pins for one interpreter; pip would ask the markers of the interpreter that it runs in."""
    return [pin for pin in found if not pin.marker or applies(pin.marker)]


def flat(found: t.Iterable[Pin]) -> str:
    return "".join(f"{pin.name}=={pin.version}{''.join(f' --hash={one}' for one in pin.hashes)}\n" for pin in found)


def packages(name: str, text: str) -> list[Package]:
    """Read an explicit conda specification; refuses packages without a digest."""
    found = []
    for line in lines(text):
        if line == _EXPLICIT:
            continue
        match = _PACKAGE.fullmatch(line)
        digest = match["digest"] if match else None
        if not match or not digest or len(digest) not in (32, 64):
            raise EnvironmentRefused(
                f"lock file {name}: {line[:160]!r} is no URL of a conda package with #md5 or #sha256:digest"
            )
        kind = "md5" if len(digest) == 32 else "sha256"
        found.append(Package(match["url"], match["file"], kind, digest))
    if not found:
        raise EnvironmentRefused(f"lock file {name} names no package")
    return found


def local(found: t.Iterable[Package], folder: str) -> str:
    """Return the same specification with the packages in a directory of this host."""
    return "\n".join([_EXPLICIT, *(f"file://{folder}/{one.file}#{one.digest}" for one in found)]) + "\n"
