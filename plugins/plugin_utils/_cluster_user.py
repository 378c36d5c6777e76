# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which number the cluster's user has on every machine: shared files belong to numbers. No I/O; private."""

from __future__ import annotations

import collections
import collections.abc as c
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.wording import one_of, say

# Not from 1000, which is the first user of machines that join later.
FIRST, LAST = 2000, 59999
FIRST_OF_PEOPLE = 1000  # UID_MIN of login.defs: system accounts are below
Json = t.Mapping[str, t.Any]


def numbers(name: str, machines: t.Mapping[str, Json]) -> dict[str, int]:
    """Return the user's number on each machine that has the user; a machine is what module node_info told of it."""
    known = {host: (machine.get("users") or {}).get(name) for host, machine in machines.items()}
    return {host: int(user["uid"]) for host, user in known.items() if user}


def number(name: str, machines: t.Mapping[str, Json], wanted: int = 0) -> int:
    """Return the number that the user has, or is to be made with: the wanted one, else the first that is free."""
    here = sorted(set(numbers(name, machines).values()))
    if here:
        return here[0]
    used = {int(uid) for machine in machines.values() for uid in machine.get("ids") or []}
    return wanted or next(uid for uid in range(FIRST, LAST + 1) if uid not in used)


STATES = ("present", "locked")
_KEYS = {"name", "uid", "account", "state", "shell", "home", "ssh_keys", "settings", "default", "adminlevel"}
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_KEY = re.compile(r"(ssh-|ecdsa-|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\n]*)?")


def list_problems(
    users: t.Sequence[object], machines: t.Mapping[str, Json], accounts: t.Sequence[str] = ()
) -> list[str]:
    """Return what is wrong with a list of users, alone and on machines; where no account is given, any is theirs."""
    texts: list[str] = []
    sound = [user for user in users if isinstance(user, c.Mapping)]
    texts += [f"{user!r} is no dictionary" for user in users if not isinstance(user, c.Mapping)]
    for key in ("name", "uid"):
        counts = collections.Counter(str(user.get(key)) for user in sound)
        texts += [f"{key} {value} is there {count} times" for value, count in sorted(counts.items()) if count > 1]
    for user in sound:
        wrong = _user_problems(user)
        unknown = [name for name in account_names(user) if accounts and name not in [*accounts, "root"]]
        wrong += [say("account", name, "not in slurm_database_accounts", one_of(accounts)) for name in unknown]
        if not wrong:
            name, uid = str(user["name"]), int(user["uid"])
            wrong = [f"{why}; accepted: {accepted}" for dummy, why, accepted in problems(name, machines, uid)]
        texts += [f"{user.get('name', 'a user without a name')}: {text}" for text in wrong]
    return texts


def _user_problems(user: Json) -> list[str]:
    accounts, keys = account_names(user), user.get("ssh_keys") or []
    wrong = [f"{key} is no key of a user; accepted: {', '.join(sorted(_KEYS))}" for key in sorted(set(user) - _KEYS)]
    if not _NAME.fullmatch(str(user.get("name", ""))):
        wrong.append("name is not one that useradd accepts: lower case letters, digits, _ and -, at most 32")
    if not str(user.get("uid", "")).isdecimal() or int(str(user["uid"])) < FIRST_OF_PEOPLE:
        wrong.append(f"uid is {user.get('uid')!r}; accepted: a number from {FIRST_OF_PEOPLE}, the same on all machines")
    if not accounts or not all(isinstance(account, str) and account for account in accounts):
        wrong.append("account is missing: one of slurm_database_accounts, or a list of them")
    if user.get("state", "present") not in STATES:
        wrong.append(f"state is {user['state']!r}; accepted: {', '.join(STATES)}")
    if not isinstance(keys, list) or not all(_KEY.fullmatch(str(key)) for key in keys):
        wrong.append("ssh_keys is to be a list of public keys, such as 'ssh-ed25519 AAAA... anna'")
    return wrong


def account_names(user: Json) -> list[t.Any]:
    accounts = user.get("account") or []
    return accounts if isinstance(accounts, list) else [accounts]


def associations(users: t.Sequence[Json]) -> list[dict[str, t.Any]]:
    """Return the users for module slurm_accounting: one entry for each account, the first the default one.

    Who is locked may submit nothing. Their associations stay, as accounting has their jobs by these.
    """
    entries = []
    for user in users:
        locked = {"MaxSubmitJobs": 0} if user.get("state", "present") == "locked" else {}
        for number, account in enumerate(account_names(user)):
            entry = {"name": user["name"], "account": account, "settings": {**(user.get("settings") or {}), **locked}}
            own = {key: user[key] for key in ("default", "adminlevel") if key in user and number == 0}
            entries.append({**entry, **own})
    return entries


def problems(name: str, machines: t.Mapping[str, Json], wanted: int = 0) -> list[tuple[object, str, str]]:
    """Return why no number can be the user's on every machine: value, problem, what would be accepted."""
    hosts: dict[int, list[str]] = collections.defaultdict(list)
    for host, uid in numbers(name, machines).items():
        hosts[uid].append(host)
    if len(hosts) > 1:
        listed = "; ".join(f"{uid} on {', '.join(sorted(hosts[uid]))}" for uid in sorted(hosts))
        accepted = "one uid on all machines (usermod --uid, and the owner of the user's files), or another user"
        return [(name, f"its uid differs: {listed}", accepted)]
    if wanted and hosts and wanted not in hosts:
        (uid,) = hosts
        return [(wanted, f"{name} has uid {uid} on {', '.join(sorted(hosts[uid]))}", f"{uid}, or no number")]
    uid = number(name, machines, wanted)
    known = numbers(name, machines)
    taken = sorted(
        host for host, machine in machines.items() if host not in known and uid in (machine.get("ids") or [])
    )
    if taken:
        return [
            (name, f"it is to be made with uid {uid}, which is somebody else's on {', '.join(taken)}", "a free uid")
        ]
    return []
