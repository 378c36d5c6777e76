# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that say how a test program is started; the same as SPEC of module_utils/_launch.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  launcher:
    description:
      - How the test program is started. V(local) starts one process on this machine, V(mpirun) starts the ranks with
        C(mpirun) of Open MPI, V(srun) with a Slurm step.
      - Only V(srun) goes through Slurm and leaves nodes alone that have jobs. With V(local) and V(mpirun) the modules
        that measure GPUs query C(nvidia-smi) for programs that compute on them.
      - V(local) takes neither O(hosts), O(hostfile), O(cpu_masks), O(container_image) nor O(launcher_options), and
        starts a single rank.
    type: str
    choices: [local, mpirun, srun]
    default: local
  launcher_path:
    description:
      - Path of C(mpirun) or C(srun), or the directory that holds it.
      - By default E(PATH) is searched, for C(mpirun) then the usual directories of HPC-X and Open MPI below V(/opt),
        V(/usr/mpi) and V(/usr/lib64). If there is none, the verdict is V(error).
    type: path
  launcher_options:
    description:
      - Long options for C(mpirun) or C(srun), which replace those that the module sets by default.
      - Underscores in a name become dashes. V(true) is an option without a value, V(false) and null leave the option
        out, a list repeats it.
      - Options that the module derives from options of its own, such as C(nodes), C(ntasks), C(nodelist), C(np),
        C(host) and C(container_image), are refused.
      - Set MCA parameters of Open MPI as variables such as E(OMPI_MCA_pml) in O(environment).
      - By default a C(srun) step allocates whole nodes (C(exclusive)) and waits up to 60 seconds for them
        (C(immediate)). Inside a job it sets neither.
    type: dict
    default: {}
  nodes:
    description:
      - Number of nodes, at least 1. If O(hosts) is set, it must be the number of these.
      - The default is the number of O(hosts), or 1.
    type: int
  ranks_per_node:
    description:
      - Number of processes on every node, at least 1.
    type: int
    default: 1
  hosts:
    description:
      - Plain host names of the nodes, each once. With O(launcher=srun) and an empty list Slurm chooses O(nodes) nodes.
      - With O(launcher=mpirun) several nodes need this, O(hostfile), or an enclosing Slurm job. Without any of them the
        ranks start on C(localhost).
    type: list
    elements: str
    default: []
  hostfile:
    description:
      - File with the host names for O(launcher=mpirun), instead of O(hosts).
    type: path
  container_image:
    description:
      - Image in which O(launcher=srun) starts the ranks, in the form that pyxis takes, such as
        V(nvcr.io#nvidia/pytorch:24.05-py3) or the path of a squashfs file. The nodes need pyxis and Enroot.
    type: str
  container_mounts:
    description:
      - Mounts of the container as C(source:destination[:flags]). Only allowed with O(container_image).
      - The file that E(NCCL_TOPO_FILE) names is mounted read-only without being listed.
    type: list
    elements: str
    default: []
  environment:
    description:
      - Environment variables for the ranks. Their names are on the command line of the launcher, where other users can
        read them, their values are not.
      - Quote values that YAML would read as booleans, such as V("yes"). Booleans, null, lists and dictionaries are
        refused.
      - With O(launcher=mpirun) and O(launcher=srun) E(OMPI_MCA_coll_hcoll_enable) is V(0) unless it is set here.
    type: dict
    default: {}
  cpu_masks:
    description:
      - Hexadecimal CPU masks, one for every rank of a node, for example from the filter
        P(hpcai.gpu_cluster.cpu_masks#filter). With an empty list ranks are not bound to CPUs by the module.
      - O(launcher=srun) binds rank by rank. O(launcher=mpirun) maps ranks by C(ppr:N:numa), so that the masks must be
        in the order of the NUMA nodes with as many ranks on each. The form V(rank_masks) of the filter is so, and
        O(visible_devices) then gives each rank its GPU.
    type: list
    elements: str
    default: []
  visible_devices:
    description:
      - Indexes of the GPUs in the order of the ranks of a node, for E(CUDA_VISIBLE_DEVICES). With an empty list the
        variable is not set.
      - If this or O(cpu_masks) is set, E(CUDA_DEVICE_ORDER) is V(PCI_BUS_ID) unless O(environment) sets it, so that
        CUDA numbers the GPUs as C(nvidia-smi) does.
    type: list
    elements: int
    default: []
"""
