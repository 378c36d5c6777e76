# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The upgrade of a whole cluster: what was seen on its hosts to what is to be done, or why not. No I/O; private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.versions import VersionError, problem, upstream

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
