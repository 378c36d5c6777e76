# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's releases, and which of them can be upgraded to which. No I/O; private to this collection.

Source of the rule: Slurm's upgrade guide (doc/html/upgrades.shtml, "Compatibility Window"), the release notes of 22.05
to 26.05, and SLURM_MIN_PROTOCOL_VERSION in src/common/slurm_protocol_common.h of those releases, which all agree: a
release reads the messages, state files and database of the two releases before it, 24.11 and later of three.
"""

from __future__ import annotations

import re
import typing as t

Release = t.Tuple[int, int]

# In their order, until the rhythm became May and November with 24.05.
_EARLY: list[Release] = [(18, 8), (19, 5), (20, 2), (20, 11), (21, 8), (22, 5), (23, 2), (23, 11), (24, 5), (24, 11)]
_THREE_BACK: Release = (24, 11)
_LAST: Release = (40, 11)
_FORM = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


class VersionError(ValueError):
    """A text is no version of Slurm, or an upgrade is not possible; the text is fit for the user."""


def upstream(version: str) -> str:
    """``26.05.5`` of the package version ``1:26.05.5-1+b2``."""
    return version.rpartition(":")[2].partition("-")[0]


def numbers(version: str) -> tuple[int, int, int]:
    """``26.05.5-1`` as (26, 5, 5); what comes before the release proper (0rc1) counts as 0."""
    match = _FORM.match(upstream(version))
    if not match:
        raise VersionError(f"{version!r} is not a version of Slurm such as 26.05 or 26.05.5")
    return int(match.group(1)), int(match.group(2)), int(match.group(3) or 0)


def release(version: str) -> Release:
    """``26.05.5-1`` belongs to release (26, 5)."""
    return numbers(version)[:2]


def named(one: Release) -> str:
    """(26, 5) as Slurm writes it: ``26.05``."""
    return f"{one[0]}.{one[1]:02d}"


def releases() -> list[Release]:
    """Every release in its order, those of the coming years included."""
    later = [(year, month) for year in range(_THREE_BACK[0] + 1, _LAST[0] + 1) for month in (5, 11)]
    return [*_EARLY, *later]


def accepted(target: Release) -> list[Release]:
    """The earlier releases whose messages, state files and database ``target`` takes over, newest first."""
    known = releases()
    if target not in known:
        raise VersionError(
            f"{named(target)} is not a release of Slurm; there are 24.05, 24.11, 25.05, 25.11, 26.05 ..."
        )
    back = 3 if target >= _THREE_BACK else 2
    place = known.index(target)
    return known[max(0, place - back) : place][::-1]


def way(have: Release, target: Release) -> list[Release]:
    """The releases to go through, as few as possible, the target last; empty when no way is known."""
    steps, at = [], have
    while at < target:
        ahead = [one for one in releases() if at < one <= target and at in accepted(one)]
        if not ahead:
            return []
        at = ahead[-1]
        steps.append(at)
    return steps


def problem(have: str, target: str) -> str:
    """Say why a Slurm of version ``have`` cannot become ``target``; empty when it can."""
    if numbers(target) < numbers(have):
        return (
            f"{upstream(have)} is newer than {upstream(target)}: Slurm cannot go back once a daemon has started, for"
            " the older one does not understand the newer one's state files and database"
        )
    now, then = release(have), release(target)
    if now == then or now in accepted(then):
        return ""
    takes = ", ".join(named(one) for one in accepted(then))
    steps = " -> ".join(named(one) for one in [now, *way(now, then)])
    advice = f"; go {steps}, and let running jobs end at each step" if way(now, then) else ""
    return (
        f"{named(then)} takes over from {takes} and not from {upstream(have)}: it would end jobs and lose accounting"
        f"{advice}"
    )


def fits(wanted: str, version: str) -> bool:
    """Whether a package version is what ``slurm_version`` names: all of it, its upstream part, or its release."""
    return version == wanted or f"{upstream(version)}.".startswith(f"{wanted}.")
