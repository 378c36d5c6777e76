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
  nccl:
    description: What M(hpcai.gpu_cluster.nccl_config) does after that. Left out, it does nothing.
    type: dict
    suboptions:
      variables: {type: dict, default: {}, description: As there.}
      topology_file: {type: path, description: As there.}
      machine: {type: dict, default: {}, description: As there.}
      containers: {type: bool, default: true, description: As there.}
      record: {type: path, default: /var/lib/hpcai/nccl_config.json, description: As there.}
  hold:
    description: What M(hpcai.gpu_cluster.package_hold) does after that. Left out, it does nothing.
    type: dict
    suboptions:
      packages: {type: list, elements: str, default: [], description: As there.}
      automatic_upgrades: {type: bool, default: true, description: As there.}
      only_on: {type: list, elements: path, default: [], description: As there.}
      record: {type: path, default: /var/lib/hpcai/package_hold.json, description: As there.}
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
nccl: {description: What M(hpcai.gpu_cluster.nccl_config) returns., type: dict, returned: with O(nccl)}
hold: {description: What M(hpcai.gpu_cluster.package_hold) returns., type: dict, returned: with O(hold)}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _package_hold_task
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import FileError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import RecordError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import config_task as nccl_config
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.conf import NcclError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.files import SettingError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.host import ApplyError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.task import perform

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


def all_of(module: AnsibleModule) -> dict[str, t.Any]:
    """Do one topic after the other; what they found and changed is one result."""
    state = {"state": module.params["state"]}
    result = perform(module, module.params)
    for name, work in (("nccl", nccl_config.perform), ("hold", _package_hold_task.perform)):
        if module.params[name] is not None:
            more: dict[str, t.Any] = work(module, {**module.params[name], **state})
            result["changed"] = result["changed"] or more["changed"]
            result["findings"] = [*result["findings"], *more["findings"]]
            result["diff"] = [*result["diff"], *more.pop("diff", [])]
            result[name] = more
    return result


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
        "nccl": {"type": "dict", "options": NCCL},
        "hold": {"type": "dict", "options": HOLD},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = all_of(module)
    except (ApplyError, FileError, NcclError, OSError, RecordError, SettingError) as exc:
        module.fail_json(msg=f"Cannot tune this node: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
