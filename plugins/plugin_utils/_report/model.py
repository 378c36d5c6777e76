# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page shows, worked out from the run record; tolerant of whatever is missing. Private."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import listing, number, plural
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import UNTESTED, count, verdict_of, worst

Row = t.Dict[str, t.Any]
_PLAIN_NAME = re.compile(r"[^\s,\[\]]+\Z")


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: all that was recorded under one name."""

    name: str
    stages: list[Row]
    checks: list[Row]
    training: list[Row]

    @property
    def seconds(self) -> float:
        return sum(number(stage.get("seconds")) or 0.0 for stage in self.stages)

    @property
    def start(self) -> t.Any:
        return next((stage.get("start") for stage in self.stages), None)

    @property
    def emulated(self) -> bool:
        """Tell whether a tool said that no hardware stands behind it."""
        contexts = [mapping(check.get("context")) for check in self.checks]
        return any("emulated" in str(context.get(key)) for context in contexts for key in ("version", "driver"))

    @property
    def verdict(self) -> str:
        """The run's verdict: a failed stage is a fail, a stage that never ended an error."""
        verdicts = [verdict_of(check) for check in self.checks if verdict_of(check) != "skipped"]
        verdicts += ["fail" for stage in self.stages if state(stage) == "failed"]
        verdicts += ["error" for stage in self.stages if state(stage) == "unfinished"]
        return worst(verdicts)

    @property
    def headline(self) -> str:
        """One sentence: the worst thing first."""
        for stage in self.stages:
            if state(stage) == "failed":
                return f"Stage {stage.get('stage')} failed on {listing(sorted(mapping(stage.get('failures'))))}"
            if state(stage) == "unfinished":
                return f"Stage {stage.get('stage')} did not finish"
        judged = [check for check in self.checks if verdict_of(check) not in UNTESTED]
        passed = count(judged).get("pass", 0)
        if not judged:
            return "Nothing was measured in this run"
        if passed == len(judged):
            return f"All {plural(passed, 'check')} passed" if passed > 1 else "The one check passed"
        return f"{passed} of {plural(len(judged), 'check')} passed"


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Checks of single nodes: rows are nodes, columns are checks; a cell holds records (one per GPU, say)."""

    nodes: list[str]
    checks: list[str]
    cells: dict[tuple[str, str], list[Row]]

    def node_verdict(self, node: str) -> str:
        """Return the worst verdict of all checks of a node."""
        return worst(self.cell_verdict(node, check) for check in self.checks if (node, check) in self.cells)

    def cell_verdict(self, node: str, check: str) -> str:
        """Return the worst verdict of one check on one node."""
        return worst(verdict_of(row) for row in self.cells.get((node, check), []))


def rows(value: t.Any) -> list[Row]:
    """Return the dicts of a list; anything else is no list."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def mapping(value: t.Any) -> Row:
    """Return a dict; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def strings(value: t.Any) -> list[str]:
    """Return a list of texts; a single text is a list of one."""
    if isinstance(value, (list, tuple)):
        return [str(item) for item in value]
    return [] if value is None else [str(value)]


def state(stage: Row) -> str:
    """Return done, failed, skipped or unfinished."""
    if mapping(stage.get("failures")):
        return "failed"
    if stage.get("state") == "running":
        return "unfinished"
    return "skipped" if stage.get("skipped") else "done"


def joined(parts: t.Sequence[t.Mapping[str, t.Any]]) -> Row:
    """Return one entry for what a run did under one name, at several times; of several ends the worst counts."""
    states = [part.get("state") for part in parts]
    sums: dict[str, dict[str, int]] = {"changes": {}, "verdicts": {}}
    for part in parts:
        for key, counts in sums.items():
            for name, value in mapping(part.get(key)).items():
                counts[name] = counts.get(name, 0) + int(number(value) or 0)
    return {
        **parts[0],
        **sums,
        "state": next((state for state in ("failed", "running") if state in states), "done"),
        "seconds": sum(number(part.get("seconds")) or 0.0 for part in parts),
        "hosts": list(dict.fromkeys(host for part in parts for host in strings(part.get("hosts")))),
        "tasks": sum(int(number(part.get("tasks")) or 0) for part in parts),
        "failures": {host: text for part in parts for host, text in mapping(part.get("failures")).items()},
        "skipped": None if any(not part.get("skipped") for part in parts) else parts[0]["skipped"],
    }


def _ended_alike(stages: t.Sequence[Row]) -> list[Row]:
    """Return a run's stages: plays of two may alternate, and what one did in parts is one entry if all ended alike."""
    parts: dict[tuple[str, str], list[Row]] = {}
    for stage in stages:
        parts.setdefault((str(stage.get("stage")), state(stage)), []).append(stage)
    return [joined(own) if len(own) > 1 else own[0] for own in parts.values()]


def runs(record: Row) -> list[Run]:
    """Split the record into runs, the latest first. The stage that draws this very page is left out."""
    stages = [
        stage
        for stage in rows(record.get("stages"))
        if not (stage.get("stage") == "report" and state(stage) == "unfinished")
    ]
    checks, training = rows(record.get("checks")), rows(record.get("training"))
    names: dict[str, None] = {}
    for row in [*stages, *checks, *training]:
        names.setdefault(str(row.get("run")), None)
    of_runs = {
        name: [[row for row in part if str(row.get("run")) == name] for part in (stages, checks, training)]
        for name in names
    }
    listed = [Run(name, _ended_alike(own), *others) for name, (own, *others) in of_runs.items()]
    order = {run.name: index for index, run in enumerate(listed)}
    return sorted(listed, key=lambda run: (str(run.start or ""), order[run.name]), reverse=True)


def is_group(check: Row) -> bool:
    """Tell whether a check was made between nodes and not on one."""
    scope = mapping(check.get("scope"))
    node = str(check.get("node") or "")
    between = scope.get("partners") or scope.get("group") or scope.get("pair")
    return bool(between) or not _PLAIN_NAME.match(node)


def subject(record: t.Mapping[str, t.Any]) -> str:
    """Return what the page is about: the cluster, or the nodes that are in the record of none."""
    nodes = list(dict.fromkeys(node for check in rows(record.get("checks")) if (node := str(check.get("node") or ""))))
    return str(record.get("cluster") or listing(nodes, 3) or "cluster")


def title(check: Row) -> str:
    """Name a check as people read it."""
    words = [str(check.get("check")).replace("_", " "), str(mapping(check.get("context")).get("collective") or "")]
    return ": ".join(word for word in words if word)


def where(check: Row) -> str:
    """Name the node or nodes of a check."""
    scope = mapping(check.get("scope"))
    for value in (scope.get("group"), scope.get("partners"), scope.get("pair"), check.get("node")):
        names = strings(value)
        if names and any(names):
            return listing(names)
    return "the cluster"


def matrix(run: Run) -> Matrix:
    """Arrange the checks of single nodes."""
    cells: dict[tuple[str, str], list[Row]] = {}
    checks: dict[str, None] = {}
    nodes: dict[str, None] = {}
    for row in run.checks:
        if not is_group(row):
            node, check = str(row.get("node")), str(row.get("check"))
            nodes.setdefault(node)
            checks.setdefault(check)
            cells.setdefault((node, check), []).append(row)
    return Matrix(sorted(nodes, key=natural), list(checks), cells)


def natural(name: str) -> list[t.Any]:
    """Sort c2 before c10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def untested(run: Run) -> list[tuple[str, str, str, str]]:
    """Return (what, where, verdict, reason) of whatever was planned and not measured."""
    gaps = [
        (f"stage {stage.get('stage')}", "all hosts", "skipped", str(stage["skipped"]))
        for stage in run.stages
        if state(stage) == "skipped"
    ]
    gaps += [
        (title(row), where(row), verdict_of(row), str(row.get("reason") or "no reason given"))
        for row in run.checks
        if verdict_of(row) in UNTESTED
    ]
    table = matrix(run)
    for node in table.nodes:
        for check in table.checks:
            if (node, check) not in table.cells:
                gaps.append((check.replace("_", " "), node, "error", "no result arrived from this node"))
    return gaps
