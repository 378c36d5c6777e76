# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""numactl and taskset: start a program as if it were bound to CPUs that only the emulated machine has.

What it was bound to is handed down in a variable, because a program that runs far from its GPU copies more slowly.
"""

from __future__ import annotations

import os
import sys
import typing as t

from emulation.machine import Gpu, Machine

VARIABLE = "GPU_TOOLS_CPUS"
FAR = 0.75


def main(machine: Machine, name: str, arguments: t.Sequence[str]) -> int:
    return _numactl(machine, list(arguments)) if name == "numactl" else _taskset(machine, list(arguments))


def distance(machine: Machine, gpu: Gpu) -> float:
    """What is left of a copy's speed: all of it near the GPU; an unbound program runs on the first node."""
    nodes = {int(node["node"]): expand(node["cpus"]) for node in machine["numa"]}
    bound = os.environ.get(VARIABLE)
    own = expand(bound) if bound else nodes.get(0, set())
    return 1.0 if gpu.numa_node < 0 or own <= nodes.get(gpu.numa_node, set()) else FAR


def expand(text: str) -> set[int]:
    """Read a CPU list as Linux writes it; raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        first, dummy, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _numactl(machine: Machine, words: list[str]) -> int:
    cpus = ""
    nodes = {str(node["node"]): node["cpus"] for node in machine["numa"]}
    while words and words[0].startswith("-"):
        word, dummy, value = words.pop(0).partition("=")
        short = {"-N": "--cpunodebind", "-C": "--physcpubind", "-m": "--membind"}
        if word in short and not value and words:
            value = words.pop(0)
        word = short.get(word, word)
        if word in ("--cpunodebind", "--membind") and not set(value.split(",")) <= set(nodes):
            return _bad(f"libnuma: Warning: node argument {value} is out of range\n\n<{value}> is invalid")
        if word == "--physcpubind" and not _there(machine, value):
            return _bad(f"libnuma: Warning: cpu argument {value} is out of range\n\n<{value}> is invalid")
        if word == "--cpunodebind":
            cpus = ",".join(nodes[node] for node in value.split(","))
        cpus = value if word == "--physcpubind" else cpus
    return _start(words, cpus)


def _taskset(machine: Machine, words: list[str]) -> int:
    listed = False
    while words and words[0].startswith("-"):
        listed = words.pop(0) in ("-c", "--cpu-list") or listed
    if not words:
        return _bad("taskset: bad usage\nTry 'taskset --help' for more information.")
    cpus = words.pop(0)
    if not listed:
        bits = int(cpus.replace(",", ""), 16)
        cpus = ",".join(str(bit) for bit in range(bits.bit_length()) if bits >> bit & 1)
    if not _there(machine, cpus):
        return _bad(f"taskset: failed to set pid {os.getpid()}'s affinity: Invalid argument")
    return _start(words, cpus)


def _there(machine: Machine, cpus: str) -> bool:
    known = set().union(*(expand(node["cpus"]) for node in machine["numa"] if node["cpus"]))
    try:
        return expand(cpus) <= known
    except ValueError:
        return False


def _start(argv: list[str], cpus: str) -> int:
    if not argv:
        return 0
    sys.stdout.flush()
    try:
        os.execvpe(argv[0], argv, {**os.environ, **({VARIABLE: cpus} if cpus else {})})
    except OSError as exc:
        return _bad(f"numactl: execution of `{argv[0]}': {exc.strerror}")


def _bad(message: str) -> int:
    print(message, file=sys.stderr)
    return 1
