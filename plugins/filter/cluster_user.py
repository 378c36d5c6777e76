# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter over who has which number; documented in the YAML file beside this one."""

from __future__ import annotations

import collections.abc as c
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _cluster_user


def cluster_user_uid(name: object, machines: object, wanted: object = 0) -> int:
    """Return the number of a user on all machines."""
    if not isinstance(machines, c.Iterable) or isinstance(machines, (str, bytes, c.Mapping)):
        raise AnsibleFilterError(f"cluster_user_uid takes a list of what node_info told, not {type(machines).__name__}")
    told = {str(number): machine for number, machine in enumerate(machines) if isinstance(machine, c.Mapping)}
    found = _cluster_user.problems(str(name), told, int(str(wanted or 0)))
    if found:
        raise AnsibleFilterError(f"cluster_user_uid: {'; '.join(why for dummy, why, dummy in found)}")
    return _cluster_user.number(str(name), told, int(str(wanted or 0)))


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"cluster_user_uid": cluster_user_uid}
