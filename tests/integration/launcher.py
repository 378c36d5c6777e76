# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand in for mpirun and srun: start every rank here, under the name of the host that it would be on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import typing as t

Variables = t.Dict[str, str]
# Options without a value, or with it behind an equals sign, need no table.
SPACED = {"--np", "-np", "-n", "--host", "--hostfile", "--map-by", "--bind-to", "-x", "--mca"}


def main() -> int:
    kind, words = sys.argv[1], sys.argv[2:]
    options: dict[str, str] = {}
    while words and words[0].startswith("-"):
        word, equals, value = words.pop(0).partition("=")
        if word in SPACED and not equals:
            value = words.pop(0)
        if word == "--mca":
            words.pop(0)
        options[word.lstrip("-")] = value
    hosts, ranks = _mpirun(options) if kind == "mpirun" else _srun(options)
    # What comes on standard input goes to every rank.
    with tempfile.TemporaryFile() as given:
        shutil.copyfileobj(sys.stdin.buffer, given)
        given.flush()
        found = []
        for rank in range(ranks):
            variables = {**os.environ, **_variables(kind, options, hosts, ranks, rank)}
            found.append(
                subprocess.Popen(words, env=variables, stdin=os.open(f"/proc/self/fd/{given.fileno()}", os.O_RDONLY))
            )
        return _wait(found)


def _wait(found: list[subprocess.Popen[bytes]]) -> int:
    """Both launchers kill the others when one fails, and return its status."""
    status = 0
    while found:
        pid, code = os.wait()
        found = [process for process in found if process.pid != pid]
        if code and not status:
            status = os.waitstatus_to_exitcode(code) if hasattr(os, "waitstatus_to_exitcode") else code >> 8
            for process in found:
                process.kill()
    return status


def _mpirun(options: dict[str, str]) -> tuple[list[str], int]:
    hosts = [word.partition(":")[0] for word in options.get("host", "c1").split(",")]
    hosts = ["c1" if host == "localhost" else host for host in hosts]
    return hosts, int(options.get("np") or options.get("n") or 1)


def _srun(options: dict[str, str]) -> tuple[list[str], int]:
    nodes = int(options.get("nodes", 1))
    hosts = options.get("nodelist") or ",".join(f"c{number + 1}" for number in range(nodes))
    return hosts.split(","), int(options.get("ntasks", 1))


def _variables(kind: str, options: dict[str, str], hosts: list[str], ranks: int, rank: int) -> Variables:
    each = -(-ranks // len(hosts))
    host, local = hosts[rank // each], str(rank % each)
    shared = {"GPU_TOOLS_HOST": host, "GPU_TOOLS_HOSTS": ",".join(hosts)}
    if kind == "mpirun":
        names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
        return {**shared, **dict(zip(names, (str(rank), str(ranks), local)))}
    slurm = {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(ranks), "SLURM_LOCALID": local}
    # All of them are here, and their names are known to nobody else.
    slurm["SLURM_STEP_NODELIST"] = ",".join("localhost" for dummy in hosts)
    # Without a plug-in for MPI every process is alone, as with the real one.
    return {**shared, **slurm, **({"PMIX_RANK": str(rank)} if options.get("mpi", "none") != "none" else {})}


if __name__ == "__main__":
    sys.exit(main())
