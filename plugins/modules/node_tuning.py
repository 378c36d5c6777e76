#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_tuning
short_description: Limits, kernel settings, modules and services of a compute node, and back
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Writes drop-in files of its own and sets the running kernel to what they say. Each option that is empty leaves its
    part alone, or gives it back after an earlier run had set it.
  - The values that the kernel had are kept in O(record). A value that somebody changed since is theirs and stays.
  - A file of somebody else in the place of one of ours stays; so does a sysctl that a file says otherwise which is read
    after ours. Both are RV(findings).
  - In a container only limits are set. The kernel is its host's, and so is what systemd reads at boot to set it.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full, details: [It supposes that services start and kernel modules load.]}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  state:
    {type: str, choices: [present, absent], default: present, description: V(absent) gives everything back. Services
     that run and modules that are loaded stay until the next boot.}
  limits:
    {type: dict, default: {}, description: "Limits by name: C(memlock), C(stack), C(nofile), C(nproc). For logins by
     PAM, for jobs by a drop-in of slurmd, which takes effect when slurmd starts."}
  sysctl: {type: dict, default: {}, description: Kernel parameters by name.}
  transparent_hugepages:
    {type: str, choices: ["", always, madvise, never], default: "", description: Who gets transparent huge pages.}
  nfs_readahead_kb: {type: int, default: 0, description: Read-ahead of NFS mounts in KiB.}
  sunrpc_slots: {type: int, default: 0, description: Most RPCs in flight for a connection; for NFS mounts made later.}
  kernel_modules: {type: list, elements: str, default: [], description: "Modules to load, now and at every boot."}
  services: {type: list, elements: str, default: [], description: "Services to enable and start."}
  retries: {type: int, default: 5, description: How often a service that does not start is started again.}
  delay: {type: float, default: 5, description: Seconds between.}
  rdma_names:
    {type: dict, default: {}, description: "Names of RDMA adapters by PCI domain, from the next boot on."}
  record: {type: path, default: /var/lib/hpcai/node_tuning.json, description: What the host was like before.}
"""
EXAMPLES = r"""
- name: Tune a node for training
  hpcai.gpu_cluster.node_tuning:
    limits: {memlock: unlimited, nofile: "1048576"}
    sysctl: {vm.zone_reclaim_mode: 1}
    services: [nvidia-fabricmanager]
    rdma_names: {"0101": mlx5_ib0, "0102": mlx5_ib1}
"""
RETURN = r"""
findings:
  description: What somebody should know. C(level) is error, warn or info.
  type: list
  elements: dict
  returned: success
  sample: [{level: error, about: nvidia-fabricmanager, text: "nvidia-fabricmanager: its unit is not-found"}]
files: {description: Files that changed., type: list, elements: str, returned: success, sample: [/etc/sysctl.d/x.conf]}
values:
  description: Values of the running kernel that changed.
  type: list
  elements: dict
  returned: success
  sample: [{name: vm.zone_reclaim_mode, path: /proc/sys/vm/zone_reclaim_mode, before: "0", after: "1"}]
units:
  {description: Services and kernel modules that changed., type: list, elements: str, returned: success,
   sample: ["nvidia-fabricmanager: active"]}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import FileError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import RecordError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.files import SettingError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.host import ApplyError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.task import perform


def main() -> None:
    words: dict[str, t.Any] = {"type": "list", "elements": "str", "default": []}
    mapping: dict[str, t.Any] = {"type": "dict", "default": {}}
    spec = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "limits": mapping,
        "sysctl": mapping,
        "transparent_hugepages": {"type": "str", "choices": ["", "always", "madvise", "never"], "default": ""},
        "nfs_readahead_kb": {"type": "int", "default": 0},
        "sunrpc_slots": {"type": "int", "default": 0},
        "kernel_modules": words,
        "services": words,
        "retries": {"type": "int", "default": 5},
        "delay": {"type": "float", "default": 5},
        "rdma_names": mapping,
        "record": {"type": "path", "default": "/var/lib/hpcai/node_tuning.json"},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = perform(module, module.params)
    except (ApplyError, FileError, OSError, RecordError, SettingError) as exc:
        module.fail_json(msg=f"Cannot tune this node: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
