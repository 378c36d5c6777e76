# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The upgrade of a cluster: Slurm's releases, the plan for all hosts, and whether jobs were lost. No I/O."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import (
    Release,
    VersionError,
    numbers,
    release,
    upstream,
)

# Slurm's releases, and which of them can be upgraded to which.


# In their order, until the rhythm became May and November with 24.05.
_EARLY: list[Release] = [(18, 8), (19, 5), (20, 2), (20, 11), (21, 8), (22, 5), (23, 2), (23, 11), (24, 5), (24, 11)]
_THREE_BACK: Release = (24, 11)
_LAST: Release = (40, 11)


def named(release: Release) -> str:
    """Return a release as Slurm writes it: ``26.05`` for (26, 5)."""
    return f"{release[0]}.{release[1]:02d}"


def releases() -> list[Release]:
    """Return all releases in their order, those of the coming years included."""
    later = [(year, month) for year in range(_THREE_BACK[0] + 1, _LAST[0] + 1) for month in (5, 11)]
    return [*_EARLY, *later]


def accepted(target: Release) -> list[Release]:
    """Return the earlier releases whose messages, state files and database ``target`` takes over, newest first."""
    known = releases()
    if target not in known:
        raise VersionError(
            f"{named(target)} is not a release of Slurm; there are 24.05, 24.11, 25.05, 25.11, 26.05 ..."
        )
    back = 3 if target >= _THREE_BACK else 2
    position = known.index(target)
    return known[max(0, position - back) : position][::-1]


def way(have: Release, target: Release) -> list[Release]:
    """Return the releases to go through, as few as possible, the target last; empty when no way is known."""
    steps, reached = [], have
    while reached < target:
        ahead = [
            candidate for candidate in releases() if reached < candidate <= target and reached in accepted(candidate)
        ]
        if not ahead:
            return []
        reached = ahead[-1]
        steps.append(reached)
    return steps


def problem(have: str, target: str) -> str:
    """Say why a Slurm of version ``have`` cannot become ``target``; empty when it can."""
    if numbers(target) < numbers(have):
        return (
            f"{upstream(have)} is newer than {upstream(target)}: Slurm cannot go back once a daemon has started, for"
            " the older one does not understand the newer one's state files and database"
        )
    current, requested = release(have), release(target)
    if current == requested or current in accepted(requested):
        return ""
    takes = ", ".join(named(entry) for entry in accepted(requested))
    steps = " -> ".join(named(entry) for entry in [current, *way(current, requested)])
    advice = f"; go {steps}, and let running jobs end at each step" if way(current, requested) else ""
    return (
        f"{named(requested)} takes over from {takes} and not from {upstream(have)}: it would end jobs and lose"
        f" accounting{advice}"
    )


def fits(requested: str, version: str) -> bool:
    """Whether a package version is what ``slurm_version`` names: all of it, its upstream part, or its release."""
    return version == requested or f"{upstream(version)}.".startswith(f"{requested}.")


# The plan for a whole cluster.


ROLES = ("database", "controller", "compute", "login")
DAEMONS = {"database": "slurmdbd", "controller": "slurmctld", "compute": "slurmd"}
ObservedHost = t.Mapping[str, t.Any]


def plan(groups: t.Mapping[str, t.Sequence[str]], observed: t.Mapping[str, ObservedHost]) -> dict[str, t.Any]:
    """Plan the whole cluster; ``observed`` has the result of slurm_packages for every host that answered."""
    hosts = list(dict.fromkeys(host for role in ROLES for host in groups.get(role, [])))
    silent = [host for host in hosts if host not in observed]
    findings = [
        f"{host} ({DAEMONS[role]}) does not answer, and the others cannot be upgraded without it"
        for role in ("database", "controller")
        for host in groups.get(role, [])
        if host in silent
    ]
    findings += _together(
        {host: observed[host]["problem"] for host in hosts if host in observed and observed[host]["problem"]}
    )
    version, strange = _one_version({host: observed[host]["version"] for host in hosts if host in observed})
    findings += strange
    if version:
        findings += _hops(hosts, observed, version)
    roles = {host: [role for role in ROLES if host in groups.get(role, [])] for host in hosts}
    todo = {host: _todo(roles[host], observed[host], version) for host in hosts if host in observed and version}
    return {
        "version": version,
        "upstream": upstream(version),
        "findings": findings,
        "silent": silent,
        "todo": [host for host in todo if todo[host]],
        "report": [_line(host, roles[host], observed.get(host), todo.get(host, ""), version) for host in hosts],
        "others": sorted({_other(moved) for host in hosts if host in observed for moved in _others(observed[host])}),
    }


def _together(texts: t.Mapping[str, str]) -> list[str]:
    """Return one line for each text, with all hosts that have it."""
    hosts: dict[str, list[str]] = {}
    for host, text in texts.items():
        hosts.setdefault(text, []).append(host)
    return [f"{compress(names, sort=True)}: {text}" for text, names in hosts.items()]


def _one_version(versions: t.Mapping[str, str]) -> tuple[str, list[str]]:
    known = {host: version for host, version in versions.items() if version}
    if len(set(known.values())) < 2:
        return next(iter(known.values()), ""), []
    described = "; ".join(_together(known))
    return "", [f"the hosts would get different versions ({described}): name one in full in slurm_version"]


def _hops(hosts: t.Sequence[str], observed: t.Mapping[str, ObservedHost], version: str) -> list[str]:
    """Say where an installed or running version is none that the new one takes over from."""
    faults: dict[str, str] = {}
    for host in hosts:
        for subject, have in _versions(observed.get(host, {})):
            try:
                text = problem(have, version)
            except VersionError as exc:
                text = str(exc)
            if text:
                faults.setdefault(host, f"{subject} {have}: {text}")
    return _together(faults)


def _versions(host: ObservedHost) -> list[tuple[str, str]]:
    """Return the versions of a host; running daemons come first, as they matter more than packages."""
    running = [(f"{name} runs", daemon["runs"]) for name, daemon in host.get("daemons", {}).items() if daemon["runs"]]
    return running + [(f"{name} is", version) for name, version in host.get("installed", {}).items()]


def _todo(roles: t.Sequence[str], host: ObservedHost, version: str) -> str:
    """Return what a host needs: ``packages``, only a ``start`` of the daemon that is installed already, or nothing."""
    if host.get("interrupted") or any(have != version for have in _moving(host).values()) or not host["installed"]:
        return "packages"
    for role in roles:
        daemon = host["daemons"].get(DAEMONS.get(role, ""), {"runs": upstream(version)})
        if daemon["runs"] != upstream(version):
            return "start"
    return ""


def _moving(host: ObservedHost) -> dict[str, str]:
    names = {word.partition("=")[0] for word in host["install"]}
    return {name: have for name, have in host["installed"].items() if name in names}


def _others(host: ObservedHost) -> list[ObservedHost]:
    names = {word.partition("=")[0] for word in host["install"]}
    return [moved for moved in host["moved"] if moved["name"].partition(":")[0] not in names]


def _other(moved: ObservedHost) -> str:
    return f"{moved['name']} {moved['before'] + ' -> ' if moved['before'] else ''}{moved['after']}"


def _line(host: str, roles: t.Sequence[str], observed: ObservedHost | None, todo: str, version: str) -> str:
    """Return one line for a person: what a host has installed, what runs, what will be done."""
    if observed is None:
        return f"{host} ({', '.join(roles)}): does not answer and is left as it is"
    have = ", ".join(sorted(set(_moving(observed).values() or observed["installed"].values()))) or "nothing"
    names = [DAEMONS[role] for role in roles if role in DAEMONS]
    runs = [
        f"{name} {observed['daemons'][name]['runs'] or 'does not run'}"
        for name in names
        if name in observed.get("daemons", {})
    ]
    done = {"packages": f"to {version}", "start": f"has {version}, is to run it", "": "nothing to do"}[todo]
    return f"{host} ({', '.join(roles)}): installed {have}{'; ' if runs else ''}{', '.join(runs)}: {done}"


# Jobs before and after slurmctld was upgraded: none may be lost.


Job = t.Mapping[str, t.Any]
_HARMED = ("NODE_FAIL", "BOOT_FAIL")


def missing(before: t.Sequence[Job], current: t.Sequence[Job]) -> list[int]:
    """Return the jobs that Slurm does not list any more: they ended, or are lost."""
    numbers = {job["job_id"] for job in current}
    return [job["job_id"] for job in before if job["job_id"] not in numbers]


def ends(text: str) -> dict[int, str]:
    """Read ``sacct -X -n -P -o JobIDRaw,State``; a user's cancel counts as an end as any other."""
    rows = (line.split("|") for line in text.splitlines())
    return {int(row[0]): row[1].split()[0] for row in rows if len(row) == 2 and row[0].isdigit() and row[1]}


def problems(before: t.Sequence[Job], current: t.Sequence[Job], ended: t.Mapping[int, str]) -> list[str]:
    """Say which jobs the upgrade cost; empty when none."""
    states = {job["job_id"]: job["state"] for job in current}
    texts = []
    for job in before:
        number, state = job["job_id"], states.get(job["job_id"]) or ended.get(job["job_id"], "")
        if not state or (number not in states and state in ("PENDING", "RUNNING")):
            texts.append(f"job {number} ({job['name']} of {job['user']}, {job['state']} before) is gone")
        elif state in _HARMED or (job["state"] == "RUNNING" and state == "PENDING"):
            texts.append(f"job {number} ({job['name']} of {job['user']}) ran before and is {state} now")
    return texts


def counts(jobs: t.Sequence[Job]) -> dict[str, int]:
    """Return the number of jobs in each state."""
    return dict(sorted(collections.Counter(job["state"] for job in jobs).items()))
