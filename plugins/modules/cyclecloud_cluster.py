#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_cluster
short_description: Have a Slurm cluster in CycleCloud, imported, started, awaited, or removed
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs on the CycleCloud VM with the login of the command line there. It makes the parameters, checks them against
    what the template declares, and says everything that is wrong before anything is sent.
  - Imports when there is no such cluster, or when the digest of template and parameters differs from what was sent.
  - V(started) waits until scheduler and login nodes are Ready and slurmctld answers, and sees that CycleCloud knows
    the GPUs of every array. After a re-import it has C(azslurm scale) run.
  - V(absent) terminates, waits until no node is left, deletes, and waits until CycleCloud does not know the cluster any
    more; disks that are marked persistent may stay.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud_server
  - hpcai.gpu_cluster.cyclecloud_server.cli
  - hpcai.gpu_cluster.cyclecloud_slurm
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  name: {description: Name of the cluster., type: str, required: true}
  state: {description: What shall be., type: str, choices: [started, present, absent], default: started}
  drift:
    description: Whether parameters that somebody changed in the web interface are put back, or only told.
    type: str
    choices: [correct, report]
    default: correct
  ssh: {description: Program that reaches the scheduler., type: str, default: ssh}
  wait: {description: "Seconds: C(ready) for nodes, C(slurm) for slurmctld, C(poll) between looks.", type: dict,
    default: {}}
"""
EXAMPLES = r"""
- name: Remove the cluster
  hpcai.gpu_cluster.cyclecloud_cluster:
    name: ndv4
    state: absent
"""
RETURN = r"""
cluster:
  description: The cluster. In check mode its C(state) is C(planned).
  type: dict
  returned: success
  sample: {name: ndv4, state: ready, digest: 0123abcd, scheduler: {name: scheduler, address: 10.0.0.4}, login: [],
    node_arrays: {ndv4: {machine_type: Standard_ND96asr_v4, max_nodes: 4, gpus_per_node: 8, available: 4}}}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import cluster_task
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.answers import (
    CycleCloudError,
    UnknownOutcome,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import CliError


def main() -> None:
    module = AnsibleModule(argument_spec=cluster_task.SPEC, supports_check_mode=True)
    params = module.params
    try:
        result = cluster_task.perform(params, module.check_mode)
    except (CliError, CycleCloudError, OSError) as exc:
        lost = isinstance(exc, UnknownOutcome)
        hint = f". Does the server run? Ask '{params['home']}/cycle_server status' there" if lost else ""
        module.fail_json(msg=f"Cluster {params['name']} is not {params['state']}: {exc}{hint}")
    for text in result.pop("warnings"):
        module.warn(text)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
