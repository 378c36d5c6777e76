# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter over the topology that gpu_info returns; documented in cpu_masks.yml beside this file."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.binding import Binding, binding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import CpuListError, from_facts

_FORMS: dict[str, t.Callable[[Binding], t.Any]] = {
    "masks": lambda bound: bound.masks,
    "rank_masks": lambda bound: bound.rank_masks,
    "ppr": lambda bound: bound.map_by,
    "visible_devices": lambda bound: bound.visible_devices,
}


def cpu_masks(value: object, form: str = "masks", split: bool = False) -> t.Any:
    """Return what a launcher needs to bind one rank per GPU."""
    if form not in _FORMS:
        raise AnsibleFilterError(f"cpu_masks: form is {form!r}, accepted are {', '.join(_FORMS)}")
    if not isinstance(split, bool):
        raise AnsibleFilterError(f"cpu_masks: split is true or false, not {split!r}")
    try:
        return _FORMS[form](binding(from_facts(value), split))
    except CpuListError as exc:
        raise AnsibleFilterError(f"cpu_masks: {exc}") from exc


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"cpu_masks": cpu_masks}
