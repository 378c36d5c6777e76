# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run an emulated tool as one node of a fleet: with the faults that this node, and who takes part, bring with them.

tool.py NAME ARGUMENT...
"""

from __future__ import annotations

import json
import os
import sys
import typing as t
from pathlib import Path

HOME = Path(__file__).resolve().parent
sys.path[:0] = [str(HOME), str(HOME / "machine/gpu_tools")]

from emulation import __main__ as emulated  # noqa: E402
from emulation import job, machine  # noqa: E402
from faults import effects  # noqa: E402


def members(host: str) -> list[str]:
    """The nodes of this step; a tool that nothing started for MPI is alone."""
    if not any(name in os.environ for name in ("PMIX_RANK", "PMI_RANK")):
        return [host]
    return job.expand(os.environ.get("SLURM_STEP_NODELIST") or host)


def run_name(tool: str) -> str:
    return "/".join([os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_STEP_ID", ""), tool])


def adapters(found: t.Any, ranks: int) -> set[str]:
    """The adapters that the ranks on one node use: each that of its GPU, the one that Slurm has bound it to."""
    return {gpu.nic for gpu in found.cuda_gpus()[:ranks]}


def main() -> int:
    host = os.environ.get("SLURMD_NODENAME") or machine.hostname()
    os.environ.update(
        GPU_TOOLS_HOST=host,
        GPU_TOOLS_MACHINE=str(HOME / "machine/machine.json"),
        GPU_TOOLS_FAULTS=str(HOME / "machine/faults.json"),
        GPU_TOOLS_STATE="/tmp/gpu_tools/state.json",
    )
    hidden = json.loads((HOME / "hidden.json").read_text(encoding="utf-8"))
    plain, together, run = machine.load, members(host), run_name(sys.argv[1])
    ranks = int(os.environ.get("SLURM_NTASKS") or 1) // len(together)

    def load(name: str | None = None) -> t.Any:
        found = plain(name)
        rails = [nic["name"] for nic in found["nics"] if nic["link_layer"] == "InfiniBand"]
        more = effects(hidden, found.host, together, run, rails)
        used = adapters(found, ranks)
        if "ib_slow" in more and len(together) > 1:
            more["ib_slow"] = {name: factor for name, factor in more["ib_slow"].items() if name in used}
        return machine.Machine(found.description, {**found.faults, **more}, found.host)

    machine.load = load
    return emulated.main()


# No interpreter shutdown: a tool that lost its reader ends as a compiled one does.
if __name__ == "__main__":
    os._exit(main())
