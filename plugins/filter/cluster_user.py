# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters over who has which number; documented in the YAML files beside this one."""

from __future__ import annotations

import collections.abc as c
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _cluster_user
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.wording import say


def cluster_user_uid(name: object, machines: object, wanted: object = 0) -> int:
    """Return the number of a user on all machines."""
    if not isinstance(machines, c.Iterable) or isinstance(machines, (str, bytes, c.Mapping)):
        raise AnsibleFilterError(f"cluster_user_uid takes a list of what node_info told, not {type(machines).__name__}")
    by_number = {str(number): machine for number, machine in enumerate(machines) if isinstance(machine, c.Mapping)}
    problems = _cluster_user.problems(str(name), by_number, int(str(wanted or 0)))
    if problems:
        raise AnsibleFilterError(f"cluster_user_uid: {'; '.join(why for dummy, why, dummy in problems)}")
    return _cluster_user.number(str(name), by_number, int(str(wanted or 0)))


def cluster_user_problems(
    name: object, hostvars: t.Mapping[str, t.Any], hosts: object, wanted: object = 0
) -> list[str]:
    """Return why a user cannot be one user on all hosts."""
    if not isinstance(hosts, c.Iterable) or isinstance(hosts, (str, bytes, c.Mapping)):
        raise AnsibleFilterError(f"cluster_user_problems takes a list of hosts, not {type(hosts).__name__}")
    number = str(wanted or 0)
    if not number.isdecimal():
        return [say("cluster_user_uid", wanted, "not the number of a user", "a whole number, or none")]
    facts = {str(host): (hostvars.get(host) or {}).get("hpcai_node") or {} for host in hosts}
    problems = _cluster_user.problems(str(name), facts, int(number))
    return [
        say("cluster_user" if value == name else "cluster_user_uid", value, why, rest) for value, why, rest in problems
    ]


def cluster_users_problems(
    users: object, hostvars: t.Mapping[str, t.Any], hosts: object, accounts: object = ()
) -> list[str]:
    """Return why a list of users cannot be the same users on all hosts."""
    for name, value in (("users", users), ("hosts", hosts), ("accounts", accounts)):
        if not isinstance(value, c.Sequence) or isinstance(value, (str, bytes)):
            raise AnsibleFilterError(f"cluster_users_problems takes a list of {name}, not {type(value).__name__}")
    facts = {str(host): (hostvars.get(host) or {}).get("hpcai_node") or {} for host in t.cast("t.Sequence[str]", hosts)}
    known = t.cast("t.Sequence[object]", accounts)
    names = [str(account.get("name")) for account in known if isinstance(account, c.Mapping)]
    return _cluster_user.list_problems(t.cast("t.Sequence[object]", users), facts, names)


def cluster_users_accounting(users: object) -> list[dict[str, t.Any]]:
    """Return a list of users as module slurm_accounting takes them."""
    if not isinstance(users, c.Sequence) or isinstance(users, (str, bytes)):
        raise AnsibleFilterError(f"cluster_users_accounting takes a list of users, not {type(users).__name__}")
    return _cluster_user.associations(users)


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {
            "cluster_user_problems": cluster_user_problems,
            "cluster_user_uid": cluster_user_uid,
            "cluster_users_accounting": cluster_users_accounting,
            "cluster_users_problems": cluster_users_problems,
        }
