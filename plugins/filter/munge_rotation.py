# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter munge_rotation_plan; documented in the YAML file of its name."""

from __future__ import annotations

import collections.abc as c
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._munge_rotation import Keys, recover


def munge_rotation_plan(hosts: object, hostvars: t.Mapping[str, t.Any], result: str) -> dict[str, t.Any]:
    """Return which hosts return to a former key, which have leftovers, and why there is no way on."""
    if not isinstance(hosts, c.Sequence) or isinstance(hosts, (str, bytes)):
        raise AnsibleFilterError(f"munge_rotation_plan takes a list of hosts, not {type(hosts).__name__}")
    marks = {str(host): ((hostvars.get(host) or {}).get(result) or {}).get("marks") for host in hosts}
    silent = sorted(host for host, mark in marks.items() if mark is None)
    if silent:
        raise AnsibleFilterError(f"munge_rotation_plan: nobody asked {', '.join(silent)} for its keys")
    return recover({host: Keys(**mark) for host, mark in marks.items() if mark is not None})._asdict()


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"munge_rotation_plan": munge_rotation_plan}
