# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that Slurm holds while images are brought to them: as many as are free, one task on each. Private."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import select
import subprocess
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _child
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch_argv import flags
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._source import text_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import (
    image_node,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_files import ImageError, Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_folder import write_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_plan import (
    BLAMED,
    LATE,
    Group,
    answers,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_staging import BusyError, RevokedError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.read import Reader

_HEAD = (
    "#!/usr/bin/env python3\n# From the collection hpcai.gpu_cluster; see the README of its role container_images.\n"
)
# It lives as long as somebody holds the other end of its standard input, so that nothing outlives us.
_HOLD = 'echo "HELD $SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat >/dev/null'
_HELD = re.compile(r"^HELD (\d+) (\S+)\n", re.MULTILINE)
_REVOKED = re.compile(r"allocation \d+ has been revoked")
_BUSY = re.compile(r"nodes are busy|[Ii]mmediate execution impossible|Connection timed out")


def program() -> str:
    """Return the text of the program for nodes, which needs nothing but Python."""
    return _HEAD + text_of(image_node)


def publish(directory: Path, dry: bool) -> bool:
    """Keep the program beside the images for nodes that join; return whether it was not there as it is."""
    path, text = directory / "stage.py", program()
    with contextlib.suppress(OSError):
        if path.read_text(encoding="utf-8") == text:
            return False
    if not dry:
        write_text(path, text)
    return True


class Tools(t.NamedTuple):
    """What is run, and how long it may take."""

    paths: t.Mapping[str, str]
    python: str
    options: t.Mapping[str, t.Any]
    end: float

    @property
    def left(self) -> float:
        """Return the seconds that are left, at least enough for a program to say what is wrong."""
        return max(5.0, self.end - time.monotonic())


class Job:
    """Nodes that are held, and what is done on them."""

    def __init__(self, tools: Tools, number: int, nodes: list[str]) -> None:
        self.tools, self.number, self.nodes = tools, number, nodes

    def step(self, nodes: t.Sequence[str], task: Record) -> tuple[dict[str, Record], str]:
        """Give nodes a task; return what each said, and what srun said."""
        asked = {
            "jobid": self.number,
            "nodes": len(nodes),
            "ntasks": len(nodes),
            "nodelist": compress(nodes),
            "overlap": True,
            "no_kill": True,  # the others go on when a node dies
            "kill_on_bad_exit": 0,
            "mpi": "none",
            "chdir": "/",
        }
        argv = [self.tools.paths["srun"], *flags(asked), self.tools.python, "-", "task", json.dumps(task)]
        outcome = run(argv, self.tools.left, program())
        return answers(outcome.out), last(outcome)

    def broadcast(self, source: str, target: str, fan_out: int) -> str:
        """Send a file to all nodes through Slurm's daemons; return what went wrong."""
        asked = {"jobid": self.number, "force": True, "fanout": fan_out or None}
        outcome = run([self.tools.paths["sbcast"], *flags(asked), source, target], self.tools.left)
        return last(outcome)


class Cluster:
    """The nodes as Slurm has them and lends them."""

    def __init__(self, reader: Reader, tools: Tools) -> None:
        self.nodes, self.partitions, self.tools = reader.nodes, reader.partitions, tools

    def hold(self, group: Group, wait: float) -> t.ContextManager[Job]:
        return allocation(self.tools, group, wait)


def last(outcome: Outcome) -> str:
    """Return why a program's word is not enough, empty when all is well."""
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    telling = [line for line in lines if BLAMED.search(line) or LATE in line]
    return "" if outcome.rc == 0 else "; ".join(telling or lines[-2:]) or outcome.problem


def argv(tools: Tools, group: Group, wait: float) -> list[str]:
    """Ask for as many of the nodes as are free now; one that a job has all of keeps none of the others."""
    defaults = {"job_name": "hpcai_images", "mem": "1G", "cpus_per_task": 1}
    asked = {
        "partition": group.partition,
        "nodes": f"1-{len(group.nodes)}",
        "ntasks_per_node": 1,
        "exclude": compress(group.others, sort=True) or None,
        "immediate": max(1, round(wait)),
        # A job that asks for more than its partition allows would wait for ever.
        "time": max(1, math.ceil(min(tools.left, group.max_time or tools.left) / 60)),
        "no_kill": True,
        "chdir": "/",
    }
    return [tools.paths["salloc"], *flags({**defaults, **tools.options, **asked}), "sh", "-c", _HOLD]


@contextlib.contextmanager
def allocation(tools: Tools, group: Group, wait: float) -> t.Iterator[Job]:
    """Hold nodes while this lasts, and no longer than this process."""
    command = argv(tools, group, wait)
    with tempfile.TemporaryFile() as said, _child.session(
        command, None, subprocess.PIPE, subprocess.PIPE, said.fileno()
    ) as held:
        try:
            found = _HELD.search(_until_held(held, wait + 60))
            if not found:
                held.terminate()
                held.wait(10)
                said.seek(0)
                raise _refusal(said.read().decode(errors="replace"), command)
            yield Job(tools, int(found.group(1)), expand(found.group(2)))
        finally:
            if held.stdin:
                held.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                held.wait(_child.GRACE)


def _until_held(held: subprocess.Popen[bytes], limit: float) -> str:
    """Read what is said until nodes are held, the program ends, or it takes too long."""
    said, end = b"", time.monotonic() + limit
    while held.stdout and not _HELD.search(said.decode(errors="replace")):
        ready = select.select([held.stdout], [], [], max(0.0, end - time.monotonic()))[0]
        piece = os.read(held.stdout.fileno(), 4096) if ready else b""
        if not piece:
            break
        said += piece
    return said.decode(errors="replace")


def _refusal(said: str, command: t.Sequence[str]) -> Exception:
    if _BUSY.search(said):
        return BusyError()
    lines = [line for line in said.splitlines() if "error" in line] or said.splitlines()
    if _REVOKED.search(said):
        told = next(line for line in said.splitlines() if _REVOKED.search(line))
        return RevokedError(f"Slurm gave it and took it back ({told}); look at the node and at slurmctld's log")
    return ImageError(f"Slurm gives no nodes: {' '.join(lines[-1:]) or 'no answer'} (tried: {' '.join(command[:-3])})")
