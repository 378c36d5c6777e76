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
      - V(local) starts one process here, V(mpirun) starts the ranks by the C(mpirun) of Open MPI, V(srun) by a Slurm
        step.
      - Only V(srun) asks Slurm, and leaves alone nodes that jobs have. With the others, modules that measure GPUs look
        for programs that compute on them.
    type: str
    choices: [local, mpirun, srun]
    default: local
  launcher_path:
    description: Path of C(mpirun) or C(srun). Without it the program on E(PATH) or in its usual place is taken.
    type: path
  launcher_options:
    description:
      - Long options of the launcher, which replace those that are set otherwise.
      - Underscores become dashes, V(true) is a bare flag, V(false) leaves an option out, a list repeats it.
      - Set MCA parameters of Open MPI as variables such as E(OMPI_MCA_pml) in O(environment).
      - A C(srun) step takes whole nodes (C(exclusive)) and waits a minute for them (C(immediate)); inside a job it
        does neither.
    type: dict
    default: {}
  nodes:
    description: Number of nodes. The default is the number of O(hosts), or 1.
    type: int
  ranks_per_node:
    description: Processes on every node.
    type: int
    default: 1
  hosts:
    description: Names of the nodes. They can be left out with V(srun) to let Slurm choose.
    type: list
    elements: str
    default: []
  hostfile:
    description: File with the names of the nodes, for V(mpirun).
    type: path
  container_image:
    description: Image in which V(srun) starts the ranks; needs pyxis on the nodes.
    type: str
  container_mounts:
    description:
      - What the container sees of the node, as C(source:destination[:flags]).
      - The file that E(NCCL_TOPO_FILE) names is mounted without being listed.
    type: list
    elements: str
    default: []
  environment:
    description:
      - Variables for the ranks. Their names are on the command line of the launcher, their values are not.
      - With V(mpirun) and V(srun) E(OMPI_MCA_coll_hcoll_enable) is V(0) unless it is given.
      - Quote values that YAML would not keep as text.
    type: dict
    default: {}
  cpu_masks:
    description:
      - Hexadecimal CPU masks, one for every rank of a node, derived from its topology by the filter
        P(hpcai.gpu_cluster.cpu_masks#filter).
      - V(srun) binds rank by rank. V(mpirun) gets the V(ppr:N:numa) form that follows from the masks, which must then
        be in the order of NUMA nodes (form V(rank_masks) of the filter); O(visible_devices) gives each rank its GPU.
    type: list
    elements: str
    default: []
  visible_devices:
    description:
      - GPUs in the order of the ranks of a node, for E(CUDA_VISIBLE_DEVICES).
      - With this or O(cpu_masks) E(CUDA_DEVICE_ORDER) is V(PCI_BUS_ID) unless it is given.
    type: list
    elements: int
    default: []
"""
