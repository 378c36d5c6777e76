# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The upgrade of a cluster: Slurm releases, what was seen on the hosts, the jobs, and what to do. No I/O."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress

# Slurm's releases, and which of them can be upgraded to which. No I/O; private to this collection.


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


# The upgrade of a whole cluster: what was seen on its hosts to what is to be done, or why not. No I/O; private.


ROLES = ("database", "controller", "compute", "login")
DAEMONS = {"database": "slurmdbd", "controller": "slurmctld", "compute": "slurmd"}
Seen = t.Mapping[str, t.Any]


def plan(groups: t.Mapping[str, t.Sequence[str]], seen: t.Mapping[str, Seen]) -> dict[str, t.Any]:
    """Judge the whole cluster; ``seen`` holds what slurm_packages returned of every host that answered."""
    hosts = list(dict.fromkeys(host for role in ROLES for host in groups.get(role, [])))
    silent = [host for host in hosts if host not in seen]
    findings = [
        f"{host} ({DAEMONS[role]}) does not answer, and the others cannot be upgraded without it"
        for role in ("database", "controller")
        for host in groups.get(role, [])
        if host in silent
    ]
    findings += _together({host: seen[host]["problem"] for host in hosts if host in seen and seen[host]["problem"]})
    version, strange = _one_version({host: seen[host]["version"] for host in hosts if host in seen})
    findings += strange
    if version:
        findings += _hops(hosts, seen, version)
    roles = {host: [role for role in ROLES if host in groups.get(role, [])] for host in hosts}
    todo = {host: _todo(roles[host], seen[host], version) for host in hosts if host in seen and version}
    return {
        "version": version,
        "upstream": upstream(version),
        "findings": findings,
        "silent": silent,
        "todo": [host for host in todo if todo[host]],
        "report": [_line(host, roles[host], seen.get(host), todo.get(host, ""), version) for host in hosts],
        "others": sorted({_other(one) for host in hosts if host in seen for one in _others(seen[host])}),
    }


def _together(texts: t.Mapping[str, str]) -> list[str]:
    """One line for all hosts that say the same."""
    hosts: dict[str, list[str]] = {}
    for host, text in texts.items():
        hosts.setdefault(text, []).append(host)
    return [f"{compress(names, sort=True)}: {text}" for text, names in hosts.items()]


def _one_version(versions: t.Mapping[str, str]) -> tuple[str, list[str]]:
    known = {host: version for host, version in versions.items() if version}
    if len(set(known.values())) < 2:
        return next(iter(known.values()), ""), []
    told = "; ".join(_together(known))
    return "", [f"the hosts would get different versions ({told}): name one in full in slurm_version"]


def _hops(hosts: t.Sequence[str], seen: t.Mapping[str, Seen], version: str) -> list[str]:
    """Every installed and every running version has to be one that the new one takes over from."""
    wrong: dict[str, str] = {}
    for host in hosts:
        for what, have in _versions(seen.get(host, {})):
            try:
                text = problem(have, version)
            except VersionError as exc:
                text = str(exc)
            if text:
                wrong.setdefault(host, f"{what} {have}: {text}")
    return _together(wrong)


def _versions(one: Seen) -> list[tuple[str, str]]:
    """What runs says more than what is installed, so it comes first."""
    running = [(f"{name} runs", found["runs"]) for name, found in one.get("daemons", {}).items() if found["runs"]]
    return running + [(f"{name} is", version) for name, version in one.get("installed", {}).items()]


def _todo(roles: t.Sequence[str], one: Seen, version: str) -> str:
    """What a host needs: packages, or only a start of the daemon that it has already, or nothing."""
    if one.get("interrupted") or any(have != version for have in _moving(one).values()) or not one["installed"]:
        return "packages"
    for role in roles:
        found = one["daemons"].get(DAEMONS.get(role, ""), {"runs": upstream(version)})
        if found["runs"] != upstream(version):
            return "start"
    return ""


def _moving(one: Seen) -> dict[str, str]:
    names = {word.partition("=")[0] for word in one["install"]}
    return {name: have for name, have in one["installed"].items() if name in names}


def _others(one: Seen) -> list[Seen]:
    names = {word.partition("=")[0] for word in one["install"]}
    return [moved for moved in one["moved"] if moved["name"].partition(":")[0] not in names]


def _other(moved: Seen) -> str:
    return f"{moved['name']} {moved['before'] + ' -> ' if moved['before'] else ''}{moved['after']}"


def _line(host: str, roles: t.Sequence[str], one: Seen | None, todo: str, version: str) -> str:
    """One host for people: what is installed, what runs, what will be done."""
    if one is None:
        return f"{host} ({', '.join(roles)}): does not answer and is left as it is"
    have = ", ".join(sorted(set(_moving(one).values() or one["installed"].values()))) or "nothing"
    names = [DAEMONS[role] for role in roles if role in DAEMONS]
    runs = [
        f"{name} {one['daemons'][name]['runs'] or 'does not run'}" for name in names if name in one.get("daemons", {})
    ]
    done = {"packages": f"to {version}", "start": f"has {version}, is to run it", "": "nothing to do"}[todo]
    return f"{host} ({', '.join(roles)}): installed {have}{'; ' if runs else ''}{', '.join(runs)}: {done}"


# Jobs before and after slurmctld was exchanged: none may be lost. No I/O; private to this collection.


Job = t.Mapping[str, t.Any]
_HARMED = ("NODE_FAIL", "BOOT_FAIL")


def missing(before: t.Sequence[Job], now: t.Sequence[Job]) -> list[int]:
    """Jobs that Slurm does not list any more: they ended, or are lost."""
    there = {job["job_id"] for job in now}
    return [job["job_id"] for job in before if job["job_id"] not in there]


def ends(text: str) -> dict[int, str]:
    """Read ``sacct -X -n -P -o JobIDRaw,State``; a user's cancel counts as an end as any other."""
    rows = (line.split("|") for line in text.splitlines())
    return {int(row[0]): row[1].split()[0] for row in rows if len(row) == 2 and row[0].isdigit() and row[1]}


def problems(before: t.Sequence[Job], now: t.Sequence[Job], ended: t.Mapping[int, str]) -> list[str]:
    """Say which jobs the upgrade cost; empty when none."""
    here = {job["job_id"]: job["state"] for job in now}
    found = []
    for job in before:
        number, state = job["job_id"], here.get(job["job_id"]) or ended.get(job["job_id"], "")
        if not state or (number not in here and state in ("PENDING", "RUNNING")):
            found.append(f"job {number} ({job['name']} of {job['user']}, {job['state']} before) is gone")
        elif state in _HARMED or (job["state"] == "RUNNING" and state == "PENDING"):
            found.append(f"job {number} ({job['name']} of {job['user']}) ran before and is {state} now")
    return found


def counts(jobs: t.Sequence[Job]) -> dict[str, int]:
    """How many jobs are in which state."""
    return dict(sorted(collections.Counter(job["state"] for job in jobs).items()))
