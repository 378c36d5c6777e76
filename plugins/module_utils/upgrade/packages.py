# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's packages: which are here, which move together, and moving them without touching daemons."""

from __future__ import annotations

import contextlib
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.plan import VersionError, fits, numbers, problem

# Which packages of Slurm are here, which are offered, and which move together. No I/O; private to this collection.


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


class PackageHost(t.NamedTuple):
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


def half_installed(text: str) -> list[str]:
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


def host(
    wanted: str, names: t.Sequence[str], here: t.Mapping[str, str], there: t.Mapping[str, list[str]]
) -> PackageHost:
    """Plan one host: ``names`` must be there, and whatever else it has of Slurm moves along where it can.

    Without names they are the programs that are there.
    """
    names = names or [name for name in here if _PROGRAMS.match(name)]
    if not names:
        raise VersionError("there is no package of Slurm here")
    version = choose(wanted, here, there, names)
    along = sorted({*names, *(name for name in here if version in there.get(name, []) or here[name] == version)})
    changes = any(here.get(name) != version for name in along)
    return PackageHost(dict(here), version, [f"{name}={version}" for name in along], changes)


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


# Move Slurm's packages to another version without touching its daemons, for the module slurm_packages.


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


class SlurmApt:
    """Slurm's packages on this host."""

    def __init__(self, names: list[str], version: str, lists_max_age: int, timeout: float, refresh: bool) -> None:
        self.names, self.wanted, self.timeout = names, version, timeout
        self.lists_max_age = lists_max_age if refresh else -1

    def look(self) -> PackageHost:
        """Plan from what is installed, asking mirrors only when that does not do."""
        if not self.wanted:
            raise VersionError("slurm_version is empty: name the version to have, such as 26.05 or 26.05.5-1")
        here = installed(self._ask(SHOW))
        names = sorted({*self.names, *here})
        there = offered(self._ask(["apt-cache", "madison", *names]))
        try:
            found = host(self.wanted, self.names, here, there)
            if not found.changes or not self._refresh():
                return found
        except VersionError:
            if not self._refresh():
                raise
        return host(self.wanted, self.names, here, offered(self._ask(["apt-cache", "madison", *names])))

    def effect(self, plan: PackageHost, may_go: t.Container[str] = ()) -> tuple[list[dict[str, str]], list[str]]:
        """What apt would do, packages of others included."""
        answer = self._run([*_APT, "--simulate", "install", *plan.install])
        if answer.problem:
            raise PackageError(f"apt cannot install {' '.join(plan.install)}: {told(answer)}")
        moved, gone = simulated(answer.out)
        wrong = refused(gone, plan.installed, may_go)
        if wrong:
            raise PackageError(
                f"{wrong}; hold nothing of Slurm, and look at 'apt-get -s install {' '.join(plan.install)}'"
            )
        return moved, gone

    def download(self, plan: PackageHost) -> None:
        self._do([*_APT, "--download-only", "install", *plan.install])

    def install(self, plan: PackageHost) -> None:
        """Unpack and configure; no script of a package starts, stops or restarts a daemon meanwhile."""
        with no_daemons():
            self._do([*_APT, *_KEEP, "install", *plan.install])

    def interrupted(self) -> bool:
        """Whether a dpkg was killed half-way (it then refuses everything but to go on), or this module was."""
        updates = Path("/var/lib/dpkg/updates")
        ours = POLICY.exists() and MARK in POLICY.read_text(errors="replace")
        return ours or unfinished(self._ask(HALF)) or (updates.is_dir() and any(updates.iterdir()))

    def repair(self) -> None:
        with no_daemons():
            answer = self._run(_REPAIR)
            torn = half_installed(self._ask(HALF))
            if torn and not self._run([*_APT, *_KEEP, "--fix-broken", "--reinstall", "install", *torn]).problem:
                answer = self._run(_REPAIR)
            # What was unpacked may lack others, and what is torn, or new by now, may not fit what is still old (dpkg
            # configures it all the same): without names apt unpacks the torn ones again and brings the others along.
            if answer.problem or half_installed(self._ask(HALF)) or self._run(_CHECK).problem:
                self._do([*_APT, *_KEEP, "--fix-broken", "install"])

    def daemons(self) -> dict[str, state.Daemon]:
        return state.seen(run([*state.SHOW, *state.NAMES], 60).out)

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


# What the module slurm_packages does, step by step.


SPEC: dict[str, t.Any] = {
    "packages": {"type": "list", "elements": "str", "default": []},
    "version": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["planned", "downloaded", "present"], "default": "present"},
    "may_go": {"type": "list", "elements": "str", "default": []},
    "under_daemons": {"type": "bool", "default": False},
    "lists_max_age": {"type": "int", "default": 86400},
    "timeout": {"type": "float", "default": 3600},
}
Json = t.Dict[str, t.Any]


def bring(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Return what the module returns; a plan that cannot be is an answer too."""
    worker = SlurmApt(params["packages"], params["version"], params["lists_max_age"], params["timeout"], not check_mode)
    result: Json = {"changed": False, "problem": "", "version": "", "interrupted": False}
    result.update(installed={}, install=[], moved=[], removed=[])
    try:
        _bring(worker, params, check_mode, result)
    except (PackageError, VersionError, OSError) as exc:
        if params["state"] != "planned":
            raise PackageError(str(exc)) from exc
        result["problem"] = str(exc)
    return result


def _bring(worker: SlurmApt, params: t.Mapping[str, t.Any], check_mode: bool, result: Json) -> None:
    state, daemons = params["state"], worker.daemons()
    result["daemons"] = {name: one._asdict() for name, one in daemons.items()}
    broken = result["interrupted"] = worker.interrupted()
    plan = worker.look()
    result.update(version=plan.version, installed=plan.installed, install=plan.install)
    if not plan.changes and not broken:
        return
    if broken or plan.moves:  # what only comes along, in the version that is here, changes nothing under a daemon
        _refuse(daemons, params, plan.version)
    if broken and state == "present" and not check_mode:
        worker.repair()
        plan, broken = worker.look(), False
    if not broken:  # apt answers nothing else until that is mended
        result["moved"], result["removed"] = worker.effect(plan, params["may_go"])
        if state != "planned" and not check_mode:
            (worker.download if state == "downloaded" else worker.install)(plan)
    result["changed"] = state == "present"
    lines = [{key: f"{one['name']} {one[key]}\n" for key in ("before", "after")} for one in result["moved"]]
    result["diff"] = [{key: "".join(line[key] for line in lines) for key in ("before", "after")}] if lines else []


def _refuse(daemons: t.Mapping[str, t.Any], params: t.Mapping[str, t.Any], version: str) -> None:
    """Fail where packages would change under a daemon."""
    running = [f"{name} {one.runs}" for name, one in daemons.items() if one.active]
    if running and not params["under_daemons"] and params["state"] == "present":
        raise PackageError(
            f"{' and '.join(running)} run here, and slurm_version asks for {version}: a running Slurm is upgraded by"
            " playbook upgrade_slurm.yml, which keeps its jobs and its accounting. Nothing was changed"
        )
