# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Do accounts, users and QOS fit together, and can slurmdbd reach its database? No I/O; private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.wording import one_of, say, twice

_OWNED = {
    "dbdport": "slurm_database_port",
    "storagehost": "slurm_database_storage_host",
    "storageport": "slurm_database_storage_port",
    "storageuser": "slurm_database_storage_user",
    "storagepass": "slurm_database_storage_password",
    "storageloc": "slurm_database_name",
    "slurmuser": "the user slurm, to whom the packages and roles give every file",
    "pidfile": "the units of the packages and roles",
}
_BUILT_IN_QOS = "normal"
Inputs = t.Mapping[str, t.Any]
Items = t.List[t.Mapping[str, t.Any]]


def _items(inputs: Inputs, kind: str) -> Items:
    return inputs.get(f"slurm_database_{kind}") or []


def _unsound(inputs: Inputs, *kinds: str) -> bool:
    """Then nothing can be said about what refers to them."""
    return bool({f"slurm_database_{kind}" for kind in kinds} & set(inputs.get("unsound") or []))


def names(inputs: Inputs) -> list[str]:
    """Return what is wrong with names of accounts, of QOS and of users in accounts."""
    problems = []
    for kind in ("accounts", "qos"):
        defined = [str(item.get("name") or "") for item in _items(inputs, kind)]
        variable = f"slurm_database_{kind}"
        problems += [say(variable, name, "defined twice", "each name once") for name in twice(defined)]
        for name in defined:
            if not name or name != name.lower() or set(name) & set(" ,=|'\""):
                problems.append(
                    say(variable, name, "Slurm keeps such names in lower case", "lower case, no blanks , = |")
                )
    pairs = [f"{user.get('name')} in {user.get('account')}" for user in _items(inputs, "users")]
    return problems + [say("slurm_database_users", pair, "defined twice", "each pair once") for pair in twice(pairs)]


def parents(inputs: Inputs) -> list[str]:
    """Return the accounts whose parent is missing or is one of those below them."""
    accounts = {str(item.get("name")): str(item.get("parent") or "root") for item in _items(inputs, "accounts")}
    problems = []
    for name, parent in accounts.items():
        label = f"slurm_database_accounts ({name}).parent"
        seen = {name}
        while parent in accounts and parent not in seen:
            seen.add(parent)
            parent = accounts[parent]
        if parent in seen:
            problems.append(say(label, accounts[name], "leads back to itself", "an account above it, or none"))
        elif parent != "root" and accounts[name] not in accounts:
            problems.append(say(label, accounts[name], "no such account", one_of({*accounts, "root"} - {name})))
    return problems


def users(inputs: Inputs) -> list[str]:
    """Return the users whose account is missing, and those with several accounts as their default."""
    accounts = [item.get("name") for item in _items(inputs, "accounts")]
    problems = []
    for user in [] if _unsound(inputs, "accounts") else _items(inputs, "users"):
        if user.get("account") not in [*accounts, "root"]:
            label = f"slurm_database_users ({user.get('name')}).account"
            problems.append(say(label, user.get("account"), "no such account", one_of(accounts)))
    for name in twice(user.get("name") for user in _items(inputs, "users") if user.get("default")):
        problems.append(say("slurm_database_users", name, "has several accounts with default: true", "one of them"))
    return problems


def qualities(inputs: Inputs) -> list[str]:
    """Return the QOS that accounts and users refer to and that nobody defines."""
    known = [_BUILT_IN_QOS, *(item.get("name") for item in _items(inputs, "qos"))]
    problems = []
    for kind in ("accounts", "users"):
        for item in [] if _unsound(inputs, "qos") else _items(inputs, kind):
            wanted = {str(key).lower(): value for key, value in (item.get("settings") or {}).items()}
            values = [wanted.get("qos") or [], wanted.get("defaultqos") or []]
            flat = [name for value in values for name in (value if isinstance(value, list) else str(value).split(","))]
            label = f"slurm_database_{kind} ({item.get('name')}).settings"
            strange = sorted({str(name).lstrip("+-") for name in flat} - {str(name) for name in known})
            problems += [say(label, name, "no such QOS", one_of(known)) for name in strange]
    return problems


def prover(inputs: Inputs) -> list[str]:
    """The run ends with a job of this user."""
    user, listed = inputs.get("cluster_user"), [item.get("name") for item in _items(inputs, "users")]
    if not user:
        return [say("cluster_user", user, "nobody to prove the cluster with a job", "a user who may submit jobs")]
    if listed and user not in [*listed, "root"]:
        return [
            say(
                "cluster_user",
                user,
                "has no account, so Slurm refuses the job",
                f"{one_of(listed)} of slurm_database_users",
            )
        ]
    return []


def storage(inputs: Inputs) -> list[str]:
    """Return what contradicts the role, or is missing, in how slurmdbd reaches its database."""
    problems = []
    for key, value in (inputs.get("slurm_database_settings") or {}).items():
        if str(key).lower() in _OWNED:
            shown = "(hidden)" if str(key).lower() == "storagepass" else value
            problem = "contradicts what the role writes"
            problems.append(say(f"slurm_database_settings.{key}", shown, problem, _OWNED[str(key).lower()]))
    if inputs.get("slurm_database_local", True):
        return problems
    if not inputs.get("slurm_database_storage_password"):
        problem = "slurm_database_local is false, and that database asks for one"
        problems.append(say("slurm_database_storage_password", None, problem, "the password, best from a vault"))
    if inputs.get("slurm_database_storage_host", "localhost") == "localhost":
        problem = "slurm_database_local is false"
        problems.append(say("slurm_database_storage_host", "localhost", problem, "the host of the database"))
    return problems


CHECKS = (names, parents, users, qualities, prover, storage)
