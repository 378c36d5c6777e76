# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs and memory each rank of HPL gets, as the arguments of NVIDIA's hpl.sh. Pure, private.

The script takes lists with a colon between the ranks of a node: ``--gpu-affinity 0:1 --cpu-affinity 0-23:24-47
--mem-affinity 0:0`` (docs.nvidia.com/nvidia-hpc-benchmarks, HPL_benchmark).
"""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import cpus as cpulist
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.binding import binding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import Topology

OPTIONS = ("--gpu-affinity", "--cpu-affinity", "--mem-affinity")


class Affinity(t.NamedTuple):
    """The places of the ranks of a node, rank after rank; where nothing can be derived all are empty, and why."""

    gpus: t.Sequence[int] = ()
    cpus: t.Sequence[str] = ()
    memory: t.Sequence[int] = ()
    reason: str = ""

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of hpl.sh."""
        columns: tuple[t.Sequence[t.Any], ...] = (self.gpus, self.cpus, self.memory)
        texts = [":".join(str(one) for one in column) for column in columns]
        return [word for name, text in zip(OPTIONS, texts) if text for word in (name, text)]


def affinity(topology: Topology) -> Affinity:
    """Give rank N the GPU with the Nth index, its own share of the CPUs of that GPU's NUMA node, and its memory."""
    places = sorted(topology.gpus, key=lambda gpu: gpu.index)
    homeless = [str(gpu.index) for gpu in places if gpu.numa_node is None]
    bound = binding(topology, split=True)
    if bound.masks and not homeless:
        cpus = [_cpus(mask) for mask in bound.masks]
        return Affinity([gpu.index for gpu in places], cpus, [gpu.numa_node or 0 for gpu in places])
    why = f"the NUMA node of GPU {', '.join(homeless)} is unknown" if homeless else bound.reason
    return Affinity(reason=why)


def _cpus(mask: str) -> str:
    number = int(mask, 16)
    return cpulist.write(cpu for cpu in range(number.bit_length()) if number >> cpu & 1)


def taken(arguments: t.Sequence[str]) -> list[str]:
    """Return which of the options were given by hand."""
    return [word for word in arguments if word.partition("=")[0] in OPTIONS]


def understands(program: str) -> bool:
    """Only NVIDIA's script has these options; netlib's xhpl would read them as nothing."""
    return posixpath.basename(program).endswith(".sh")
