# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read, plan, do, and read again: one run of the NVMe scratch, the same for Ansible and for the boot. Private."""

from __future__ import annotations

import contextlib
import fcntl
import time
import typing as t
from collections import Counter
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply import Executor, MountError, told
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply_files import ApplyError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ids import ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Plan, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan import plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read import in_container, read_machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_place import Place

LOCK = "/run/hpcai/nvme_scratch.lock"
_PATIENCE = 120.0
_ROUNDS = 3


Planner = t.Callable[[Machine, Request, bool], Plan]


class Done(t.NamedTuple):
    """What one run found (``first``), did, and left (``last``); ``problem`` is the class and text of what failed."""

    first: Plan
    last: Plan
    after: dict[str, t.Any]
    commands: list[list[str]]
    problem: tuple[str, str] | None = None


class Run:
    """One run on one machine. ``wait`` is how many seconds missing disks may take to appear."""

    def __init__(
        self,
        request: Request,
        boot: bool = False,
        wait: float = 0.0,
        place: Place | None = None,
        planner: Planner = plan,
    ) -> None:
        self.request, self.boot, self.wait, self.planner = request, boot, wait, planner
        self.place = place or Place()
        self.executor = Executor(self.place, self.read)

    def read(self) -> Machine:
        return read_machine(self.place, self.request)

    def look(self, unmountable: str = "") -> tuple[Machine, Plan]:
        """Read and plan, as often as disks are missing and may still come."""
        if in_container(self.place):
            return Machine(), Plan("skipped", "", "in a container; the disks of its host are not its own")
        until = time.monotonic() + self.wait
        while True:
            self.executor.settle()
            machine = replace(self.read(), unmountable=unmountable)
            found = self.planner(machine, self.request, self.boot)
            if not self._missing(machine, found) or time.monotonic() >= until:
                return machine, found
            time.sleep(1)

    def dry(self) -> Done:
        """Only tell what a run would do."""
        found = self.look()[1]
        return Done(found, found, found.after, [told(action) for action in found.actions])

    def bring(self) -> Done:
        """Do it, alone on this machine."""
        with alone(self.place):
            return self._bring()

    def _bring(self) -> Done:
        """Plan until nothing is left to do.

        One round can uncover the next: an array shows its filesystem only when it runs, and a filesystem that was never
        finished shows it when it is mounted. Only the planner knows what may be made anew then.
        """
        machine, found = self.look()
        first, after, said = found, found.after, ""
        problem: tuple[str, str] | None = None
        for dummy in range(_ROUNDS):
            if not found.actions or problem:
                break
            after, before = found.after, said
            said, problem = self._execute(found, machine)
            if said and before:
                problem = ("software", said)
            machine, found = self.look("" if problem else said)
        if not problem and found.actions:
            steps = "; ".join(" ".join(told(action)) for action in found.actions)
            problem = ("infra", f"it did not come to rest: after {_ROUNDS} rounds there is still to do: {steps}")
        return Done(first, found, after, self.executor.commands, problem)

    def _execute(self, found: Plan, machine: Machine) -> tuple[str, tuple[str, str] | None]:
        """Return what mount said against the filesystem, or what else failed."""
        try:
            self.executor.execute(found, machine)
        except MountError as exc:
            return str(exc), None
        except ApplyError as exc:
            return "", (exc.blame, str(exc))
        return "", None

    def _missing(self, machine: Machine, found: Plan) -> bool:
        """Tell whether disks may still come: of those that are expected, or of an array of ours."""
        short = self.request.count is not None and len(found.disks) < self.request.count
        return short or any(finding.code == "missing" for finding in found.findings) or incomplete(machine, found)


def incomplete(machine: Machine, found: Plan) -> bool:
    """Tell whether a selected disk belongs to an array of ours with members that are not there (yet).

    With rebuild that array would be made anew: not because a controller was slow.
    """
    members = [disk.member for disk in machine.disks if disk.member and ours(disk.member.uuid)]
    there = Counter(member.uuid for member in members)
    chosen = [disk.member for disk in machine.disks if disk.id in found.disks]
    return any(member and there[member.uuid] and member.devices > there[member.uuid] for member in chosen)


@contextlib.contextmanager
def alone(place: Place, patience: float = _PATIENCE) -> t.Iterator[None]:
    """Keep the boot unit and Ansible from working on the same disks at the same time."""
    path = place.at(LOCK)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    until = time.monotonic() + patience
    with path.open("w", encoding="ascii") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as exc:
                if time.monotonic() > until:
                    text = f"another run holds {LOCK} for {patience:g} s already (hpcai-scratch.service, or a playbook)"
                    raise ApplyError(f"{text}; wait for it: fuser -v {LOCK}", "infra") from exc
            time.sleep(0.2)
        yield
