# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move Slurm's packages to another version without touching its daemons, for the module slurm_packages. Private."""

from __future__ import annotations

import contextlib
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import daemons, packages
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.versions import VersionError

POLICY = Path("/usr/sbin/policy-rc.d")
MARK = "hpcai.gpu_cluster slurm_packages"
LISTS = Path("/var/lib/apt/lists")
_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "UCF_FORCE_CONFFOLD": "1",
    "NEEDRESTART_SUSPEND": "1",  # Ubuntu's hook after dpkg: it would restart slurmd
    "APT_LISTCHANGES_FRONTEND": "none",
}
_APT = ["apt-get", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
_KEEP = ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
_CHECK = ["apt-get", "check"]
_REPAIR = ["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"]


class PackageError(Exception):
    """Packages cannot become what is wanted; the text is fit for the user."""


class Apt:
    """Slurm's packages on this host."""

    def __init__(self, names: list[str], version: str, lists_max_age: int, timeout: float, refresh: bool) -> None:
        self.names, self.wanted, self.timeout = names, version, timeout
        self.lists_max_age = lists_max_age if refresh else -1

    def look(self) -> packages.Host:
        """Plan from what is installed, asking mirrors only when that does not do."""
        if not self.wanted:
            raise VersionError("slurm_version is empty: name the version to have, such as 26.05 or 26.05.5-1")
        here = packages.installed(self._ask(packages.SHOW))
        names = sorted({*self.names, *here})
        there = packages.offered(self._ask(["apt-cache", "madison", *names]))
        try:
            found = packages.host(self.wanted, self.names, here, there)
            if not found.changes or not self._refresh():
                return found
        except VersionError:
            if not self._refresh():
                raise
        return packages.host(
            self.wanted, self.names, here, packages.offered(self._ask(["apt-cache", "madison", *names]))
        )

    def effect(self, plan: packages.Host, may_go: t.Container[str] = ()) -> tuple[list[dict[str, str]], list[str]]:
        """What apt would do, packages of others included."""
        answer = self._run([*_APT, "--simulate", "install", *plan.install])
        if answer.problem:
            raise PackageError(f"apt cannot install {' '.join(plan.install)}: {told(answer)}")
        moved, gone = packages.simulated(answer.out)
        wrong = packages.refused(gone, plan.installed, may_go)
        if wrong:
            raise PackageError(
                f"{wrong}; hold nothing of Slurm, and look at 'apt-get -s install {' '.join(plan.install)}'"
            )
        return moved, gone

    def download(self, plan: packages.Host) -> None:
        self._do([*_APT, "--download-only", "install", *plan.install])

    def install(self, plan: packages.Host) -> None:
        """Unpack and configure; no script of a package starts, stops or restarts a daemon meanwhile."""
        with no_daemons():
            self._do([*_APT, *_KEEP, "install", *plan.install])

    def interrupted(self) -> bool:
        """Whether a dpkg was killed half-way (it then refuses everything but to go on), or this module was."""
        updates = Path("/var/lib/dpkg/updates")
        ours = POLICY.exists() and MARK in POLICY.read_text(errors="replace")
        return ours or packages.unfinished(self._ask(packages.HALF)) or (updates.is_dir() and any(updates.iterdir()))

    def repair(self) -> None:
        with no_daemons():
            answer = self._run(_REPAIR)
            torn = packages.torn(self._ask(packages.HALF))
            if torn and not self._run([*_APT, *_KEEP, "--fix-broken", "--reinstall", "install", *torn]).problem:
                answer = self._run(_REPAIR)
            # What was unpacked may lack others, and what is torn, or new by now, may not fit what is still old (dpkg
            # configures it all the same): without names apt unpacks the torn ones again and brings the others along.
            if answer.problem or packages.torn(self._ask(packages.HALF)) or self._run(_CHECK).problem:
                self._do([*_APT, *_KEEP, "--fix-broken", "install"])

    def daemons(self) -> dict[str, daemons.Daemon]:
        return daemons.seen(run([*daemons.SHOW, *daemons.NAMES], 60).out)

    def _refresh(self) -> bool:
        """Fetch package lists unless they are young enough."""
        if self.lists_max_age < 0 or (LISTS.exists() and time.time() - LISTS.stat().st_mtime < self.lists_max_age):
            return False
        self._do(["apt-get", "update"])
        return True

    def _do(self, argv: list[str]) -> None:
        answer = self._run(argv)
        if answer.problem:
            raise PackageError(f"{' '.join(argv)} failed: {told(answer)}")

    def _ask(self, argv: list[str]) -> str:
        answer = self._run(argv)
        if answer.rc is None:
            raise PackageError(answer.err)
        return answer.out

    def _run(self, argv: t.Sequence[str]) -> Outcome:
        return run(argv, self.timeout, environment=_ENVIRONMENT)


@contextlib.contextmanager
def no_daemons(path: Path = POLICY) -> t.Iterator[None]:
    """Forbid package scripts to act on services (101 is "forbidden by policy"), as apt's policy_rc_d does.

    A mark in the file lets the next run take away what a killed one left, and keep what others put there.
    """
    theirs = path.with_name(f"{path.name}.hpcai-kept")
    if path.exists() and MARK not in path.read_text(errors="replace"):
        path.rename(theirs)
    path.write_text(f"#!/bin/sh\n# {MARK}\nexit 101\n")
    path.chmod(0o755)
    try:
        yield
    finally:
        if theirs.exists():
            theirs.rename(path)
        else:
            path.unlink()


def told(answer: Outcome) -> str:
    """The lines of apt that say what is wrong, errors first."""
    lines = [line.strip() for line in f"{answer.err}\n{answer.out}".splitlines() if line.strip()]
    places = [at for at, line in enumerate(lines) if line.startswith(("E:", "dpkg: error", "Err:"))]
    why = [
        at + 1 for at in places if lines[at].endswith(":") and at + 1 < len(lines)
    ]  # dpkg gives it a line of its own
    errors = [lines[at] for at in sorted({*places, *why})]
    about = [line for line in lines if "Depends:" in line or "held" in line]
    return "; ".join(dict.fromkeys([*errors, *about])) or answer.problem
