#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_cluster
short_description: Import, start and await a Slurm cluster in CycleCloud, or remove it
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Runs as root on the CycleCloud VM, with the login of the command line there.
  - It derives the parameters of the cluster from the options, compares them with what the template declares, and
    reports everything that is wrong before anything is sent.
  - The cluster is imported when it does not exist, or when template or parameters differ from those that were last
    sent. A run that was interrupted is completed by the next one.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud_server
  - hpcai.gpu_cluster.cyclecloud_server.cli
  - hpcai.gpu_cluster.cyclecloud_slurm
attributes:
  check_mode:
    support: full
    details: Where the command line is not installed yet, the options are examined and a new cluster is reported.
  diff_mode:
    support: full
    details: Values of O(secret_parameters) are hidden.
  idempotent:
    support: full
options:
  name:
    description:
      - Name of the cluster. It has letters, digits and C(_ . -), and begins with a letter or digit.
    type: str
    required: true
  state:
    description:
      - V(started) imports and starts the cluster, waits until scheduler and login nodes are Ready and slurmctld
        answers, and fails when CycleCloud does not see the GPUs of a node array. After the import of a change into a
        started cluster it runs C(azslurm scale) on the scheduler. A node that failed before is tried again.
      - V(present) imports the cluster and does not start it.
      - V(absent) terminates the cluster, waits until it has no nodes, deletes it, and waits until CycleCloud does not
        list it. Disks that the template marks as persistent may stay in Azure.
    type: str
    choices:
      - started
      - present
      - absent
    default: started
  drift:
    description:
      - What happens to parameters that somebody changed in CycleCloud. V(correct) imports the cluster again,
        V(report) warns and leaves them.
    type: str
    choices:
      - correct
      - report
    default: correct
  until:
    description:
      - What O(state=started) waits for. V(slurm) waits until slurmctld answers by SSH, and runs C(azslurm scale) where
        it is due. V(nodes) ends once scheduler and login nodes are Ready, before anything is sent to the scheduler, so
        that its host keys can be read in another way first; a C(azslurm scale) that is due is left to the next run.
    type: str
    choices:
      - nodes
      - slurm
    default: slurm
  ssh:
    description:
      - Name or path of the SSH program that reaches the scheduler as user C(cyclecloud), with the key that CycleCloud
        made for its nodes.
    type: str
    default: ssh
  scheduler_host_keys:
    description:
      - Public SSH host keys of the scheduler, as C(/etc/ssh/ssh_host_*_key.pub) has them, from a trusted source such as
        M(hpcai.gpu_cluster.azure_host_keys_info). With them no other key is accepted.
      - Without them the key of the first contact is kept for each node, with a warning that shows it, and the run that
        saw it first runs nothing as root there.
    type: list
    elements: str
    default: []
  wait:
    description:
      - Limits in seconds. C(ready), 2400 by default, for nodes to become Ready and for a removed cluster to go.
        C(slurm), 600 by default, for slurmctld to answer. C(machine_types), 1800 by default, for CycleCloud to know all
        machine types of the cluster before it is imported, and C(arrays), 600 by default, for every node array to have
        its type and its GPUs. C(poll), 10 by default, is the pause between two readings.
    type: dict
    default: {}
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_cluster_info
  - module: hpcai.gpu_cluster.cyclecloud_project
  - module: hpcai.gpu_cluster.cyclecloud_account
  - module: hpcai.gpu_cluster.azure_host_keys_info
"""
EXAMPLES = r"""
- name: Start a Slurm cluster with up to four ND A100 v4 nodes
  hpcai.gpu_cluster.cyclecloud_cluster:
    name: ndv4
    builtin: slurm_template
    region: southcentralus
    subnet_id: train-rg/train-vnet/compute
    node_arrays:
      - name: hpc
        machine_type: Standard_ND96asr_v4
        image: microsoft-dsvm:ubuntu-hpc:2204:22.04.2026060101
        max_nodes: 4
        gpus: 8
    scheduler:
      machine_type: Standard_D8ads_v5
      disk_gb: 128
    shared:
      size_gb: 1024
      sched_size_gb: 64
    slurm:
      node_prefix: ndv4-
  register: ndv4

- name: Import a cluster from a template of your own, with a login node and NFS, without starting it
  hpcai.gpu_cluster.cyclecloud_cluster:
    name: train
    state: present
    template: "{{ lookup('ansible.builtin.file', 'slurm.txt') }}"
    region: southcentralus
    subnet_id: "{{ subnet_id }}"
    node_arrays:
      - name: ndv4
        machine_type: Standard_ND96asr_v4
        image: "{{ preflight.images['microsoft-dsvm:ubuntu-hpc:2204:latest'].urn }}"
        max_nodes: 16
        gpus: 8
      - name: spot
        machine_type: Standard_NC24ads_A100_v4
        image: "{{ preflight.images['microsoft-dsvm:ubuntu-hpc:2204:latest'].urn }}"
        max_nodes: 8
        gpus: 1
        spot: true
    scheduler:
      machine_type: Standard_D8ads_v5
    login:
      count: 1
    shared:
      size_gb: 1024
      sched_size_gb: 64
      nfs_address: 10.80.4.4
      nfs_export: /shared
    slurm:
      project: 4.0.10
      version: 25.11.5
      node_prefix: train-
    accounting:
      url: train.mysql.database.azure.com
      user: slurm
    accounting_password: "{{ vault_slurm_database_password }}"
    project: "{{ uploaded.project }}"
    locker: azure-storage
    drift: report

- name: Remove the cluster, waiting up to an hour for its nodes
  hpcai.gpu_cluster.cyclecloud_cluster:
    name: ndv4
    state: absent
    wait:
      ready: 3600
"""
RETURN = r"""
cluster:
  description:
    - The cluster.
  returned: success
  type: dict
  contains:
    name:
      description:
        - Name of the cluster.
      returned: always
      type: str
      sample: ndv4
    state:
      description:
        - V(ready) after it was started and answered, V(started) with O(until=nodes), V(absent) with O(state=absent),
          and V(planned) in check mode and with O(state=present).
      returned: always
      type: str
      sample: ready
    digest:
      description:
        - SHA-256 digest of template and parameters, without O(secret_parameters).
      returned: unless O(state=absent)
      type: str
      sample: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
    scheduler:
      description:
        - C(name) and C(address) of the scheduler, empty while RV(cluster.state) is V(planned).
      returned: unless O(state=absent)
      type: dict
      sample: {name: scheduler, address: 10.80.1.4}
    login:
      description:
        - C(name) and C(address) of every login node.
      returned: unless O(state=absent)
      type: list
      elements: dict
      sample: [{name: login-1, address: 10.80.1.5}]
    node_arrays:
      description:
        - By the name of each node array its C(machine_type), C(max_nodes) and C(gpus_per_node), and, once the cluster
          is ready, C(available), the number of nodes that CycleCloud could run with the present quota and limits.
      returned: unless O(state=absent)
      type: dict
      sample: {hpc: {machine_type: Standard_ND96asr_v4, max_nodes: 4, gpus_per_node: 8, available: 4}}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import cluster
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import CycleCloudError, UnknownOutcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import CliError


def main() -> None:
    module = AnsibleModule(argument_spec=cluster.SPEC, supports_check_mode=True)
    params = module.params
    try:
        result = cluster.perform(params, module.check_mode)
    except (CliError, CycleCloudError, OSError) as exc:
        lost = isinstance(exc, UnknownOutcome)
        hint = f". Does the server run? Ask '{params['home']}/cycle_server status' there" if lost else ""
        module.fail_json(msg=f"Cluster {params['name']} is not {params['state']}: {exc}{hint}")
    for text in result.pop("warnings"):
        module.warn(text)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
