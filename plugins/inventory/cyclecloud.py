# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory of a CycleCloud cluster's nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cyclecloud
short_description: Nodes of a CycleCloud cluster, by role, node array, machine type and state
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - >-
    Reads the nodes of a cluster through the documented REST interface of CycleCloud 8.7 or later. The name of the file
    must end with C(cyclecloud.yml) or C(cyclecloud.yaml).
  - >-
    Groups are C(cyclecloud_cluster_<name>), C(cyclecloud_nodearray_<name>), C(cyclecloud_role_<role>),
    C(cyclecloud_machine_type_<type>) and C(cyclecloud_state_<state>). Roles are those of Slurm, such as C(scheduler),
    C(login) and C(execute). States are in lowercase.
  - >-
    Hosts have the names that the nodes have in CycleCloud, their private address as C(ansible_host), and the variables
    C(cc_cluster), C(cc_node_id), C(cc_nodearray), C(cc_state), C(cc_target_state), C(cc_machine_type),
    C(cc_placement_group), C(cc_role), C(cc_gpu_count), C(cc_instance_id), C(cc_hostname) and C(cc_spot).
  - Nodes that are being terminated and nodes without an address are left out.
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
  - hpcai.gpu_cluster.cyclecloud
options:
  connection:
    description:
      - JSON file with C(url), C(ca_path), C(username), C(bastion), C(ssh_config), C(connect_timeout), C(cluster) and
        C(user).
        C(provision.yml) writes it beside the inventory. An option that is set itself, or by its variable of the
        environment, takes precedence.
      - A file that is not there counts as empty. Where O(url) comes from it, a server that does not answer, and a
        password that is missing, are warnings, because the cluster's own hosts are in another file of that inventory.
      - By default C(.cyclecloud/connection.json) in the directory of the inventory file.
    type: path
  cluster:
    description:
      - Name of the cluster in CycleCloud. Required where O(connection) does not name it.
    type: str
    required: false
  plugin:
    description:
      - Marks the file as one for this plugin.
    type: str
    required: true
    choices:
      - hpcai.gpu_cluster.cyclecloud
  url:
    description:
      - Address of CycleCloud, such as V(https://cyclecloud.example.org). Plain C(http) is refused except to the same
        machine, and a redirect is reported, not followed.
      - Without an address there are no hosts and a warning, so that the file can be in place before CycleCloud is.
    env:
      - name: CYCLECLOUD_URL
  username:
    description:
      - Name of a CycleCloud user. Required when there is an O(url).
    env:
      - name: CYCLECLOUD_USERNAME
  password:
    description:
      - Password of the user O(username). Required when there is an O(url).
    env:
      - name: CYCLECLOUD_PASSWORD
  ca_path:
    env:
      - name: CYCLECLOUD_CA_PATH
  states:
    description:
      - States whose nodes become hosts. Nodes in state V(Preparing) are still being configured by CycleCloud.
    type: list
    elements: str
    default: [Ready]
  user:
    description:
      - User for SSH logins on the nodes, which becomes C(ansible_user). Without it and without O(connection) it is
        C(cyclecloud).
    type: str
  bastion:
    description:
      - Host through which SSH jumps, as C(user@host), usually the CycleCloud VM. Without it the nodes have to be
        reachable from the control host.
    type: str
    env:
      - name: CYCLECLOUD_BASTION
  ssh_config:
    description:
      - Configuration file for SSH, as C(ssh -F) takes it, for the nodes and for O(bastion). Without it SSH reads its
        own.
      - That of C(provision.yml) has the host keys of the CycleCloud VM and includes the user's configuration.
    type: path
  connect_timeout:
    description:
      - Seconds that SSH waits for a node, which becomes C(ansible_ssh_timeout). V(0) leaves it to Ansible's own
        setting.
      - C(provision.yml) gives more than the default where an Azure Bastion leads to the network.
    type: int
    default: 0
  group_prefix:
    description:
      - Prefix of the names of groups. Give every cluster another one when several are in one inventory.
    type: str
    default: cyclecloud
  cache:
    description:
      - Whether the nodes are kept in the cache. To keep them between two runs a O(cache_plugin) that writes files is
        needed.
    type: bool
    default: true
  cache_timeout:
    description:
      - Seconds after which kept nodes are dropped, so that they are not used even when CycleCloud does not answer.
    type: int
    default: 86400
  refresh:
    description:
      - Seconds for which kept nodes are used without a request to CycleCloud.
    type: float
    default: 60
  stale:
    description:
      - Whether kept nodes are used, with a warning, while CycleCloud does not answer. An answer that refuses the
        request is always an error.
    type: bool
    default: true
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_nodes_info
notes:
  - Tested with an emulator of the interface; not yet run against a CycleCloud server.
"""

EXAMPLES = r"""
# ndv4.cyclecloud.yml: the groups that the roles of this collection expect, the login in the environment
plugin: hpcai.gpu_cluster.cyclecloud
cluster: ndv4
bastion: hpcadmin@cyclecloud.example.org
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/hpcai
groups:
  slurm_controller: cc_role == 'scheduler'
  slurm_login: cc_role == 'login'
  slurm_compute: cc_role == 'execute'
  gpu: (cc_gpu_count or 0) > 0

---
# Two clusters in one inventory: a file each, with its own prefix
plugin: hpcai.gpu_cluster.cyclecloud
url: https://cyclecloud.example.org
ca_path: /etc/ssl/certs/cyclecloud.pem
cluster: ndv5
group_prefix: ndv5

---
# Failed nodes as well, and a group for each placement group
plugin: hpcai.gpu_cluster.cyclecloud
cluster: ndv4
states:
  - Ready
  - Failed
keyed_groups:
  - key: cc_placement_group | default('none', true)
    prefix: placement
"""

import json
import shlex
import time
import typing as t
from pathlib import Path

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import Cacheable

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import cluster_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cluster_state import to_hosts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import (
    CycleClient,
    CycleCloudError,
    UnknownOutcome,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._inventory import ConstructedInventory


class InventoryModule(ConstructedInventory, Cacheable):
    """What Ansible loads."""

    NAME = "hpcai.gpu_cluster.cyclecloud"

    def verify_file(self, path: str) -> bool:
        return super().verify_file(path) and path.endswith(("cyclecloud.yml", "cyclecloud.yaml"))

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        self._from_file = not self.get_option("url")
        self._connect(path)
        if not self._complete(path):
            return
        names = ("cluster", "states", "group_prefix")
        cluster, states, prefix = (self.get_option(name) for name in names)
        try:
            nodes = self._nodes(path, cache)
        except UnknownOutcome as exc:
            if not self._from_file:
                raise self._failed(path, exc) from None
            self.display.warning(f"{path} adds no nodes, since CycleCloud cannot be reached from here: {exc}")
            return
        for host in to_hosts(nodes, cluster, states, prefix):
            self.add(host.name, host.remote, host.groups, **self._access())

    def _connect(self, path: str) -> None:
        """Take what is not set from what provision.yml wrote."""
        file = Path(self.get_option("connection") or Path(path).with_name(".cyclecloud") / "connection.json")
        try:
            known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            if not isinstance(known, dict):
                raise TypeError("it is no dictionary")
        except (OSError, ValueError, TypeError) as exc:
            raise AnsibleParserError(f"{file}, which has the connection of {path}, cannot be read: {exc}") from None
        for name in ("url", "ca_path", "username", "bastion", "ssh_config", "connect_timeout", "cluster", "user"):
            if not self.get_option(name) and known.get(name):
                self.set_option(name, int(known[name]) if name == "connect_timeout" else str(known[name]))
        if not self.get_option("user"):
            self.set_option("user", "cyclecloud")

    def _complete(self, path: str) -> bool:
        """Whether there is a CycleCloud to ask yet."""
        if not self.get_option("url"):
            self.display.warning(f"{path} adds no nodes: neither option url nor CYCLECLOUD_URL names a CycleCloud")
            return False
        if not self.get_option("cluster"):
            raise AnsibleParserError(f"{path} names no cluster; set cluster")
        if self._from_file and not self.get_option("password"):
            self.display.warning(f"{path} adds no nodes: CYCLECLOUD_PASSWORD is not set")
            return False
        missing = [name for name in ("username", "password") if not self.get_option(name)]
        if missing:
            variables = " and ".join(f"CYCLECLOUD_{name.upper()}" for name in missing)
            raise AnsibleParserError(f"{path} has no {' and no '.join(missing)}; set {variables}")
        return True

    def _nodes(self, path: str, cache: bool) -> list[dict[str, t.Any]]:
        """What CycleCloud says, or what it said a moment ago, or what it said last while it is silent."""
        key = self.get_cache_key(path)
        kept = self._kept(key) if self.get_option("cache") else None
        if kept and cache and time.time() - kept["time"] < self.get_option("refresh"):
            return t.cast("list[dict[str, t.Any]]", kept["nodes"])
        try:
            nodes = cluster_state.nodes(self._client().status(self.get_option("cluster")))
        except UnknownOutcome as exc:
            if not kept or not self.get_option("stale"):
                raise
            age = time.time() - kept["time"]
            self.display.warning(f"Nodes as they were {age:.0f} seconds ago, since CycleCloud does not answer: {exc}")
            return t.cast("list[dict[str, t.Any]]", kept["nodes"])
        except CycleCloudError as exc:
            raise self._failed(path, exc) from None
        if self.get_option("cache"):
            self._cache[key] = {"time": time.time(), "nodes": nodes, "of": self._identity()}
        return nodes

    def _kept(self, key: str) -> dict[str, t.Any] | None:
        """What the cache has of this server and cluster; the file may have been edited since."""
        try:
            cached = self._cache[key]
        except KeyError:
            return None
        right = isinstance(cached, dict) and cached.get("of") == self._identity()
        return cached if right else None

    def _identity(self) -> list[str]:
        return [self.get_option("url"), self.get_option("cluster")]

    def _failed(self, path: str, exc: CycleCloudError) -> AnsibleParserError:
        return AnsibleParserError(f"Cannot read the nodes of cluster {self.get_option('cluster')} for {path}: {exc}")

    def _client(self) -> CycleClient:
        options = {name: self.get_option(name) for name in ("ca_path", "validate_certs", "timeout")}
        if self._from_file:  # a private address may not be routed from here, and every run would wait for it
            options["timeout"] = min(options["timeout"], 10)
        return CycleClient(self.get_option("url"), self.get_option("username"), self.get_option("password"), **options)

    def _access(self) -> dict[str, t.Any]:
        """How hosts are reached."""
        access: dict[str, t.Any] = {"ansible_user": self.get_option("user")}
        if self.get_option("connect_timeout"):
            access["ansible_ssh_timeout"] = self.get_option("connect_timeout")
        config, bastion = self.get_option("ssh_config"), self.get_option("bastion")
        words = [f"-F {shlex.quote(config)}"] if config else []
        words += [f"-o ProxyJump={bastion}"] if bastion else []
        if words:
            access["ansible_ssh_common_args"] = " ".join(words)
        return access
