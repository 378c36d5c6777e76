# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpl: the request, the size of the problem, its input file, and CPUs and memory of each rank. Pure."""

from __future__ import annotations

import math
import posixpath
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    validate_expectation,
    validate_seconds,
    validate_units,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.binding import binding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import Topology, from_facts

# Which CPUs and memory each rank of HPL gets, as the arguments of NVIDIA's hpl.sh. Pure.


OPTIONS = ("--gpu-affinity", "--cpu-affinity", "--mem-affinity")


class Affinity(t.NamedTuple):
    """GPU, CPUs and memory of each rank of a node; where they cannot be derived all are empty and ``reason`` is set."""

    gpus: t.Sequence[int] = ()
    cpus: t.Sequence[str] = ()
    memory: t.Sequence[int] = ()
    reason: str = ""

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of hpl.sh."""
        columns: tuple[t.Sequence[t.Any], ...] = (self.gpus, self.cpus, self.memory)
        texts = [":".join(str(value) for value in column) for column in columns]
        return [part for name, text in zip(OPTIONS, texts) if text for part in (name, text)]


def affinity(topology: Topology) -> Affinity:
    """Give rank N the GPU with the Nth index, its own share of the CPUs of that GPU's NUMA node, and its memory."""
    places = sorted(topology.gpus, key=lambda gpu: gpu.index)
    homeless = [str(gpu.index) for gpu in places if gpu.numa_node is None]
    bound = binding(topology, split=True)
    if bound.masks and not homeless:
        cpus = [_cpus(mask) for mask in bound.masks]
        return Affinity([gpu.index for gpu in places], cpus, [gpu.numa_node or 0 for gpu in places])
    reason = f"the NUMA node of GPU {', '.join(homeless)} is unknown" if homeless else bound.reason
    return Affinity(reason=reason)


def _cpus(mask: str) -> str:
    number = int(mask, 16)
    return machine.write(cpu for cpu in range(number.bit_length()) if number >> cpu & 1)


def taken(arguments: t.Sequence[str]) -> list[str]:
    """Return the affinity options among the arguments."""
    return [argument for argument in arguments if argument.partition("=")[0] in OPTIONS]


def understands(program: str) -> bool:
    """Return whether a program has the affinity options: NVIDIA's script does, netlib's xhpl does not."""
    return posixpath.basename(program).endswith(".sh")


# The request, the size of the problem and its input file. Pure.


CHECK = "hpl"
UNITS = {"tflops": "TFLOP/s", "tflops_per_gpu": "TFLOP/s", "residual_failures": "tests"}
MIB = 1 << 20
SPEC: dict[str, Json] = {
    "path": {"type": "str"},
    "dat": {"type": "path"},
    "n": {"type": "int"},
    "nb": {"type": "int", "default": 1024},
    "p": {"type": "int"},
    "q": {"type": "int"},
    "gpus": {"type": "int"},
    "gpu_memory_mib": {"type": "int"},
    "memory_fraction": {"type": "float", "default": 0.8},
    "directory": {"type": "path"},
    "log": {"type": "path"},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "topology": {"type": "dict"},
    "timeout": {"type": "float", "default": 1800},
    **users.SPEC,
    **_checks.SPEC,
    **_checks.NODE,
}

# netlib's HPL.dat, 31 lines of which only those with a name in braces matter to NVIDIA's builds.
_DAT = """HPLinpack benchmark input file
Written by hpcai.gpu_cluster
HPL.out      output file name (if any)
6            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
{n:<12} Ns
1            # of NBs
{nb:<12} NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
{p:<12} Ps
{q:<12} Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
"""


class HplError(ValueError):
    """The request makes no sense; the text is fit for the user."""


class Problem(t.NamedTuple):
    """One system of equations of order ``n`` in blocks of ``nb`` on a grid of ``p`` times ``q`` ranks."""

    n: int
    nb: int
    p: int
    q: int

    @property
    def dat(self) -> str:
        """Return the text of HPL.dat."""
        return _DAT.format(**self._asdict())


def order(memory: int, nb: int, fraction: float) -> int:
    """Return the largest N for so many bytes of GPU memory: floor(sqrt(fraction * memory / 8) / NB) * NB.

    The matrix has N * N numbers of 8 bytes; the rest of the memory is for panels and libraries.
    """
    return math.isqrt(int(memory * fraction / 8)) // nb * nb


def grid(ranks: int, p: int | None = None, q: int | None = None) -> tuple[int, int]:
    """Return the grid that is nearest to a square, with P >= Q as in NVIDIA's samples, or complete the given one."""
    if p is None and q is None:
        q = next(divisor for divisor in range(math.isqrt(ranks), 0, -1) if ranks % divisor == 0)
    shape = (p or ranks // (q or 1), q or ranks // (p or 1))
    if min(shape) < 1 or shape[0] * shape[1] != ranks:
        raise HplError(f"a grid of p {shape[0]} and q {shape[1]} needs as many ranks, not {ranks}")
    return shape


def validate(params: t.Mapping[str, t.Any], launch: Launch) -> None:
    """Refuse what cannot be run or judged, before anything starts."""
    for expectation in params["expect"]:
        validate_expectation(expectation)
    validate_units(params["expect"], CHECK, UNITS)
    for name in ("n", "nb", "p", "q", "gpus", "gpu_memory_mib"):
        if params[name] is not None and params[name] <= 0:
            raise HplError(f"{name} is {params[name]:g}, more than 0 is needed")
    validate_seconds("timeout", params["timeout"])
    if not 0 < params["memory_fraction"] <= 1:
        raise HplError(f"memory_fraction is {params['memory_fraction']:g}, more than 0 and at most 1 is needed")
    rank_affinity(params, launch)
    ineffective = [name for name in ("n", "p", "q", "gpu_memory_mib") if params[name] is not None]
    if params["dat"] and ineffective:
        raise HplError(f"dat {params['dat']} says the problem; {', '.join(ineffective)} would have no effect")
    if not params["dat"]:
        grid(launch.ranks, params["p"], params["q"])
        if launch.kind != "local" and not params["directory"]:
            raise HplError(f"launcher {launch.kind} needs directory, which all nodes see, for HPL.dat; or dat")


def rank_affinity(params: t.Mapping[str, t.Any], launch: Launch) -> Affinity:
    """Return the affinity of a node's ranks, or why it is unknown; refuse a topology beside options for the same."""
    if not params["topology"]:
        return Affinity(reason="no topology was given")
    ranks = affinity(from_facts(params["topology"]))
    twice = taken(params["arguments"]) or (["cpu_masks"] if launch.cpu_masks else [])
    if twice:
        raise HplError(f"topology says where ranks belong; {', '.join(twice)} would say it again")
    if ranks.gpus and len(ranks.gpus) != launch.ranks_per_node:
        raise HplError(f"the topology has {len(ranks.gpus)} GPUs, for {launch.ranks_per_node} ranks per node")
    return ranks


def problem(params: t.Mapping[str, t.Any], launch: Launch, memory_mib: int | None) -> Problem | None:
    """Return the problem to solve; None when the file ``dat`` has it, or the memory is unknown."""
    memory_mib = params["gpu_memory_mib"] or memory_mib
    if params["dat"] or not (params["n"] or memory_mib):
        return None
    gpus = params["gpus"] or launch.ranks
    n = params["n"] or order(gpus * (memory_mib or 0) * MIB, params["nb"], params["memory_fraction"])
    if n < params["nb"]:
        raise HplError(f"n is {n}, less than one block of {params['nb']}")
    return Problem(n, params["nb"], *grid(launch.ranks, params["p"], params["q"]))
