# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One pass of the reconciler: look, decide, look again, drain. Private.

Nothing here resumes a node. Slurm has no compare-and-set, so every call stands right behind a look at all nodes.
"""

from __future__ import annotations

import contextlib
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import latches, mailbox, plan, slurm, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.faults import Fault
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.guards import Finding, finding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DrainError, Settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import nodes as slurm_nodes


class Outcome(t.NamedTuple):
    """What a pass did (or would do), and what it has to say."""

    commands: list[list[str]]
    drained: dict[str, str]
    left_alone: list[Json]
    findings: list[Finding]
    new: list[Finding]  # those that the last pass did not have
    before: list[Json]
    after: list[Json]
    problem: str  # an order that Slurm did not carry out


def perform(settings: Settings, dry_run: bool, run: slurm.Run = slurm.command, now: float | None = None) -> Outcome:
    """Make one pass; raises DrainError when nothing could be known, and then nothing was done."""
    moment = time.time() if now is None else now
    with state.acting(settings.state_dir):
        if dry_run:
            return _Pass(settings, run, moment, state.memory(settings.state_dir)).dry()
        with state.alone(settings.state_dir):
            try:
                found = _Pass(settings, run, moment, state.memory(settings.state_dir, aside=True))
                return found.only_say() if settings.dry_run else found.real()
            except OSError as exc:
                raise DrainError(f"{settings.state_dir} cannot be written: {exc.strerror or exc}") from exc


def release(settings: Settings, nodes: t.Sequence[str], dry_run: bool, now: float | None = None) -> list[str]:
    """Forget what is latched of nodes that were proved; return the latches that went."""
    moment = time.time() if now is None else now
    with state.acting(settings.state_dir), contextlib.nullcontext() if dry_run else state.alone(settings.state_dir):
        before, dummy = state.memory(settings.state_dir, aside=not dry_run)
        after = latches.released(before, nodes, mailbox.reports(settings.mailbox), moment)
        if not dry_run:
            state.remember(settings.state_dir, after)
    return sorted(set(before.latches) - set(after.latches))


def hold(
    settings: Settings, nodes: t.Sequence[str], dry_run: bool, run: slurm.Run = slurm.command
) -> tuple[dict[str, str], bool]:
    """Remember the reasons of nodes that a repair resumes; return them, and whether that is news."""
    with state.acting(settings.state_dir), contextlib.nullcontext() if dry_run else state.alone(settings.state_dir):
        before, dummy = state.memory(settings.state_dir, aside=not dry_run)
        after = latches.held(before, [node for node in slurm.nodes(run) if node["name"] in nodes])
        news = dict(after.holds) != dict(before.holds)
        if news and not dry_run:
            state.remember(settings.state_dir, after)
    return {name: after.holds[name] for name in nodes if name in after.holds}, news


class _Pass:
    """What one pass knows; the nodes are the only part that it looks at more than once."""

    def __init__(self, settings: Settings, run: slurm.Run, now: float, memory: tuple[latches.Memory, str]) -> None:
        self.settings, self.run, self.now = settings, run, now
        self.memory, self.forgotten = latches.expired(memory[0], now, settings.latch_days), memory[1]
        self.reports = mailbox.reports(settings.mailbox)
        self.leaves = slurm.leaves(run)
        self.problems: list[str] = []

    def look(self) -> tuple[plan.View, plan.Decision]:
        view = plan.View(slurm.nodes(self.run), self.reports, self.leaves, self.memory, self.now)
        return view, plan.decide(view, self.settings)

    def dry(self, wrong: t.Sequence[str] = ()) -> Outcome:
        view, decision = self.look()
        after = slurm_nodes.after(list(view.nodes), decision.changes)
        drained = {change.name: change.reason for change in decision.changes}
        return self._outcome(view, decision, slurm_nodes.commands(decision.changes), drained, after, wrong)

    def only_say(self) -> Outcome:
        """A controller that is to drain nothing is alive all the same, and nodes look for its sign."""
        wrong = mailbox.sign(self.settings.mailbox)
        outcome = self.dry([wrong] if wrong else [])
        self._save(outcome, latches.settled(self.memory, outcome.before))
        return outcome

    def real(self) -> Outcome:
        wrong = mailbox.sign(self.settings.mailbox)
        first, decision = view, dummy = self.look()
        commands: list[list[str]] = []
        kept: list[Fault] = []
        ordered: list[Fault] = []
        try:
            while not self.problems:
                names = {fault.node for fault in kept}
                due = [change for change in decision.changes if change.name not in names]
                group = [change for change in due if change.reason == due[0].reason]
                if not group:
                    break
                kept += self._keep(kept, [decision.wanted[change.name] for change in group])
                view, decision = self.look()  # what people did meanwhile counts
                group = [change for change in group if change in decision.changes]
                ordered += [decision.wanted[change.name] for change in group]
                commands += self._order(group)
                view, decision = self.look()
        except DrainError as exc:
            self.problems.append(str(exc))
        drained = self._taken({fault.node: fault.reason for fault in ordered}, view.nodes)
        outcome = self._outcome(first, decision, commands, drained, list(view.nodes), [wrong] if wrong else [])
        memory = latches.latched(self.memory, [*decision.drained, *ordered], self.now, self.reports)
        self._save(outcome, latches.settled(memory, view.nodes))
        return outcome

    def _keep(self, kept: list[Fault], faults: list[Fault]) -> list[Fault]:
        """Remember and keep the evidence first, so that nothing is lost if the order is the last thing we do."""
        memory = latches.latched(self.memory, [*kept, *faults], self.now, self.reports)
        state.remember(self.settings.state_dir, memory)
        state.log(self.settings.state_dir, [{"time": self.now, "reason": f.reason, **f._asdict()} for f in faults])
        return faults

    def _order(self, group: list[slurm_nodes.Change]) -> list[list[str]]:
        commands = slurm_nodes.commands(group)
        for argv in commands:
            done = self.run(argv)
            if done.problem:
                self.problems.append(f"{' '.join(argv)} failed: {done.problem}")
        return commands

    def _taken(self, tried: dict[str, str], nodes: t.Sequence[Json]) -> dict[str, str]:
        """Slurm's word counts, not that of the command that told it."""
        now = {node["name"]: node["reason"] for node in nodes if node["drained"]}
        drained = {name: reason for name, reason in tried.items() if now.get(name) == reason}
        missing = sorted(set(tried) - set(drained))
        if missing and not self.problems:
            self.problems.append(f"{', '.join(missing)} did not take the drain, or somebody changed it at once")
        return drained

    def _outcome(
        self,
        view: plan.View,
        decision: plan.Decision,
        commands: list[list[str]],
        drained: dict[str, str],
        after: list[Json],
        wrong: t.Sequence[str] = (),
    ) -> Outcome:
        infra = [text for text in (self.forgotten, *wrong) if text]
        found = [*decision.findings, *(finding("infra", text, []) for text in infra)]
        known = state.known(self.settings.state_dir)
        new = [item for item in found if item not in known]
        before = list(view.nodes)
        return Outcome(commands, drained, decision.left_alone, found, new, before, after, "; ".join(self.problems))

    def _save(self, outcome: Outcome, memory: latches.Memory) -> None:
        folder = self.settings.state_dir
        state.remember(folder, memory)
        document = {"schema": 1, "time": self.now, "findings": outcome.findings, "left_alone": outcome.left_alone}
        state.write(Path(folder, state.FINDINGS), {**document, "problem": outcome.problem})
