# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which other processes compute on the GPUs that are measured; Slurm knows only its own jobs. Private.

Numbers of a shared GPU say nothing about the GPU: it is not measured, or no limit is applied.
"""

from __future__ import annotations

import functools
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch, command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_values import value

SPEC: dict[str, Json] = {"share_gpus": {"type": "bool", "default": False}}
# A driver that hangs is found by the checks of gpu_info.
_PATIENCE = 30.0
_MOST_NAMED = 3
_SCRIPT = """\
command -v nvidia-smi >/dev/null || exit 0
node=$(uname -n)
nvidia-smi --query-gpu=uuid,index,name --format=csv,noheader | sed "s/^/gpu, ${node%%.*}, /"
nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name --format=csv,noheader | sed "s/^/user, ${node%%.*}, /"
"""
# Options that place ranks; the script runs as one rank per node.
_PLACING = ("map_by", "bind_to", "rank_by", "cpu_set")


class User(t.NamedTuple):
    """A process on a GPU; ``gpu`` is its index, None where nvidia-smi does not list it."""

    node: str
    gpu: int | None
    uuid: str
    pid: int
    name: str


def read_users(launch: Launch, timeout: float, chosen: t.Container[int | str] | None = None) -> list[User] | None:
    """Return the processes on GPUs (of some indexes or UUIDs, if not on any) of all nodes; None where nobody can tell.

    With srun there are none: Slurm gives whole nodes, and a look from another step would show the measurement itself.
    """
    if launch.kind == "srun":
        return []
    options = {name: value for name, value in launch.options.items() if name not in _PLACING}
    launch_once = launch._replace(ranks_per_node=1, cpu_masks=(), options=options)
    argv, environment = command(launch_once, ["sh", "-c", _SCRIPT])
    outcome = run(argv, min(timeout, _PATIENCE), None, environment)
    users = None if outcome.rc is None else parse_users(outcome.out)
    if users is None or chosen is None:
        return users
    # One whose GPU nvidia-smi does not name may be on any of them.
    return [user for user in users if user.gpu in chosen or user.uuid in chosen or (user.gpu is None and not user.uuid)]


def parse_users(output: str) -> list[User] | None:
    """Read what the script printed; a name is last since it may hold anything.

    A row of processes that nvidia-smi could not read says that nobody can tell, not that nobody is there.
    """
    rows = [cells for cells in (line.split(", ", 4) for line in text.lines(output)) if len(cells) == 5]
    gpus = {(node, uuid): int(index) for kind, node, uuid, index, dummy in rows if kind == "gpu" and _is_number(index)}
    users = [cells for cells in rows if cells[0] == "user"]
    unread = [cells for cells in users if not _is_number(cells[3])]
    processes = [
        User(node, gpus.get((node, uuid)), value(uuid) or "", int(pid), program(name))
        for dummy, node, uuid, pid, name in users
        if _is_number(pid)
    ]
    return processes if processes or (gpus and not unread) else None


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[0-9]{1,18}", cell) is not None


def visible(launch: Launch) -> list[int | str] | None:
    """Return the devices of CUDA_VISIBLE_DEVICES; None for all GPUs, or where an entry is no whole GPU (MIG)."""
    devices = [device.strip() for device in launch.environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if not all(device.isdigit() or device.startswith("GPU-") for device in devices):
        return None
    return [int(device) if device.isdigit() else device for device in devices]


def in_use_message(users: t.Sequence[User]) -> str:
    """Return a message with the first three of the processes and the number of all others."""
    texts = [
        f"GPU {(user.uuid or 'unknown') if user.gpu is None else user.gpu} of {user.node} by {_who(user)}"
        for user in users
    ]
    more = [f"{len(texts) - _MOST_NAMED} more"] if len(texts) > _MOST_NAMED else []
    return f"in use: {', '.join([*texts[:_MOST_NAMED], *more])}"


def _who(user: User) -> str:
    return f"{program(user.name)} (pid {user.pid})"


def program(name: str) -> str:
    """Return the program alone: what nvidia-smi calls its name may be a user's command line with its arguments."""
    word = "" if name.startswith("[") else name.strip().partition(" ")[0]  # [Insufficient Permissions], [Not Found]
    return word.rpartition("/")[2] or word or name


class UserWatch:
    """Reads the processes on GPUs before and after a measurement; those that came in between count as well.

    Of GPUs by their indexes or UUIDs, or else of those that the ranks see.
    """

    def __init__(
        self, launch: Launch, timeout: float, share: bool, chosen: t.Container[int | str] | None = None
    ) -> None:
        self._read_users = functools.partial(read_users, launch, timeout, visible(launch) if chosen is None else chosen)
        self._share = share
        self._users = self._read_users()

    @property
    def refusal(self) -> str:
        """Return why nothing may be measured; empty when it may."""
        return in_use_message(self._users) if self._users and not self._share else ""

    def shared(self) -> bool:
        """Say after the measurement whether other processes used the GPUs: then no limit applies to its numbers."""
        if self._users == []:
            self._users = self._read_users()
        return bool(self._users)

    def noted(self, check: Json) -> Json:
        """Return the check record with the other processes noted in reason and context."""
        if not self._users:
            return check
        before = "no limit applies" if check["verdict"] == "unjudged" else check["reason"]
        context = {**check["context"], "gpus_in_use": [user._asdict() for user in self._users]}
        return {**check, "reason": "; ".join(filter(None, [before, in_use_message(self._users)])), "context": context}
