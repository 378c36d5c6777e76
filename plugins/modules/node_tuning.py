#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_tuning
short_description: Set limits, kernel settings, modules and services of a compute node
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Writes drop-in files of its own, so that the settings hold after a reboot, and sets the running kernel to the same
    values. An option that is empty leaves its part of the node alone, or restores it if an earlier run set it.
  - The values that the kernel had before are kept in O(record). A value that somebody changed since is not restored.
  - A file of somebody else under the name of one of these drop-ins stays as it is, and so does a sysctl that another
    file sets differently which is read later. Both are RV(findings) and warnings.
  - In a container only limits and O(keep_ipc) are set, since the kernel and what systemd sets at boot belong to the
    host.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details:
      - The prediction assumes that services start and kernel modules load.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - V(absent) restores everything. Services that the module enabled are disabled, but those that run and modules
        that are loaded stay until the next boot.
    type: str
    choices: [present, absent]
    default: present
  strict:
    description:
      - Whether a finding that is an error, such as a service that the node lacks, fails the module after everything
        else is done. The node is then as with V(false).
    type: bool
    default: false
  limits:
    description:
      - Limits by name, soft and hard alike. The names are C(memlock), C(stack), C(nofile) and C(nproc), the values
        numbers or V(unlimited). Others are refused.
      - They are set for logins by PAM, and for jobs by a drop-in of slurmd, which takes effect when slurmd is started
        the next time.
      - A number for C(memlock) or C(stack) is in KiB, for PAM and for slurmd alike.
    type: dict
    default: {}
  sysctl:
    description:
      - Kernel parameters by name, such as C(vm.zone_reclaim_mode). One that the running kernel does not have is a
        finding, and is set when the kernel gets it.
    type: dict
    default: {}
  transparent_hugepages:
    description:
      - Which memory gets transparent huge pages. An empty string leaves them alone.
    type: str
    choices: ["", always, madvise, never]
    default: ""
  nfs_readahead_kb:
    description:
      - Read-ahead of NFS mounts in KiB, for those that are mounted now and later. V(0) leaves it alone.
    type: int
    default: 0
  sunrpc_slots:
    description:
      - Largest number of RPCs in flight for a TCP connection. NFS mounts that exist already keep theirs. V(0) leaves it
        alone.
    type: int
    default: 0
  kernel_modules:
    description:
      - Kernel modules to load, now and at every boot.
    type: list
    elements: str
    default: []
  services:
    description:
      - Services to enable and start. One that is not installed, is masked or does not start is a finding.
    type: list
    elements: str
    default: []
  retries:
    description:
      - How often a service that does not become active is started again.
    type: int
    default: 5
  delay:
    description:
      - Seconds before each of these retries.
    type: float
    default: 5
  rdma_names:
    description:
      - Names of RDMA adapters by their PCI domains in quotes, from the next boot on. Others get the names of rdma-core.
      - On Azure's HPC images, which name the adapters themselves, nothing is written, which is a finding.
    type: dict
    default: {}
  keep_ipc:
    description:
      - Whether what a user's jobs share in V(/dev/shm), and System V IPC, stays when that user logs out of the node
        (C(RemoveIPC=no) of systemd's login manager, whose default removes it). Where another file says something about
        it, nothing is written; that it removes them is a finding.
    type: bool
    default: false
  record:
    description:
      - File that keeps what the node was like before.
    type: path
    default: /var/lib/hpcai/node_tuning.json
  nccl:
    description:
      - Options for M(hpcai.gpu_cluster.nccl_config), which runs afterwards with the same O(state). Without them it does
        not run.
    type: dict
    suboptions:
      variables:
        description:
          - Same as O(hpcai.gpu_cluster.nccl_config#module:variables).
        type: dict
        default: {}
      topology_file:
        description:
          - Same as O(hpcai.gpu_cluster.nccl_config#module:topology_file).
        type: path
      machine:
        description:
          - Same as O(hpcai.gpu_cluster.nccl_config#module:machine).
        type: dict
        default: {}
      containers:
        description:
          - Same as O(hpcai.gpu_cluster.nccl_config#module:containers).
        type: bool
        default: true
      record:
        description:
          - Same as O(hpcai.gpu_cluster.nccl_config#module:record).
        type: path
        default: /var/lib/hpcai/nccl_config.json
  hold:
    description:
      - Options for M(hpcai.gpu_cluster.package_hold), which runs afterwards with the same O(state). Without them it
        does not run.
    type: dict
    suboptions:
      packages:
        description:
          - Same as O(hpcai.gpu_cluster.package_hold#module:packages).
        type: list
        elements: str
        default: []
      automatic_upgrades:
        description:
          - Same as O(hpcai.gpu_cluster.package_hold#module:automatic_upgrades).
        type: bool
        default: true
      only_on:
        description:
          - Same as O(hpcai.gpu_cluster.package_hold#module:only_on).
        type: list
        elements: path
        default: []
      record:
        description:
          - Same as O(hpcai.gpu_cluster.package_hold#module:record).
        type: path
        default: /var/lib/hpcai/package_hold.json
notes:
  - The module needs root privileges.
seealso:
  - module: hpcai.gpu_cluster.nccl_config
  - module: hpcai.gpu_cluster.package_hold
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""
EXAMPLES = r"""
- name: Tune a node for training
  hpcai.gpu_cluster.node_tuning:
    limits:
      memlock: unlimited
      nofile: "1048576"
    sysctl:
      vm.zone_reclaim_mode: 1
    transparent_hugepages: always
    nfs_readahead_kb: 15380
  become: true

- name: Start the fabric manager and name the InfiniBand adapters of an ND96asr_v4, or fail
  hpcai.gpu_cluster.node_tuning:
    strict: true
    services: "{{ sku.node.services }}"
    kernel_modules: "{{ sku.node.kernel_modules }}"
    rdma_names: "{{ dict(sku.infiniband.pci_domains | zip(sku.infiniband.devices)) }}"
    nccl:
      variables: "{{ sku.nccl.conf }}"
      topology_file: "{{ sku.nccl.topology_file }}"
      machine: "{{ sku }}"
  vars:
    sku: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4') }}"
  become: true

- name: Restore the settings of a node that leaves the cluster
  hpcai.gpu_cluster.node_tuning:
    state: absent
    nccl: {}
    hold: {}
  become: true
"""
RETURN = r"""
findings:
  description: What a person should know, with that of O(nccl) and O(hold).
  type: list
  elements: dict
  returned: success
  contains:
    level:
      description: V(error), V(warn) or V(info).
      type: str
    about:
      description: Setting, file or service that it is about.
      type: str
    text:
      description: The finding as a sentence.
      type: str
  sample:
    - level: error
      about: nvidia-fabricmanager
      text: "nvidia-fabricmanager: its unit is not-found"
files:
  description: Files that changed, or in check mode would change.
  type: list
  elements: str
  returned: success
  sample: [/etc/sysctl.d/90-hpcai.conf]
values:
  description: Values of the running kernel that changed, or in check mode would change.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name of the setting.
      type: str
    path:
      description: File in V(/proc) or V(/sys).
      type: str
    before:
      description: Value before.
      type: str
    after:
      description: Value after.
      type: str
  sample: [{name: vm.zone_reclaim_mode, path: /proc/sys/vm/zone_reclaim_mode, before: "0", after: "1"}]
units:
  description: Services and kernel modules that changed, or in check mode would change.
  type: list
  elements: str
  returned: success
  sample: ["nvidia-fabricmanager: active", "nvidia-peermem: loaded"]
nccl:
  description: Return values of M(hpcai.gpu_cluster.nccl_config).
  type: dict
  returned: with O(nccl)
  sample:
    changed: true
    findings: []
    files: [/etc/nccl.conf]
    topology_file: /opt/microsoft/ndv4-topo.xml
    variables: {NCCL_IB_PCI_RELAXED_ORDERING: "1"}
hold:
  description: Return values of M(hpcai.gpu_cluster.package_hold).
  type: dict
  returned: with O(hold)
  sample: {changed: false, findings: [], held: [cuda-drivers], released: []}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _packages
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import FileError, RecordError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import config as nccl_config
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.config import NcclConfError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning import module as tuning
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.settings import SettingError, TuningError

NCCL: dict[str, t.Any] = {
    "variables": {"type": "dict", "default": {}},
    "topology_file": {"type": "path"},
    "machine": {"type": "dict", "default": {}},
    "containers": {"type": "bool", "default": True},
    "record": {"type": "path", "default": "/var/lib/hpcai/nccl_config.json"},
}
HOLD: dict[str, t.Any] = {
    "packages": {"type": "list", "elements": "str", "default": []},
    "automatic_upgrades": {"type": "bool", "default": True},
    "only_on": {"type": "list", "elements": "path", "default": []},
    "record": {"type": "path", "default": "/var/lib/hpcai/package_hold.json"},
}
WORDS: dict[str, t.Any] = {"type": "list", "elements": "str", "default": []}
MAPPING: dict[str, t.Any] = {"type": "dict", "default": {}}
LEVELS = ("warn", "error")  # of findings that somebody should hear of
SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "strict": {"type": "bool", "default": False},
    "limits": MAPPING,
    "sysctl": MAPPING,
    "transparent_hugepages": {"type": "str", "choices": ["", "always", "madvise", "never"], "default": ""},
    "nfs_readahead_kb": {"type": "int", "default": 0},
    "sunrpc_slots": {"type": "int", "default": 0},
    "kernel_modules": WORDS,
    "services": WORDS,
    "retries": {"type": "int", "default": 5},
    "delay": {"type": "float", "default": 5},
    "rdma_names": MAPPING,
    "keep_ipc": {"type": "bool", "default": False},
    "record": {"type": "path", "default": "/var/lib/hpcai/node_tuning.json"},
    "nccl": {"type": "dict", "options": NCCL},
    "hold": {"type": "dict", "options": HOLD},
}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Do one topic after the other; what they found and changed is one result."""
    state = {"state": module.params["state"]}
    result = tuning.perform(module, module.params)
    for name, work in (("nccl", nccl_config.perform), ("hold", _packages.perform)):
        if module.params[name] is not None:
            more: dict[str, t.Any] = work(module, {**module.params[name], **state})
            result["changed"] = result["changed"] or more["changed"]
            result["findings"] = [*result["findings"], *more["findings"]]
            result["diff"] = [*result["diff"], *more.pop("diff", [])]
            result[name] = more
    return result


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except (TuningError, FileError, NcclConfError, OSError, RecordError, SettingError) as exc:
        module.fail_json(msg=f"Cannot tune this node: {exc}")
    texts = {level: [found["text"] for found in result["findings"] if found["level"] == level] for level in LEVELS}
    strict = module.params["strict"]
    for text in texts["warn"] + ([] if strict else texts["error"]):
        module.warn(text)
    if strict and texts["error"]:
        module.fail_json(msg=". ".join(texts["error"]), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
