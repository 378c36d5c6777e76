# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of apt and dpkg: whether the lists are young, and the holds that we set: which are wanted, which ours."""

from __future__ import annotations

import fnmatch
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import MARK

# The lists of what repositories offer.


UPDATE = ["apt-get", "update", "-o", "DPkg::Lock::Timeout=300"]


def lists_are_young(max_age: float, root: str | Path = "/") -> bool:
    """Say whether the lists are younger than so many seconds, and than all files that name repositories.

    What a repository offers that was added a minute ago is in no list of this morning.
    """
    lists, apt = Path(root, "var/lib/apt/lists"), Path(root, "etc/apt")
    if not lists.exists():
        return False
    made = lists.stat().st_mtime
    sources = [path for path in (apt / "sources.list", *(apt / "sources.list.d").glob("*")) if path.exists()]
    return time.time() - made < max_age and all(path.stat().st_mtime < made for path in sources)


# Which installed packages to hold and which to let go: dpkg's list to a plan. Pure.


# After 20auto-upgrades and whatever else is numbered: apt takes the last word.
APT = "/etc/apt/apt.conf.d/99hpcai-no-automatic-upgrades"
PERIODIC = f'// {MARK}, role node_tuning. Changes made here are lost.\nAPT::Periodic::Enable "0";\n'
SHOW = ["dpkg-query", "--show", "--showformat", "${binary:Package} ${db:Status-Want} ${db:Status-Status}\\n"]


class HoldPlan(t.NamedTuple):
    """``held`` are all packages that are held because of us."""

    hold: list[str]
    release: list[str]
    held: list[str]

    def difference(self) -> list[dict[str, str]]:
        """For Ansible: one line per package."""
        if not self.hold and not self.release:
            return []
        before, after = (
            "".join(f"{package}\n" for package in self.release),
            "".join(f"{package}\n" for package in self.hold),
        )
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
        if any(
            fnmatch.fnmatchcase(spelling, pattern)
            for pattern in patterns
            for spelling in (name, name.partition(":")[0])
        )
    )


def plan(now: t.Mapping[str, bool], patterns: t.Sequence[str], earlier: t.Sequence[str]) -> HoldPlan:
    """Decide; ``earlier`` are the packages that we held before. What an administrator holds is never ours.

    A package of ours that somebody released in the meantime is held again while it is wanted, and forgotten after.
    """
    wanted = matching(now, patterns)
    hold = [name for name in wanted if not now[name]]
    ours = sorted({*hold, *(name for name in wanted if name in earlier)})
    release = [name for name in sorted(earlier) if name not in wanted and now.get(name, False)]
    return HoldPlan(hold, release, ours)


# What the module package_hold does with its options.


class HoldModule(_owned_files.FileModule, t.Protocol):
    """What is needed of AnsibleModule."""

    def get_bin_path(self, arg: str) -> str | None: ...

    def run_command(self, args: list[str], check_rc: bool = False) -> tuple[int, str, str]: ...


def perform(module: HoldModule, params: t.Mapping[str, t.Any]) -> _owned_files.Json:
    """Hold and release what has to be."""
    if not module.get_bin_path("dpkg-query"):
        text = "there is no dpkg here: packages and automatic upgrades are left as they are"
        return {"changed": False, "findings": _owned_files.facts([_owned_files.ForeignFile("warn", "packages", text)])}
    meant = not params["only_on"] or any(Path(path).exists() for path in params["only_on"])
    wanted = params["state"] == "present" and meant
    record = _owned_files.load(params["record"])
    now = installed(module.run_command(SHOW, check_rc=True)[1])
    todo = plan(now, params["packages"] if wanted else [], record.get("held", []))
    off = PERIODIC if wanted and not params["automatic_upgrades"] else None
    changes, findings = _owned_files.plan({APT: off})
    if not module.check_mode:
        carry_out(module, params["record"], todo, changes, record)
    diffs = [*_owned_files.differences(changes), *todo.difference()]
    changed = bool(changes or todo.hold or todo.release)
    return {
        "changed": changed,
        "held": todo.hold,
        "released": todo.release,
        "findings": _owned_files.facts(findings),
        "diff": diffs,
    }


def carry_out(
    module: HoldModule, path: str, todo: HoldPlan, changes: list[_owned_files.FileChange], record: _owned_files.Json
) -> None:
    """The record tells what is held, also when dpkg refuses because somebody else is at work."""
    record["held"] = sorted({*todo.held, *todo.release})
    _owned_files.note_directories(changes, record)
    _owned_files.save(path, record)
    _owned_files.apply(module, changes, record, {})
    for word, names in (("hold", todo.hold), ("unhold", todo.release)):
        if names:
            module.run_command(["apt-mark", word, *names], check_rc=True)
    record["held"] = todo.held
    _owned_files.save(path, record)
