# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory of a Slurm cluster's nodes, as the controller sees them."""

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm
short_description: Nodes of a Slurm cluster, grouped by partition, state and feature
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - >-
    Reads every node that the controller knows with C(scontrol), on Slurm 22.05 with C(sinfo). The name of the file must
    end with C(slurm.yml) or C(slurm.yaml).
  - >-
    Groups are C(slurm_partition_<name>), C(slurm_feature_<name>) and C(slurm_state_<state>), with the state that sinfo
    shows, such as C(slurm_state_idle), C(slurm_state_drained) or C(slurm_state_draining), and one more for each other
    flag of the node, such as C(slurm_state_not_responding).
  - >-
    Every field of RV(hpcai.gpu_cluster.slurm_info#module:nodes) but the address becomes a variable
    C(slurm_node_<field>), such as C(slurm_node_state), C(slurm_node_reason), C(slurm_node_partitions),
    C(slurm_node_features), C(slurm_node_gres) and C(slurm_node_available). The address of the node becomes
    C(ansible_host) where it is not its name.
extends_documentation_fragment: [ansible.builtin.constructed, ansible.builtin.inventory_cache]
options:
  plugin:
    description:
      - Marks the file as one for this plugin.
    type: str
    required: true
    choices:
      - hpcai.gpu_cluster.slurm
  command:
    description:
      - Command line with which commands of Slurm are started elsewhere, such as V([ssh, login1]). When it is empty they
        run on the control host.
    type: list
    elements: str
    default: []
  timeout:
    description:
      - Seconds that one command may take.
    type: float
    default: 60
  group_prefix:
    description:
      - Prefix of the names of groups. Give every cluster another one when several are in one inventory.
    type: str
    default: slurm
seealso:
  - module: hpcai.gpu_cluster.slurm_info
"""

EXAMPLES = r"""
# cluster.slurm.yml: read the nodes on a login node
plugin: hpcai.gpu_cluster.slurm
command:
  - ssh
  - login1

---
# The groups that the roles of this collection expect, and those of nodes to look after
plugin: hpcai.gpu_cluster.slurm
groups:
  slurm_compute: true
  gpu: (slurm_node_gres or '') is search('gpu')
  hpcai_drained: slurm_node_reason.startswith('hpcai:')
keyed_groups:
  - key: slurm_node_version
    prefix: slurmd

---
# A large cluster, read again after five minutes at the earliest
plugin: hpcai.gpu_cluster.slurm
command: [ssh, login1]
timeout: 120
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/hpcai
cache_timeout: 300
"""

import typing as t

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import Cacheable

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import to_hosts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import SlurmReader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._inventory import ConstructedInventory


class InventoryModule(ConstructedInventory, Cacheable):
    """What Ansible loads."""

    NAME = "hpcai.gpu_cluster.slurm"

    def verify_file(self, path: str) -> bool:
        return super().verify_file(path) and path.endswith(("slurm.yml", "slurm.yaml"))

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        for host in to_hosts(self._nodes(path, cache), self.get_option("group_prefix")):
            self.add(host.name, host.variables, host.groups)

    def _nodes(self, path: str, cache: bool) -> list[dict[str, t.Any]]:
        """What Slurm says, or what it said when the cache was filled."""
        key = self.get_cache_key(path)
        use = cache and self.get_option("cache")
        if use and key in self._cache:
            return self._cache[key]
        try:
            nodes = SlurmReader(self._run).nodes()
        except SlurmError as exc:
            raise AnsibleParserError(
                f"Cannot read the nodes of a Slurm cluster for {path}: {exc}. Slurm's commands must work"
                f" {self._where()}; set 'command' to run them elsewhere, for example [ssh, login1]."
            ) from None  # ansible-core 2.19 would print the cause a second time
        if self.get_option("cache"):
            self._cache[key] = nodes
        return nodes

    def _where(self) -> str:
        prefix = self.get_option("command")
        return f"after {' '.join(prefix)!r}" if prefix else "on this machine"

    def _run(self, argv: list[str]) -> tuple[int, str, str]:
        outcome = _process.run([*self.get_option("command"), *argv], self.get_option("timeout"))
        if outcome.rc is None:
            raise SlurmError(f"{' '.join(argv)}: {outcome.problem}")
        return outcome.rc, outcome.out, outcome.err
