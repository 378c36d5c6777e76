# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sections about stages: how long each took, how to repeat them, earlier runs. Private."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Row, Run, mapping, state, strings
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import chip, counts, section, table
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import (
    NONE,
    clock,
    duration,
    number,
    plural,
    when,
)

STATE_VERDICT = {"done": "pass", "failed": "fail", "skipped": "skipped", "unfinished": "error"}
CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400]
MADE_BY_HAND = {"lab_up": "make lab-up"}
PLAYBOOKS = {"join": "join_nodes", "repair": "repair_node"}  # others have the name of their stage
# Of site.yml; who measured a machine is not shown how to make a cluster of it.
_SITE = {"provision", "configure", "join", "certify", "stack", "train"}


def timeline(run: Run) -> Html:
    """Show each stage as a bar, one after the other, pauses between them left out."""
    total = run.seconds or 1.0
    lines, begin = [], 0.0
    for stage in run.stages:
        seconds = number(stage.get("seconds")) or 0.0
        lines.append(_stage(stage, begin / total, seconds / total))
        begin += seconds
    step = next((step for step in CLOCK_STEPS if total / step <= 6), CLOCK_STEPS[-1])
    marks = [
        el("span", clock(mark) if mark else "0", style=f"left:{100 * mark / total:.2f}%")
        for mark in range(0, int(total * 0.97) + 1, step)
    ]
    scale = el("div", el("div", marks, class_="scale"), class_="stage axis", aria_hidden="true")
    note = f"{plural(len(run.stages), 'stage')} in {duration(run.seconds)}"
    return section("stages", "Stages", note, el("div", lines, scale, class_="timeline"))


def _stage(stage: Row, begin: float, share: float) -> Html:
    how = state(stage)
    verdict = STATE_VERDICT[how]
    changes = {host: int(number(n) or 0) for host, n in mapping(stage.get("changes")).items()}
    changed = sum(changes.values())
    strip = el("div", class_=f"bar v-{verdict}", style=f"left:{100 * begin:.2f}%;width:{100 * share:.2f}%")
    words = duration(stage.get("seconds"))
    # The text stands where there is room: in a long bar, after it or before it.
    inside, after = share > 0.3, begin + share < 0.8
    place = f"right:{100 * (1 - begin):.2f}%"
    if inside or after:
        place = f"left:{100 * (begin if inside else begin + share):.2f}%"
    hosts = strings(stage.get("hosts"))
    detail = plural(changed, "change") if changed else "no change"
    tasks = int(number(stage.get("tasks")) or 0)  # none is known of a stage that a module wrote
    more = "".join(f" · {words}" for words in (tasks and plural(tasks, "task"), plural(len(hosts), "host")) if words)
    return el(
        "div",
        el("div", chip(verdict, ""), el("strong", str(stage.get("stage")).replace("_", " ")), class_="stage-name"),
        el(
            "div",
            strip,
            el("span", words, style=place, class_="stage-time inside" if inside else "stage-time"),
            class_="track",
        ),
        el(
            "div",
            f"skipped: {stage['skipped']}" if how == "skipped" else detail if how != "unfinished" else "did not finish",
            el("span", more) if how != "skipped" else None,
            class_="stage-note",
            title="\n".join(f"{host}: {n} changed" for host, n in sorted(changes.items())) or None,
        ),
        [
            el("p", el("b", host), " ", message, class_="failure")
            for host, message in sorted(mapping(stage.get("failures")).items())
        ],
        class_="stage",
    )


def again(run: Run) -> Html:
    """Show the commands that repeat each stage."""
    stages = list(dict.fromkeys(str(stage.get("stage")) for stage in run.stages))
    commands = {stage.replace("_", " "): _command(stage) for stage in stages}
    if _SITE.intersection(stages):
        commands["everything"] = _command("site")
    lines = [el("div", el("dt", title), el("dd", el("code", command))) for title, command in commands.items()]
    note = "Each stage runs alone too, and changes nothing that is already as wanted."
    return section("again", "Run it again", note, el("dl", lines, class_="commands"))


def _command(stage: str) -> str:
    playbook = PLAYBOOKS.get(stage, stage)
    return MADE_BY_HAND.get(stage, f"ansible-playbook -i <inventory> hpcai.gpu_cluster.{playbook}")


def history(earlier: list[Run]) -> Html | None:
    """Show the runs before this one."""
    if not earlier:
        return None
    body = [
        el(
            "tr",
            el("td", chip(run.verdict)),
            el("td", when(run.start), el("span", f" {run.name}", class_="faint")),
            el("td", ", ".join(str(stage.get("stage")).replace("_", " ") for stage in run.stages)),
            el("td", duration(run.seconds), class_="number"),
            el("td", counts(run.checks) or NONE),
        )
        for run in earlier
    ]
    return section("history", "Earlier runs", None, table(["Verdict", "Started", "Stages", "Took>", "Checks"], body))
