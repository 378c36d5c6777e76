# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CycleCloud's package: which version to have, and how to get there. Decisions are pure; private."""

from __future__ import annotations

import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import Cli, CliError, told

LISTS = Path("/var/lib/apt/lists")
_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "APT_LISTCHANGES_FRONTEND": "none"}
_APT = ["apt-get", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
_KEEP = ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
_SHOW = ["dpkg-query", "--show", "--showformat", "${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\\n"]


class NotOffered(CliError):
    """The package lists do not have the version; newer lists may."""


class ServerPackage(t.NamedTuple):
    """What dpkg says; ``whole`` is false for one that was killed half-way."""

    version: str
    held: bool
    whole: bool


class PackagePlan(t.NamedTuple):
    """``install`` are words for apt; ``upgrade`` tells that a server of an earlier version is there."""

    version: str
    install: list[str]
    upgrade: bool
    hold: bool
    repair: bool

    @property
    def changed(self) -> bool:
        return bool(self.install or self.hold or self.repair)


def installed(text: str) -> dict[str, ServerPackage]:
    """Read dpkg's list; what was removed is not there."""
    rows = [line.split() for line in text.splitlines()]
    return {
        row[0]: ServerPackage(row[1], row[2] == "hold", row[3] == "installed")
        for row in rows
        if len(row) == 4 and row[3] not in ("not-installed", "config-files")
    }


def offered(text: str, name: str) -> list[str]:
    """Read ``apt-cache madison``: the versions of a package."""
    cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    return [row[1] for row in cells if len(row) == 3 and row[0] == name]


def fits(wanted: str, version: str) -> bool:
    """Whether ``8.9.3-3500`` is what 8.9.3, 8.9.3-3500 or 8.9 asks for."""
    return version == wanted or version.startswith((f"{wanted}-", f"{wanted}."))


def numbers(version: str) -> tuple[int, ...]:
    """For comparing CycleCloud's versions, which are numbers all through."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def choose(name: str, wanted: str, here: ServerPackage | None, there: t.Sequence[str]) -> str:
    """The version to have; what is installed and fits stays, and nothing goes back."""
    if here and fits(wanted, here.version):
        return here.version
    found = sorted((version for version in there if fits(wanted, version)), key=numbers)
    if here and numbers(here.version) > (numbers(found[-1]) if found else numbers(wanted)):
        raise CliError(
            f"{name} {here.version} is installed, {wanted} is wanted: CycleCloud cannot go back, for its data store was"
            f" upgraded. Ask for {here.version}, or restore a backup on a new server"
        )
    if not found:
        raise NotOffered(
            f"{name} {wanted} is not offered; the repository has {', '.join(there) or 'nothing of it'}. Check"
            " cyclecloud_server_version and cyclecloud_server_repository_url"
        )
    return found[-1]


def plan(
    name: str, wanted: str, beside: t.Sequence[str], here: t.Mapping[str, ServerPackage], there: list[str]
) -> PackagePlan:
    """Decide what apt has to do."""
    mine = here.get(name)
    version = choose(name, wanted, mine, there)
    missing = [one for one in beside if one not in here or not here[one].whole]
    move = mine is None or mine.version != version
    install = [*missing, *([f"{name}={version}"] if move else [])]
    repair = any(not here[one].whole for one in (name, *beside) if one in here)
    return PackagePlan(version, install, bool(move and mine), bool(move or not (mine and mine.held)), repair)


class ServerApt:
    """apt and dpkg on this host."""

    def __init__(self, cli: Cli, params: t.Mapping[str, t.Any]) -> None:
        self.cli, self.params = cli, params

    def look(self) -> tuple[PackagePlan, str]:
        """Plan, fetching package lists only where what is here does not do; and what there is now."""
        found = self._look()
        now = installed(self._run(_SHOW).out).get(self.params["name"])
        return found, f"{self.params['name']} {now.version}{' held' if now.held else ''}" if now else ""

    def _look(self) -> PackagePlan:
        try:
            found = self._plan()
            if not found.install or not self._refresh(found):
                return found
        except NotOffered:
            if self.params["check"]:  # The repository may be an earlier task's, and lists are not fetched now.
                return self._unseen()
            if not self._refresh(None):
                raise
        return self._plan()

    def _unseen(self) -> PackagePlan:
        """What an install would be of a version that only newer package lists know."""
        name, wanted = self.params["name"], self.params["version"]
        here = installed(self._run(_SHOW).out)
        missing = [one for one in self.params["beside"] if one not in here]
        return PackagePlan(wanted, [*missing, f"{name}={wanted}"], name in here, True, False)

    def _plan(self) -> PackagePlan:
        name = self.params["name"]
        here = installed(self._run(_SHOW).out)
        there = offered(self._run(["apt-cache", "madison", name]).out, name)
        return plan(name, self.params["version"], self.params["beside"], here, there)

    def _refresh(self, found: PackagePlan | None) -> bool:
        """Fetch lists unless they are young; always when the package is not offered."""
        age = self.params["lists_max_age"]
        if age < 0 or self.params["check"]:
            return False
        young = LISTS.exists() and time.time() - LISTS.stat().st_mtime < age
        if young and found is not None:
            return False
        self._do(["apt-get", "-o", "DPkg::Lock::Timeout=300", "update"])
        return True

    def carry_out(self, todo: PackagePlan, startup: int) -> None:
        """Move the package; a server that runs is stopped before and answers again after."""
        name = self.params["name"]
        if todo.repair:
            self._do(["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"])
        if todo.upgrade and self.cli.installed():
            self.cli.stop()
        if todo.install:
            self._do([*_APT, *_KEEP, "--allow-change-held-packages", "install", *todo.install])
        if todo.hold:
            self._do(["apt-mark", "hold", name])
        if todo.upgrade:
            self.cli.server("start", "--wait", timeout=startup)
            self.cli.server("await_startup", timeout=startup)

    def _do(self, argv: list[str]) -> None:
        done = self._run(argv)
        if done.problem:
            raise CliError(f"'{' '.join(argv)}' failed: {told(done)}")

    def _run(self, argv: list[str]) -> _process.Outcome:
        return _process.run(argv, self.params["timeout"], None, _ENVIRONMENT)
