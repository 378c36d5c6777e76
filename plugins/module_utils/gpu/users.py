# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else computes on the GPUs that are measured; Slurm knows only its own jobs. Private.

The numbers of a GPU that is shared say nothing about the GPU: they are not taken, or held against no limit.
"""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch, command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text

SPEC: dict[str, Json] = {"share_gpus": {"type": "bool", "default": False}}
# A driver that hangs is found by the checks of gpu_info.
_PATIENCE = 30.0
_TOLD = 3
_SCRIPT = """\
command -v nvidia-smi >/dev/null || exit 0
node=$(uname -n)
nvidia-smi --query-gpu=uuid,index,name --format=csv,noheader | sed "s/^/gpu, ${node%%.*}, /"
nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name --format=csv,noheader | sed "s/^/user, ${node%%.*}, /"
"""
# They place ranks, of which there is one per node here.
_PLACING = ("map_by", "bind_to", "rank_by", "cpu_set")


class User(t.NamedTuple):
    """A process on a GPU; ``gpu`` is its index, None where nvidia-smi does not list it."""

    node: str
    gpu: int | None
    uuid: str
    pid: int
    name: str


def look(launch: Launch, timeout: float, chosen: t.Container[int | str] | None = None) -> list[User] | None:
    """Return the processes on GPUs (of some indexes or UUIDs, if not on any) of all nodes; None where nobody can tell.

    With srun Slurm gives whole nodes, and who looks at them from outside sees the own step.
    """
    if launch.kind == "srun":
        return []
    options = {name: value for name, value in launch.options.items() if name not in _PLACING}
    one = launch._replace(ranks_per_node=1, cpu_masks=(), options=options)
    argv, environment = command(one, ["sh", "-c", _SCRIPT])
    outcome = run(argv, min(timeout, _PATIENCE), None, environment)
    found = None if outcome.rc is None else read(outcome.out)
    if found is None or chosen is None:
        return found
    return [user for user in found if user.gpu in chosen or user.uuid in chosen]


def read(said: str) -> list[User] | None:
    """Read what the script printed; a name is last since it may hold anything."""
    rows = [cells for cells in (line.split(", ", 4) for line in text.lines(said)) if len(cells) == 5]
    gpus = {(node, uuid): int(index) for kind, node, uuid, index, dummy in rows if kind == "gpu" and index.isdigit()}
    users = [cells for cells in rows if cells[0] == "user" and cells[3].isdigit()]
    found = [User(node, gpus.get((node, uuid)), uuid, int(pid), name) for dummy, node, uuid, pid, name in users]
    return found if gpus or found else None


def visible(launch: Launch) -> list[int | str] | None:
    """Return what CUDA_VISIBLE_DEVICES leaves, None for all and for what is no GPU as a whole."""
    words = [word.strip() for word in launch.environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if not all(word.isdigit() or word.startswith("GPU-") for word in words):
        return None
    return [int(word) if word.isdigit() else word for word in words]


def told(users: t.Sequence[User]) -> str:
    """Name them, and no more than a reader wants to see."""
    parts = [f"GPU {user.uuid if user.gpu is None else user.gpu} of {user.node} by {_who(user)}" for user in users]
    more = [f"{len(parts) - _TOLD} more"] if len(parts) > _TOLD else []
    return f"in use: {', '.join([*parts[:_TOLD], *more])}"


def _who(user: User) -> str:
    return f"{user.name.rpartition('/')[2] or user.name} (pid {user.pid})"


class UserWatch:
    """Looks before and after a measurement; what came in between made the numbers worthless as well."""

    def __init__(self, launch: Launch, params: t.Mapping[str, t.Any], chosen: t.Container[int | str] | None) -> None:
        self._look = functools.partial(look, launch, params["timeout"], chosen)
        self._share = params["share_gpus"]
        self._users = self._look()

    @property
    def refusal(self) -> str:
        """Say why nothing may be measured."""
        return told(self._users) if self._users and not self._share else ""

    def limits(self, expectations: t.Sequence[Json]) -> t.Sequence[Json]:
        """Return those that apply, after the measurement; who did not answer before is not asked again."""
        if self._users == []:
            self._users = self._look()
        return [] if self._users else expectations

    def noted(self, found: Json) -> Json:
        """Return a check record that tells of the programs."""
        if not self._users:
            return found
        before = "no limit applies" if found["verdict"] == "unjudged" else found["reason"]
        context = {**found["context"], "gpus_in_use": [user._asdict() for user in self._users]}
        return {**found, "reason": "; ".join(filter(None, [before, told(self._users)])), "context": context}
