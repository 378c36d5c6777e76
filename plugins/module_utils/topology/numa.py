# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bind a program to the CPUs and the memory of one NUMA node. Private.

Decide once with ``method()``, then ``bind()`` every command line with it.
"""

from __future__ import annotations

import shutil
import sys
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run

# Without numactl and taskset the interpreter binds itself and becomes the program.
_OWN = (
    "import os, sys\n"
    "cpus = set()\n"
    "for part in sys.argv[1].split(','):\n"
    "    first, dash, last = part.partition('-')\n"
    "    cpus.update(range(int(first), int(last or first) + 1))\n"
    "os.sched_setaffinity(0, cpus)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


class Method(t.NamedTuple):
    """How this machine binds: numactl, taskset or own; only numactl binds memory, too."""

    name: str
    path: str


def _works(path: str) -> bool:
    """Containers often have numactl and forbid what it does."""
    return run([path, "--localalloc", sys.executable, "-c", ""], 10).rc == 0


def method(which: t.Callable[[str], str | None] = shutil.which, works: t.Callable[[str], bool] = _works) -> Method:
    """Choose the best way there is."""
    numactl = which("numactl")
    if numactl and works(numactl):
        return Method("numactl", numactl)
    taskset = which("taskset")
    return Method("taskset", taskset) if taskset else Method("own", sys.executable)


def bind(argv: t.Sequence[str], cpus: str, node: int | None = None, how: Method | None = None) -> list[str]:
    """Return the command line bound to a CPU list as Linux writes it ("0-23,48") and to the memory of a node.

    What is not known (empty list, no node or -1) is not bound.
    """
    chosen = how or method()
    known = node is not None and node >= 0
    if chosen.name == "numactl":
        binding = [f"--physcpubind={cpus}"] if cpus else [f"--cpunodebind={node}"] if known else []
        binding += [f"--membind={node}"] if known else []
        return [chosen.path, *binding, *argv] if binding else list(argv)
    if not cpus:
        return list(argv)
    if chosen.name == "taskset":
        return [chosen.path, "--cpu-list", cpus, *argv]
    return [chosen.path, "-c", _OWN, cpus, *argv]
