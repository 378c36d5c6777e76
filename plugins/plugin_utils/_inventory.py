# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the inventory plugins do with a host they found. Private."""

from __future__ import annotations

import typing as t

from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible.utils.unsafe_proxy import wrap_var


class ConstructedInventory(BaseInventoryPlugin, Constructable):
    """An inventory plugin with the options of the fragment constructed."""

    def add(self, name: str, remote: t.Mapping[str, t.Any], groups: t.Iterable[str], **ours: t.Any) -> None:
        """Add a host. Nobody but the cluster decides what ``remote`` holds, so that none of it may be a template."""
        inventory: t.Any = self.inventory
        inventory.add_host(name)
        variables = {**{key: wrap_var(value) for key, value in remote.items()}, **ours}
        for key, value in variables.items():
            inventory.set_variable(name, key, value)
        for group in groups:
            inventory.add_child(inventory.add_group(self._sanitize_group_name(group)), name)
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)
