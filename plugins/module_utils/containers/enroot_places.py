# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an enroot that somebody else configured keeps images, and whether that is this node's scratch."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

# What can be large: layers of images, containers, and what is made while an image is imported.
LARGE = ("ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_TEMP_PATH")
_LINE = re.compile(r"\s*([A-Z_]+)[ \t=]+(\S.*?)\s*")


class EnrootHost(t.NamedTuple):
    """An installed enroot; ``devices`` are the file systems of its directories by setting, None for one not there."""

    version: str
    paths: t.Mapping[str, str]
    devices: t.Mapping[str, int | None]


def paths(text: str) -> dict[str, str]:
    """Return the directories of enroot.conf, as far as they are the same for every user; the first value counts."""
    named: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match and match[1] in LARGE:
            named.setdefault(match[1], _common(match[2].strip("\"'")))
    return named


def _common(value: str) -> str:
    """Return the directory above the first name with an expression of the shell: /a for ``/a/user-$(id -u)``."""
    plain = re.split(r"[$`]", value)[0]
    return plain.rstrip("/") if plain == value or plain.endswith("/") else plain.rpartition("/")[0]


def observe(conf: Path, version: str) -> EnrootHost:
    """Read the configuration; without one enroot keeps everything in home directories."""
    named = paths(conf.read_text(encoding="utf-8")) if conf.is_file() else {}
    return EnrootHost(version, named, {name: device(path) for name, path in named.items()})


def device(path: str) -> int | None:
    try:
        return Path(path).stat().st_dev if path.startswith("/") else None
    except OSError:
        return None


def judge(host: EnrootHost, scratch: str, scratch_device: int | None) -> list[str]:
    """Return what keeps jobs from running containers here, or from doing so on scratch."""
    if not host.version:
        return ["enroot is not installed, or 'enroot version' fails"]
    findings = [f"enroot.conf sets no {name}, so it is in home directories" for name in LARGE if name not in host.paths]
    for name, path in host.paths.items():
        if host.devices[name] is None:
            findings.append(f"{name} is {path!r}, which is not there")
        elif scratch and scratch_device is None:
            findings.append(f"scratch is {scratch}, which is not there")
            break
        elif scratch and host.devices[name] != scratch_device:
            findings.append(f"{name} is {path}, which is not on the disks of {scratch}")
    return findings
