# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's packages: which are installed, which change together, and changing them without touching daemons."""

from __future__ import annotations

import contextlib
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._packages import UPDATE, lists_are_young
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.plan import VersionError, fits, numbers, problem

# Which packages of Slurm are installed, which are offered, and which change version together.


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
    """Installed packages of Slurm, and what brings them to ``version``; ``install`` are arguments for apt."""

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
    """Return the packages of Slurm's source package in dpkg's list, incompletely installed ones included."""
    versions = {}
    for line in text.splitlines():
        name, version, source, status = line.split("|")
        if _SOURCE.match(source) and version and status[:1] in "ih" and status[1:2] in f"i{_HALF}":
            versions[name.partition(":")[0]] = version
    return versions


def unfinished(text: str) -> bool:
    """Read ``HALF``: whether dpkg left a package half-way."""
    return any(line[1:2] in tuple(_HALF) or line[2:3] == "R" for line in text.splitlines())


def half_installed(text: str) -> list[str]:
    """Read ``HALF``: which packages dpkg was killed over; it refuses them until they are unpacked again."""
    return [line.partition("|")[2] for line in text.splitlines() if line[2:3] == "R"]


def offered(text: str) -> dict[str, list[str]]:
    """Read ``apt-cache madison``: the versions of each package, the one apt prefers first."""
    versions: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and not cells[2].endswith("Sources") and cells[1] not in versions.setdefault(cells[0], []):
            versions[cells[0]].append(cells[1])
    return versions


def choose(
    requested: str, packages: t.Mapping[str, str], available: t.Mapping[str, list[str]], names: t.Sequence[str]
) -> str:
    """Return the one version in which all of ``names`` are offered; an installed version that fits stays."""
    installed_versions = {packages[name] for name in names if name in packages}
    if (
        len(installed_versions) == 1
        and fits(requested, next(iter(installed_versions)))
        and all(name in packages for name in names)
    ):
        return next(iter(installed_versions))
    known = sorted({version for name in names for version in available.get(name, [])}, key=_order, reverse=True)
    for version in [*sorted(installed_versions, key=_order, reverse=True), *known]:
        if fits(requested, version) and all(
            version in (packages.get(name), *available.get(name, [])) for name in names
        ):
            return version
    for version in sorted(installed_versions):
        if problem(version, requested):  # says more than that there is no such package
            raise VersionError(problem(version, requested))
    offers = ", ".join(known) or "nothing"
    raise VersionError(
        f"no version of {', '.join(names)} fits {requested!r}: installed"
        f" {', '.join(sorted(installed_versions)) or 'nothing'}, apt offers {offers}. Add a repository that has it, and"
        " run 'apt-get update', or name another slurm_version"
    )


def _order(version: str) -> tuple[t.Any, ...]:
    """Digits count as numbers: revision 10 comes after 9."""
    return (*numbers(version), *(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", version)))


def host(
    requested: str, names: t.Sequence[str], packages: t.Mapping[str, str], available: t.Mapping[str, list[str]]
) -> PackageHost:
    """Plan one host: ``names`` get one version, and other packages of Slurm too where that version is offered.

    Without names these are the installed programs of Slurm.
    """
    names = names or [name for name in packages if _PROGRAMS.match(name)]
    if not names:
        raise VersionError("there is no package of Slurm here")
    version = choose(requested, packages, available, names)
    moving = sorted(
        {*names, *(name for name in packages if version in available.get(name, []) or packages[name] == version)}
    )
    changes = any(packages.get(name) != version for name in moving)
    return PackageHost(dict(packages), version, [f"{name}={version}" for name in moving], changes)


def simulated(text: str) -> tuple[list[dict[str, str]], list[str]]:
    """Read ``apt-get --simulate``: packages that are installed or change, and packages that are removed."""
    moved, removed = [], []
    for match in _SIMULATED.finditer(text):
        word, name, before, after = match.groups()
        if word == "Remv":
            removed.append(name)
        else:
            moved.append({"name": name, "before": before or "", "after": after or ""})
    return moved, removed


def refused(removed: t.Sequence[str], packages: t.Mapping[str, str], may_go: t.Container[str] = ()) -> str:
    """Say why apt's plan is refused: it would remove packages that are not Slurm's and not allowed to go."""
    names = [name.partition(":")[0] for name in removed]
    strange = [name for name in names if name not in packages and name not in may_go]
    return f"apt would remove {', '.join(strange)}, which is not a part of Slurm" if strange else ""


# apt, without a start, stop or restart of daemons.


POLICY = Path("/usr/sbin/policy-rc.d")
MARK = "hpcai.gpu_cluster slurm_packages"
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "UCF_FORCE_CONFFOLD": "1",
    "NEEDRESTART_SUSPEND": "1",  # Ubuntu's hook after dpkg: it would restart slurmd
    "APT_LISTCHANGES_FRONTEND": "none",
}
_APT = ["apt-get", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
KEEP = ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
_CHECK = ["apt-get", "check"]
REPAIR = ["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"]


class PackageError(Exception):
    """Packages cannot be changed as requested; the text is fit for the user."""


class SlurmApt:
    """Slurm's packages on this host."""

    def __init__(self, names: list[str], version: str, lists_max_age: int, timeout: float, refresh: bool) -> None:
        self.names, self.requested, self.timeout = names, version, timeout
        self.lists_max_age = lists_max_age if refresh else -1

    def look(self) -> PackageHost:
        """Return the plan; newer package lists are fetched only where packages would change or no version fits."""
        if not self.requested:
            raise VersionError("slurm_version is empty: name the version to have, such as 26.05 or 26.05.5-1")
        packages = installed(self._ask(SHOW))
        names = sorted({*self.names, *packages})
        available = offered(self._ask(["apt-cache", "madison", *names]))
        try:
            plan = host(self.requested, self.names, packages, available)
            if not plan.changes or not self._refresh():
                return plan
        except VersionError:
            if not self._refresh():
                raise
        return host(self.requested, self.names, packages, offered(self._ask(["apt-cache", "madison", *names])))

    def effect(self, plan: PackageHost, may_go: t.Container[str] = ()) -> tuple[list[dict[str, str]], list[str]]:
        """Return the packages that apt would change and remove, those that are not Slurm's included."""
        outcome = self._run([*_APT, "--simulate", "install", *plan.install])
        if outcome.problem:
            raise PackageError(f"apt cannot install {' '.join(plan.install)}: {apt_errors(outcome)}")
        moved, removed = simulated(outcome.out)
        refusal = refused(removed, plan.installed, may_go)
        if refusal:
            raise PackageError(
                f"{refusal}; hold nothing of Slurm, and look at 'apt-get -s install {' '.join(plan.install)}'"
            )
        return moved, removed

    def download(self, plan: PackageHost) -> None:
        self._do([*_APT, "--download-only", "install", *plan.install])

    def install(self, plan: PackageHost) -> None:
        """Unpack and configure; no script of a package starts, stops or restarts a daemon meanwhile."""
        with no_daemons():
            self._do([*_APT, *KEEP, "install", *plan.install])

    def interrupted(self) -> bool:
        """Whether a dpkg was killed half-way (it then refuses everything but to go on), or this module was."""
        updates = Path("/var/lib/dpkg/updates")
        ours = POLICY.exists() and MARK in POLICY.read_text(errors="replace")
        return ours or unfinished(self._ask(HALF)) or (updates.is_dir() and any(updates.iterdir()))

    def repair(self) -> None:
        with no_daemons():
            outcome = self._run(REPAIR)
            incomplete = half_installed(self._ask(HALF))
            if (
                incomplete
                and not self._run([*_APT, *KEEP, "--fix-broken", "--reinstall", "install", *incomplete]).problem
            ):
                outcome = self._run(REPAIR)
            # What was unpacked may lack others, and what is torn, or new by now, may not fit what is still old (dpkg
            # configures it all the same): without names apt unpacks the torn ones again and brings the others along.
            if outcome.problem or half_installed(self._ask(HALF)) or self._run(_CHECK).problem:
                self._do([*_APT, *KEEP, "--fix-broken", "install"])

    def daemons(self) -> dict[str, state.Daemon]:
        return state.daemons(run([*state.SHOW, *state.NAMES], 60).out)

    def _refresh(self) -> bool:
        """Fetch package lists unless they are young enough."""
        if self.lists_max_age < 0 or lists_are_young(self.lists_max_age):
            return False
        self._do(UPDATE)
        return True

    def _do(self, argv: list[str]) -> None:
        answer = self._run(argv)
        if answer.problem:
            raise PackageError(f"{' '.join(argv)} failed: {apt_errors(answer)}")

    def _ask(self, argv: list[str]) -> str:
        answer = self._run(argv)
        if answer.rc is None:
            raise PackageError(answer.err)
        return answer.out

    def _run(self, argv: t.Sequence[str]) -> Outcome:
        return run(argv, self.timeout, environment=ENVIRONMENT)


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


def apt_errors(outcome: Outcome) -> str:
    """Return the lines of apt's output that say what is wrong, errors first."""
    lines = [line.strip() for line in f"{outcome.err}\n{outcome.out}".splitlines() if line.strip()]
    positions = [at for at, line in enumerate(lines) if line.startswith(("E:", "dpkg: error", "Err:"))]
    why = [
        at + 1 for at in positions if lines[at].endswith(":") and at + 1 < len(lines)
    ]  # dpkg gives it a line of its own
    errors = [lines[at] for at in sorted({*positions, *why})]
    about = [line for line in lines if "Depends:" in line or "held" in line]
    return "; ".join(dict.fromkeys([*errors, *about])) or outcome.problem


# The module slurm_packages.


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


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Return the module's result; with state ``planned`` a plan that is impossible is a result as well."""
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
    result["daemons"] = {name: entry._asdict() for name, entry in daemons.items()}
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
    lines = [{key: f"{entry['name']} {entry[key]}\n" for key in ("before", "after")} for entry in result["moved"]]
    result["diff"] = [{key: "".join(line[key] for line in lines) for key in ("before", "after")}] if lines else []


def _refuse(daemons: t.Mapping[str, t.Any], params: t.Mapping[str, t.Any], version: str) -> None:
    """Fail where packages would change under a daemon."""
    running = [f"{name} {daemon.runs}" for name, daemon in daemons.items() if daemon.active]
    if running and not params["under_daemons"] and params["state"] == "present":
        raise PackageError(
            f"{' and '.join(running)} run here, and slurm_version asks for {version}: a running Slurm is upgraded by"
            " playbook upgrade_slurm.yml, which keeps its jobs and its accounting. Nothing was changed"
        )
