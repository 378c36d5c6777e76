# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which bundles of a shared directory nobody can ask for any more. Private."""

from __future__ import annotations

import contextlib
import os
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import pack

_BUNDLE = re.compile(rf"{pack.NAME}-[0-9a-f]{{{pack.SHORT}}}\.tar\.gz")


class Wish(t.NamedTuple):
    """The bundle of today, how many before it stay, and for how many seconds any does after it was replaced."""

    current: str
    keep: int
    grace: float
    named: t.Collection[str] = ()


def found(folder: Path) -> dict[str, float]:
    """Return the bundles of a directory, each with when it became the one of its day; nothing else is looked at."""
    if not folder.is_dir():
        return {}
    listed = [entry for entry in os.scandir(folder) if _BUNDLE.fullmatch(entry.name) and entry.is_file()]
    return {entry.name: entry.stat().st_mtime for entry in listed}


def named(files: t.Iterable[Path]) -> set[str]:
    """Return the bundles that user-data names; a file that is not there names none."""
    told: set[str] = set()
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            told.update(_BUNDLE.findall(path.read_text(encoding="utf-8", errors="replace")))
    return told


def returned(times: t.Mapping[str, float], current: str) -> bool:
    """Say whether an older bundle is in use again: then it has to become the newest, for the order to be true."""
    return current in times and any(times[name] > times[current] for name in times)


def plan(times: t.Mapping[str, float], wish: Wish, now: float) -> list[str]:
    """Return what may go.

    A node copies its bundle when it boots for the first time, and is told which by the user-data that it was created
    with. So what counts is when a bundle was replaced: that is when the next one came.
    """
    if wish.current not in times:
        return []
    newest = {**times, wish.current: now} if returned(times, wish.current) else dict(times)
    order = sorted(newest, key=lambda name: (name != wish.current, -newest[name]))
    going = []
    for place, name in enumerate(order[1:], 1):
        replaced = newest[order[place - 1]]
        if place > wish.keep and name not in wish.named and now - replaced > wish.grace:
            going.append(name)
    return going


def bring(folder: Path, wish: Wish, now: float, check: bool) -> tuple[bool, list[str], list[str]]:
    """Remove what may go; return whether anything was to be done, what went and what stays."""
    times = found(folder)
    going, again = plan(times, wish, now), returned(times, wish.current)
    if again and not check:
        os.utime(folder / wish.current, (now, now))
    for name in [] if check else going:
        with contextlib.suppress(FileNotFoundError):  # another controller did it
            (folder / name).unlink()
    return bool(going or again), going, sorted(set(times) - set(going))
