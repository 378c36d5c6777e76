# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that describe a cluster; the same as SPEC of module_utils/cyclecloud/cluster.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  template:
    description:
      - Text of the cluster template, with exactly one C([cluster]) section. Either it or O(builtin) is required.
      - Its specs of CycleCloud's Slurm project, C([[[cluster-init cyclecloud/slurm:...]]]), get the version of the
        project that O(slurm) chooses.
    type: str
    default: ""
  builtin:
    description:
      - Name of a template that comes with the server, such as V(slurm_template_4.0.9), or V(slurm_template) for that of
        the Slurm project that O(slurm) chooses. It is used instead of O(template) and has the node arrays V(hpc),
        V(htc) and V(gpu) only. Its parameters are read from the server.
    type: str
    default: ""
  region:
    description:
      - Azure region of the cluster, such as V(southcentralus). Required unless the cluster is to be removed.
    type: str
  subnet_id:
    description:
      - Subnet of the nodes as C(<resource group>/<network>/<subnet>), or its resource ID. Required unless the cluster
        is to be removed.
    type: str
  credentials:
    description:
      - Name of the cloud account in CycleCloud.
    type: str
    default: azure
  node_arrays:
    description:
      - Node arrays, of which at least one is required unless the cluster is to be removed. Each is a dictionary of the
        following keys.
      - C(name), required, up to 20 lowercase letters and digits that begin with a letter. V(login), V(scheduler) and
        V(defaults) are taken by the template.
      - C(machine_type), required, a VM size such as V(Standard_ND96asr_v4).
      - C(image), required and pinned, as C(publisher:offer:sku:version) with a version of numbers or as a resource ID.
        V(latest) is refused, so that all nodes of a partition have the same driver.
      - C(max_nodes), required, the number of nodes that autoscaling may create, at least 1.
      - C(gpus), the number of GPUs that CycleCloud must see in the machine type. Without it, or with 0, this is not
        examined.
      - C(spot), whether the nodes are Spot VMs, which the array V(hpc) of a built-in template does not support.
      - C(zone), an availability zone. With O(builtin) it also sets C(DefineNodesAvailabilityZone), without which that
        template ignores zones.
      - C(default), for templates that mark the default partition. Not more than one array may have it.
    type: list
    elements: dict
    default: []
  scheduler:
    description:
      - VM of the scheduler. C(machine_type) is required unless the cluster is to be removed. C(image) is the image of
        the first node array by default. C(disk_gb) is the size of the boot disk in GB; 0, the default, leaves it to the
        image.
    type: dict
    default: {}
  login:
    description:
      - Login nodes. C(count) is their number, 0 by default. C(machine_type) and C(image) are those of the scheduler by
        default.
    type: dict
    default: {}
  shared:
    description:
      - File systems of the cluster. C(size_gb) and C(sched_size_gb) are the sizes in GB of the disks of the scheduler
        for C(/shared) and C(/sched); both are required unless the cluster is to be removed.
      - With C(nfs_address) C(/shared) comes from the export C(nfs_export) of that NFS server instead of a disk of the
        scheduler.
    type: dict
    default: {}
  slurm:
    description:
      - C(node_prefix) is what the names of nodes begin with. It is required unless the cluster is to be removed.
      - C(project) is the version of CycleCloud's Slurm project. It has to be one that the server has a record of
        (C(Cloud.Project)), unless C(project_url) gives the https address from which CycleCloud stages it; then the
        record is made. Without C(project) a new cluster takes the newest that the server has, and a cluster that is
        there keeps its own, with a warning where the server has a newer one.
      - C(version) is the version of Slurm that the nodes get, by default that of the project's own template.
    type: dict
    default: {}
  accounting:
    description:
      - MySQL server in which Slurm accounts for jobs, such as an Azure Database for MySQL flexible server. Empty for no
        accounting. Changes of a running cluster take effect when its scheduler is started again.
      - C(url) is its host name and C(user) its user. With the option both are required, and O(accounting_password).
      - C(database) is the name of the database, by default that of the cluster with C(_acct_db). slurmdbd makes it.
      - C(certificate) is the text of the certificates by which the server is trusted, by default those of Azure
        Database for MySQL that CycleCloud's project brings. The connection is always encrypted.
    type: dict
    default: {}
  accounting_password:
    description:
      - Password of the user of O(accounting). It is shown nowhere and cannot be read back; a change is recognized by a
        salted fingerprint of what was sent.
    type: str
    default: ""
  autoscale:
    description:
      - Whether Slurm creates nodes for jobs and removes idle ones.
    type: bool
    default: true
  node_identity:
    description:
      - Resource ID of the user-assigned identity that the nodes carry. Empty for none.
    type: str
    default: ""
  tags:
    description:
      - Azure tags of every resource of a node.
    type: dict
    default: {}
  max_scaleset_size:
    description:
      - Number of nodes that one scale set may hold, which is the number of nodes under one InfiniBand switch.
    type: int
    default: 100
  parameters:
    description:
      - Further parameters of the template, which replace those that follow from other options. A parameter that the
        template does not declare is refused, because CycleCloud would drop it without an error.
    type: dict
    default: {}
  secret_parameters:
    description:
      - Further parameters whose values are never shown. They cannot be read back; a change is recognized by a salted
        fingerprint of what was sent.
    type: dict
    default: {}
  project:
    description:
      - Cluster-init project of the compute nodes, RV(hpcai.gpu_cluster.cyclecloud_project#module:project) of module
        M(hpcai.gpu_cluster.cyclecloud_project). Empty for none.
    type: dict
    default: {}
  specs:
    description:
      - Further cluster-init specs, which run after O(project) in the order of the list. Each has C(project),
        C(version), C(spec), which is C(default) by default, and C(nodes), a list of V(compute), V(login) and
        V(scheduler), which is V(compute) alone by default.
    type: list
    elements: dict
    default: []
  locker:
    description:
      - Locker that holds O(project) and O(specs).
    type: str
    default: ""
"""
