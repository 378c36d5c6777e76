# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``hpcai-agent reconcile``: one pass on the controller: look, decide, look again, drain."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import latches, mailbox, permits, plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import state as drain_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.latches import DrainFault
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.plan import Finding, finding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import (
    DEFAULT_CONFIG,
    DrainError,
    DrainSettings,
    load,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import nodes as slurm_nodes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError, fields

# The reconciler's commands to Slurm.


Run = t.Callable[[t.Sequence[str]], _process.Outcome]

_TIMEOUT = 30.0  # slurmctld that is busy answers late; one that is gone must not hold the pass for ever
_SHOW = ("scontrol", "show")


def command(argv: t.Sequence[str]) -> _process.Outcome:
    """Run scontrol with a fixed time format, which its user may have set to another."""
    return _process.run(argv, _TIMEOUT, environment={"SLURM_TIME_FORMAT": TIME_FORMAT})


def read_nodes(run: Run) -> list[state.Record]:
    """Return all nodes; a list without nodes is an error, as nobody reconciles an empty cluster."""
    argv = [*_SHOW, "node", "-a", "-o"]
    done = run(argv)
    if done.problem:
        raise DrainError(f"{' '.join(argv)} failed: {done.problem}")
    try:
        nodes = state.nodes_from_text(done.out)
    except (SlurmError, KeyError) as exc:
        raise DrainError(f"{' '.join(argv)} printed what cannot be read: {exc}") from exc
    if not nodes:
        raise DrainError(f"{' '.join(argv)} named no node")
    return nodes


def leaves(run: Run) -> dict[str, str]:
    """Return the leaf switch (or block) of each node; none where Slurm has no topology."""
    done = run([*_SHOW, "topology"])
    return {} if done.problem else leaves_from_text(done.out)


def leaves_from_text(text: str) -> dict[str, str]:
    """Read topology/tree (switches of level 0) and topology/block."""
    leaf_of: dict[str, str] = {}
    for line in text.splitlines():
        values = fields(line)
        leaf = values.get("SwitchName") if values.get("Level") == "0" else values.get("BlockName")
        try:
            names = state.hosts(values.get("Nodes")) if leaf else []
        except SlurmError:
            names = []
        leaf_of.update({name: leaf for name in names if leaf})
    return leaf_of


# One pass of the reconciler: look, decide, look again, drain.


class PassOutcome(t.NamedTuple):
    """What a pass did (or would do), and its findings."""

    commands: list[list[str]]
    drained: dict[str, str]
    left_alone: list[Json]
    findings: list[Finding]
    new: list[Finding]  # those that the last pass did not have
    before: list[Json]
    after: list[Json]
    problem: str  # an order that Slurm did not carry out


def perform(settings: DrainSettings, dry_run: bool, run: Run = command, now: float | None = None) -> PassOutcome:
    """Make one pass; raises DrainError when nothing could be known, and then nothing was done."""
    moment = time.time() if now is None else now
    with drain_state.acting(settings.state_dir):
        if dry_run:
            return _Pass(settings, run, moment, drain_state.memory(settings.state_dir)).dry()
        with drain_state.alone(settings.state_dir):
            try:
                reconcile_pass = _Pass(settings, run, moment, drain_state.memory(settings.state_dir, aside=True))
                return reconcile_pass.report_only() if settings.dry_run else reconcile_pass.real()
            except OSError as exc:
                raise DrainError(f"{settings.state_dir} cannot be written: {exc.strerror or exc}") from exc


def release(settings: DrainSettings, nodes: t.Sequence[str], dry_run: bool, now: float | None = None) -> list[str]:
    """Remove the latches of nodes that were proved; return their keys."""
    moment = time.time() if now is None else now
    with drain_state.acting(settings.state_dir), contextlib.nullcontext() if dry_run else drain_state.alone(
        settings.state_dir
    ):
        before, dummy = drain_state.memory(settings.state_dir, aside=not dry_run)
        after = latches.released(before, nodes, mailbox.reports(settings.mailbox), moment)
        if not dry_run:
            drain_state.remember(settings.state_dir, after)
    return sorted(set(before.latches) - set(after.latches))


def hold(
    settings: DrainSettings, nodes: t.Sequence[str], dry_run: bool, run: Run = command
) -> tuple[dict[str, str], bool]:
    """Remember the reasons of nodes that a repair resumes; return them, and whether any of them changed."""
    with drain_state.acting(settings.state_dir), contextlib.nullcontext() if dry_run else drain_state.alone(
        settings.state_dir
    ):
        before, dummy = drain_state.memory(settings.state_dir, aside=not dry_run)
        after = latches.held(before, [node for node in read_nodes(run) if node["name"] in nodes])
        news = dict(after.holds) != dict(before.holds)
        if news and not dry_run:
            drain_state.remember(settings.state_dir, after)
    return {name: after.holds[name] for name in nodes if name in after.holds}, news


class _Pass:
    """One pass and what it has read; only the nodes are read more than once."""

    def __init__(self, settings: DrainSettings, run: Run, now: float, memory: tuple[latches.Memory, str]) -> None:
        self.settings, self.run, self.now = settings, run, now
        self.memory, self.forgotten = latches.expired(memory[0], now, settings.latch_days), memory[1]
        self.reports = mailbox.reports(settings.mailbox)
        self.leaves = leaves(run)
        self.problems: list[str] = []
        self.permitted: set[str] = set()

    def look(self) -> tuple[plan.View, plan.DrainDecision]:
        view = plan.View(read_nodes(self.run), self.reports, self.leaves, self.memory, self.now, self.permitted)
        return view, plan.decide(view, self.settings)

    def dry(self) -> PassOutcome:
        self.permitted = permits.holders(self.settings.mailbox, self.now, clean=False)
        return self._would(self.look())

    def _would(self, seen: tuple[plan.View, plan.DrainDecision], wrong: t.Sequence[str] = ()) -> PassOutcome:
        view, decision = seen
        after = slurm_nodes.after(list(view.nodes), decision.changes)
        drained = {change.name: change.reason for change in decision.changes}
        return self._outcome(view, decision, slurm_nodes.commands(decision.changes), drained, after, wrong)

    def _begin(self) -> tuple[tuple[plan.View, plan.DrainDecision], list[str]]:
        """Look, and leave the sign of life with the permits that are left; while they are counted there are none."""
        mailbox.sign(self.settings.mailbox, 0, 0)
        self.permitted = permits.holders(self.settings.mailbox, self.now, clean=True)
        seen = self.look()
        wrong = mailbox.sign(self.settings.mailbox, seen[1].left, seen[1].most)
        return seen, [wrong] if wrong else []

    def report_only(self) -> PassOutcome:
        """Make a pass that drains nothing, but leaves the sign of life that nodes look for, and the findings."""
        seen, wrong = self._begin()
        outcome = self._would(seen, wrong)
        self._save(outcome, latches.settled(self.memory, outcome.before))
        return outcome

    def real(self) -> PassOutcome:
        """Carry out the pass reason by reason; what people did meanwhile is read again before each call."""
        seen, wrong = self._begin()
        first, decision = view, dummy = seen
        commands: list[list[str]] = []
        kept: list[DrainFault] = []
        ordered: list[DrainFault] = []
        try:
            while not self.problems:
                names = {fault.node for fault in kept}
                due = [change for change in decision.changes if change.name not in names]
                group = [change for change in due if change.reason == due[0].reason]
                if not group:
                    break
                kept += self._keep(kept, [decision.to_drain[change.name] for change in group])
                view, decision = self.look()  # what people did meanwhile counts
                group = [change for change in group if change in decision.changes]
                ordered += [decision.to_drain[change.name] for change in group]
                commands += self._order(group)
                view, decision = self.look()
        except DrainError as exc:
            self.problems.append(str(exc))
        drained = self._confirmed({fault.node: fault.reason for fault in ordered}, view.nodes)
        outcome = self._outcome(first, decision, commands, drained, list(view.nodes), wrong)
        memory = latches.latched(self.memory, [*decision.drained, *ordered], self.now, self.reports)
        self._save(outcome, latches.settled(memory, view.nodes))
        return outcome

    def _keep(self, kept: list[DrainFault], faults: list[DrainFault]) -> list[DrainFault]:
        """Write latches and evidence before the drain, so that they are there even if the pass dies with it."""
        memory = latches.latched(self.memory, [*kept, *faults], self.now, self.reports)
        drain_state.remember(self.settings.state_dir, memory)
        drain_state.log(
            self.settings.state_dir, [{"time": self.now, "reason": f.reason, **f._asdict()} for f in faults]
        )
        return faults

    def _order(self, group: list[slurm_nodes.NodeChange]) -> list[list[str]]:
        commands = slurm_nodes.commands(group)
        for argv in commands:
            done = self.run(argv)
            if done.problem:
                self.problems.append(f"{' '.join(argv)} failed: {done.problem}")
        return commands

    def _confirmed(self, tried: dict[str, str], nodes: t.Sequence[Json]) -> dict[str, str]:
        """Return the drains that Slurm shows, whatever the status of the command that set them."""
        now = {node["name"]: node["reason"] for node in nodes if node["drained"]}
        drained = {name: reason for name, reason in tried.items() if now.get(name) == reason}
        missing = sorted(set(tried) - set(drained))
        if missing and not self.problems:
            self.problems.append(f"{', '.join(missing)} did not take the drain, or somebody changed it at once")
        return drained

    def _outcome(
        self,
        view: plan.View,
        decision: plan.DrainDecision,
        commands: list[list[str]],
        drained: dict[str, str],
        after: list[Json],
        wrong: t.Sequence[str] = (),
    ) -> PassOutcome:
        infra = [text for text in (self.forgotten, *wrong) if text]
        findings = [*decision.findings, *(finding("infra", text, []) for text in infra)]
        known = drain_state.known(self.settings.state_dir)
        new = [entry for entry in findings if entry not in known]
        before = list(view.nodes)
        return PassOutcome(
            commands, drained, decision.left_alone, findings, new, before, after, "; ".join(self.problems)
        )

    def _save(self, outcome: PassOutcome, memory: latches.Memory) -> None:
        folder = self.settings.state_dir
        drain_state.remember(folder, memory)
        document = {"schema": 1, "time": self.now, "findings": outcome.findings, "left_alone": outcome.left_alone}
        drain_state.write(Path(folder, drain_state.FINDINGS), {**document, "problem": outcome.problem})


# ``hpcai-agent reconcile``: drain what nodes report to be broken, from the controller.


_WHAT = "Drain the nodes whose health checks found a fault. Nothing is ever resumed."


def main(argv: list[str]) -> int:
    """Return 0 after a pass (findings included), 2 if there was none or Slurm did not carry it out."""
    parser = argparse.ArgumentParser(prog="hpcai-agent reconcile", description=_WHAT)
    parser.add_argument("--config", default=DEFAULT_CONFIG, help="default: %(default)s")
    parser.add_argument("--dry-run", action="store_true", help="say what would be drained, and drain nothing")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.add_argument("--release", metavar="HOSTLIST", help="forget what is latched of nodes that were proved")
    options = parser.parse_args(argv)
    try:
        settings = load(options.config)
        if options.release:
            return _release(settings, options.release, options.dry_run)
        outcome = perform(settings, options.dry_run)
    except (DrainError, HostlistError) as exc:
        sys.stderr.write(f"hpcai-agent reconcile: nothing was done: {exc}\n")
        return 2
    sys.stdout.write(_json(outcome) if options.json else _lines(outcome, options.dry_run or settings.dry_run))
    if outcome.problem:
        sys.stderr.write(f"hpcai-agent reconcile: {outcome.problem}\n")
    return 2 if outcome.problem else 0


def _release(settings: DrainSettings, hostlist: str, dry_run: bool) -> int:
    gone = release(settings, expand(hostlist), dry_run)
    word = "would be released" if dry_run else "released"
    sys.stdout.write("".join(f"{word}: {key}\n" for key in gone) or f"nothing is latched of {hostlist}\n")
    return 0


def _lines(outcome: PassOutcome, dry_run: bool) -> str:
    """Return the lines for the journal: every drain, and each finding once."""
    groups: dict[str, list[str]] = {}
    for name, reason in outcome.drained.items():
        groups.setdefault(reason, []).append(name)
    word = "would drain" if dry_run else "drained"
    lines = [f"{word} {compress(names, sort=True)}: {reason}\n" for reason, names in groups.items()]
    lines += [
        f"{entry['kind']}: {entry['nodes']}{': ' if entry['nodes'] else ''}{entry['text']}\n" for entry in outcome.new
    ]
    return "".join(lines)


def _json(outcome: PassOutcome) -> str:
    keep = {key: getattr(outcome, key) for key in ("commands", "drained", "left_alone", "findings", "problem")}
    return json.dumps(keep, sort_keys=True) + "\n"
