# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages of Slurm are here, which are offered, and which move together. No I/O; private to this collection."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.versions import (
    VersionError,
    fits,
    numbers,
    problem,
)

# Debian and Ubuntu call the source slurm-wlm, SchedMD's own packages (CycleCloud's too) slurm-smd.
_SOURCE = re.compile(r"slurm(-wlm|-smd)?(-\d\d[.-]\d\d)?$")
# What people and daemons start; whatever else is installed of Slurm belongs to these.
_PROGRAMS = re.compile(
    r"(slurmdbd|slurmctld|slurmd|slurm-client|slurm-smd|slurm-smd-(slurmdbd|slurmctld|slurmd|client))$"
)
SHOW = ["dpkg-query", "--show", "--showformat", "${binary:Package}|${Version}|${source:Package}|${db:Status-Abbrev}\\n"]
HALF = ["dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}|${binary:Package}\\n"]
# Half installed, unpacked, half configured, waits for triggers, has triggers to do.
_HALF = "HUFWt"
_SIMULATED = re.compile(r"(Inst|Remv) (\S+)(?: \[([^\]]*)\])?(?: \((\S+))?")


class Host(t.NamedTuple):
    """What one host has of Slurm, and what it takes to have ``version``; ``install`` are words for apt."""

    installed: dict[str, str]
    version: str
    install: list[str]
    changes: bool

    @property
    def moves(self) -> bool:
        """Return whether a package that is installed becomes another version."""
        words = (word.partition("=")[::2] for word in self.install)
        return any(self.installed.get(name, version) != version for name, version in words)


def installed(text: str) -> dict[str, str]:
    """Read dpkg's list; only what Slurm's own source package made, and what a killed dpkg left half-way as well."""
    found = {}
    for line in text.splitlines():
        name, version, source, status = line.split("|")
        if _SOURCE.match(source) and version and status[:1] in "ih" and status[1:2] in f"i{_HALF}":
            found[name.partition(":")[0]] = version
    return found


def unfinished(text: str) -> bool:
    """Read ``HALF``: whether dpkg left a package half-way."""
    return any(line[1:2] in tuple(_HALF) or line[2:3] == "R" for line in text.splitlines())


def torn(text: str) -> list[str]:
    """Read ``HALF``: which packages dpkg was killed over; it refuses them until they are unpacked again."""
    return [line.partition("|")[2] for line in text.splitlines() if line[2:3] == "R"]


def offered(text: str) -> dict[str, list[str]]:
    """Read ``apt-cache madison``: the versions of each package, the one apt prefers first."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and not cells[2].endswith("Sources") and cells[1] not in found.setdefault(cells[0], []):
            found[cells[0]].append(cells[1])
    return found


def choose(wanted: str, here: t.Mapping[str, str], there: t.Mapping[str, list[str]], names: t.Sequence[str]) -> str:
    """The one version in which all of ``names`` can be had. What is installed and fits stays what it is."""
    have = {here[name] for name in names if name in here}
    if len(have) == 1 and fits(wanted, next(iter(have))) and all(name in here for name in names):
        return next(iter(have))
    known = sorted({version for name in names for version in there.get(name, [])}, key=_order, reverse=True)
    for version in [*sorted(have, key=_order, reverse=True), *known]:
        if fits(wanted, version) and all(version in (here.get(name), *there.get(name, [])) for name in names):
            return version
    for version in sorted(have):
        if problem(version, wanted):  # says more than that there is no such package
            raise VersionError(problem(version, wanted))
    offers = ", ".join(known) or "nothing"
    raise VersionError(
        f"no version of {', '.join(names)} fits {wanted!r}: installed {', '.join(sorted(have)) or 'nothing'}, apt"
        f" offers {offers}. Add a repository that has it, and run 'apt-get update', or name another slurm_version"
    )


def _order(version: str) -> tuple[t.Any, ...]:
    """Digits count as numbers: revision 10 comes after 9."""
    return (*numbers(version), *(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", version)))


def host(wanted: str, names: t.Sequence[str], here: t.Mapping[str, str], there: t.Mapping[str, list[str]]) -> Host:
    """Plan one host: ``names`` must be there, and whatever else it has of Slurm moves along where it can.

    Without names they are the programs that are there.
    """
    names = names or [name for name in here if _PROGRAMS.match(name)]
    if not names:
        raise VersionError("there is no package of Slurm here")
    version = choose(wanted, here, there, names)
    along = sorted({*names, *(name for name in here if version in there.get(name, []) or here[name] == version)})
    changes = any(here.get(name) != version for name in along)
    return Host(dict(here), version, [f"{name}={version}" for name in along], changes)


def simulated(text: str) -> tuple[list[dict[str, str]], list[str]]:
    """Read ``apt-get --simulate``: packages that come or change, and packages that go."""
    moved, gone = [], []
    for match in _SIMULATED.finditer(text):
        word, name, before, after = match.groups()
        if word == "Remv":
            gone.append(name)
        else:
            moved.append({"name": name, "before": before or "", "after": after or ""})
    return moved, gone


def refused(gone: t.Sequence[str], here: t.Mapping[str, str], may_go: t.Container[str] = ()) -> str:
    """Say why apt's plan is not carried out: it takes away what is not Slurm's, and not made anew afterwards either."""
    names = [name.partition(":")[0] for name in gone]
    strange = [name for name in names if name not in here and name not in may_go]
    return f"apt would remove {', '.join(strange)}, which is not a part of Slurm" if strange else ""
