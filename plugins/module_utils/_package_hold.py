# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which installed packages to hold and which to let go: dpkg's list to a plan. Pure, private."""

from __future__ import annotations

import fnmatch
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import MARK

# After 20auto-upgrades and whatever else is numbered: apt takes the last word.
APT = "/etc/apt/apt.conf.d/99hpcai-no-automatic-upgrades"
PERIODIC = f'// {MARK}, role node_tuning. Changes made here are lost.\nAPT::Periodic::Enable "0";\n'
SHOW = ["dpkg-query", "--show", "--showformat", "${binary:Package} ${db:Status-Want} ${db:Status-Status}\\n"]


class Plan(t.NamedTuple):
    """``held`` are all packages that are held because of us."""

    hold: list[str]
    release: list[str]
    held: list[str]

    def difference(self) -> list[dict[str, str]]:
        """For Ansible: one line per package."""
        if not self.hold and not self.release:
            return []
        before, after = "".join(f"{one}\n" for one in self.release), "".join(f"{one}\n" for one in self.hold)
        header = {"before_header": "packages held", "after_header": "packages held"}
        return [{**header, "before": before, "after": after}]


def installed(text: str) -> dict[str, bool]:
    """Return for every package that is really there whether it is held."""
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: row[1] == "hold" for row in rows if len(row) == 3 and row[2] == "installed"}


def matching(names: t.Iterable[str], patterns: t.Sequence[str]) -> list[str]:
    """Return the names that fit a pattern, with or without their architecture."""
    return sorted(
        name
        for name in names
        if any(fnmatch.fnmatchcase(one, pattern) for pattern in patterns for one in (name, name.partition(":")[0]))
    )


def plan(now: t.Mapping[str, bool], patterns: t.Sequence[str], earlier: t.Sequence[str]) -> Plan:
    """Decide; ``earlier`` are the packages that we held before. What an administrator holds is never ours.

    A package of ours that somebody released in the meantime is held again while it is wanted, and forgotten after.
    """
    wanted = matching(now, patterns)
    hold = [name for name in wanted if not now[name]]
    ours = sorted({*hold, *(name for name in wanted if name in earlier)})
    release = [name for name in sorted(earlier) if name not in wanted and now.get(name, False)]
    return Plan(hold, release, ours)
