# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node for the agent's checks: its sysfs, its /proc, its programs and its clock, each as a test wants it."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import registry
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import AgentConfig, BootedHost, Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_gpu import Gpus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.node_access import NodeCommands
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.state import merge
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.info import see
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.inventory import GpuCheckOptions, read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.read import BrokenError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines

Json = t.Dict[str, t.Any]
BOOT = 1795290000.0
NOW = BOOT + 7200.0
MOUNTS = "/dev/sda1 / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\nsrv:/shared /shared nfs4 rw 0 0\n"


class Programs(NodeCommands):
    """Programs that answer from a table; what is not in it is not installed, None never ends."""

    def __init__(self, sysfs: str, proc: str, answers: t.Mapping[str, t.Any]) -> None:
        super().__init__(sysfs, proc)
        self.answers = answers

    def ask(self, argv: t.Sequence[str], data: str | None = None, seconds: float = 5.0) -> Outcome:
        name = argv[0].rpartition("/")[2]
        if name not in self.answers:
            raise BrokenError(f"{name} is not installed")
        found = self.answers[name]
        found = found(list(argv), data) if callable(found) else found
        if found is None:
            raise BrokenError(f"{name} did not end within {seconds:g} s")
        return found if isinstance(found, Outcome) else Outcome(0, found, "", 0.01)


class World:
    """A node whose files can be changed between two runs of a check; what a run keeps the next one finds."""

    def __init__(self, folder: Path, sku: str = "Standard_ND96asr_v4") -> None:
        self.folder, self.now = folder, NOW
        self.profile: Json = load(sku)
        self.answers: dict[str, t.Any] = {}
        self.settings: Json = {}
        self.gpus: Gpus | None = None
        self.statvfs: t.Any = None
        self.state: Json = {"latched": {}, "suites": {}, "kept": {}}
        for name in ("sys", "proc", "spool"):
            (folder / name).mkdir()
        self.file("proc/stat", f"cpu  1 2 3\nbtime {BOOT:.0f}\nprocesses 5\n")
        self.file("proc/mounts", MOUNTS)

    def file(self, path: str, text: str) -> Path:
        found = self.folder / path
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_text(text)
        return found

    def context(self, suite: str = "periodic") -> Context:
        names = {name: str(self.folder / place) for name, place in (("sysfs", "sys"), ("proc", "proc"))}
        spool = str(self.folder / "spool")
        config = AgentConfig(**{"node": "n1", "profile": self.profile, "spool": spool, **names, **self.settings})
        host = BootedHost("boot-1", "host-7")
        made = Context(config, suite, host=host, state=self.state, clock=lambda: self.now)
        made.once("node_commands", lambda: Programs(config.sysfs, config.proc, self.answers))
        if self.gpus is not None:
            made.once("gpus", lambda: self.gpus)
        if self.statvfs is not None:
            made.once("statvfs", lambda: self.statvfs)
        return made

    def run(self, name: str, suite: str = "periodic") -> list[Json]:
        """Run a check as a suite does, and keep what it keeps."""
        context = self.context(suite)
        records = registry.perform(name, context)
        self.state = merge(self.state, suite, self.now, records, context.keeping)
        return records

    def one(self, name: str, suite: str = "periodic") -> Json:
        (found,) = self.run(name, suite)
        return found


def smi(
    world: World,
    card: machines.Card = machines.A100_R470,
    changes: t.Mapping[int, t.Mapping[str, str]] | None = None,
    lost: t.Sequence[int] = (),
    domains: t.Sequence[int] = machines.NDV4_DOMAINS,
    answer: str | None = None,
) -> None:
    """Let nvidia-smi say of the node's GPUs what a test wants."""
    text = machines.document(card, machines.bus_ids(domains), changes, lost=lost) if answer is None else answer

    def runner(argv: t.Sequence[str], *rest: t.Any) -> Outcome:
        return Outcome(0, text if argv[1] == "-q" else "", "", 0.1)

    reading = read(None, 5, None, runner, lambda *words, **options: "/usr/bin/nvidia-smi")
    options = GpuCheckOptions(
        "n1", int((world.profile.get("gpu") or {}).get("count") or 0), expect=world.profile["expect"]
    )
    world.gpus = Gpus(see(reading, options, str(world.folder / "sys"), {}), options, NOW, 0.1)
