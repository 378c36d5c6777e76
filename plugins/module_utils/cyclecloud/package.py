# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CycleCloud's package: which version to install, and the apt commands that do it."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._packages import UPDATE, lists_are_young
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import Cli, CliError, failure_text

_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "APT_LISTCHANGES_FRONTEND": "none"}
_APT = ["apt-get", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
_KEEP = ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
_SHOW = ["dpkg-query", "--show", "--showformat", "${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\\n"]


class NotOffered(CliError):
    """The package lists do not have the version; newer lists may."""


class ServerPackage(t.NamedTuple):
    """A package as dpkg lists it; ``whole`` is false where an installation was interrupted."""

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
    """Return the installed packages of dpkg's list by name."""
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


def fits(requested: str, version: str) -> bool:
    """Whether ``8.9.3-3500`` is what 8.9.3, 8.9.3-3500 or 8.9 asks for."""
    return version == requested or version.startswith((f"{requested}-", f"{requested}."))


def numbers(version: str) -> tuple[int, ...]:
    """Return a sort key for CycleCloud's versions, which consist of numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def choose(name: str, requested: str, current: ServerPackage | None, versions: t.Sequence[str]) -> str:
    """Return the version to install; an installed version that fits stays, and a downgrade is refused."""
    if current and fits(requested, current.version):
        return current.version
    fitting = sorted((version for version in versions if fits(requested, version)), key=numbers)
    if current and numbers(current.version) > (numbers(fitting[-1]) if fitting else numbers(requested)):
        raise CliError(
            f"{name} {current.version} is installed, {requested} is wanted: CycleCloud cannot go back, for its data"
            f" store was upgraded. Ask for {current.version}, or restore a backup on a new server"
        )
    if not fitting:
        raise NotOffered(
            f"{name} {requested} is not offered; the repository has {', '.join(versions) or 'nothing of it'}. Check"
            " cyclecloud_server_version and cyclecloud_server_repository_url"
        )
    return fitting[-1]


def plan(
    name: str, requested: str, beside: t.Sequence[str], packages: t.Mapping[str, ServerPackage], versions: list[str]
) -> PackagePlan:
    """Decide what apt has to do."""
    current = packages.get(name)
    version = choose(name, requested, current, versions)
    missing = [other for other in beside if other not in packages or not packages[other].whole]
    move = current is None or current.version != version
    install = [*missing, *([f"{name}={version}"] if move else [])]
    repair = any(not packages[other].whole for other in (name, *beside) if other in packages)
    return PackagePlan(version, install, bool(move and current), bool(move or not (current and current.held)), repair)


class ServerApt:
    """apt and dpkg on this host."""

    def __init__(self, cli: Cli, params: t.Mapping[str, t.Any]) -> None:
        self.cli, self.params = cli, params

    def look(self) -> tuple[PackagePlan, str]:
        """Return the plan and the installed version as text; package lists are fetched only where the plan needs it."""
        todo = self._look()
        current = installed(self._run(_SHOW).out).get(self.params["name"])
        return todo, f"{self.params['name']} {current.version}{' held' if current.held else ''}" if current else ""

    def _look(self) -> PackagePlan:
        try:
            todo = self._plan()
            if not todo.install or not self._refresh(todo):
                return todo
        except NotOffered:
            if self.params["check"]:  # The repository may be an earlier task's, and lists are not fetched now.
                return self._unseen()
            if not self._refresh(None):
                raise
        return self._plan()

    def _unseen(self) -> PackagePlan:
        """Return the plan for a version that only newer package lists have."""
        name, requested = self.params["name"], self.params["version"]
        packages = installed(self._run(_SHOW).out)
        missing = [other for other in self.params["beside"] if other not in packages]
        return PackagePlan(requested, [*missing, f"{name}={requested}"], name in packages, True, False)

    def _plan(self) -> PackagePlan:
        name = self.params["name"]
        packages = installed(self._run(_SHOW).out)
        versions = offered(self._run(["apt-cache", "madison", name]).out, name)
        return plan(name, self.params["version"], self.params["beside"], packages, versions)

    def _refresh(self, todo: PackagePlan | None) -> bool:
        """Fetch package lists unless they are young; always when the package is not offered."""
        age = self.params["lists_max_age"]
        if age < 0 or self.params["check"]:
            return False
        if todo is not None and lists_are_young(age):
            return False
        self._do(UPDATE)
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
        outcome = self._run(argv)
        if outcome.problem:
            raise CliError(f"'{' '.join(argv)}' failed: {failure_text(outcome)}")

    def _run(self, argv: list[str]) -> _process.Outcome:
        return _process.run(argv, self.params["timeout"], None, _ENVIRONMENT)
