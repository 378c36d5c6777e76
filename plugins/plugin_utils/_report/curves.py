# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sections with curves: collectives between nodes, and training. Private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import (
    Row,
    Run,
    is_group,
    rows,
    where,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.nodes import COLUMNS, measurements, of_interest
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import (
    chip,
    counts,
    expected,
    metric_name,
    scroll,
    section,
    table,
    tile,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.plot import Limit, Line, chart, thin
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import (
    NONE,
    duration,
    listing,
    number,
    plural,
    short,
    size,
)

MAX_PLOTS = 6
TRAINING = "training"
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def fabric(run: Run) -> Html | None:
    """Show what was measured between nodes."""
    checks = [check for check in run.checks if is_group(check) and check.get("check") != TRAINING]
    if not checks:
        return None
    locations: dict[str, list[Row]] = {}
    for check in checks:
        locations.setdefault(where(check), []).append(check)
    plots = [plot for location, group in locations.items() if (plot := _bandwidth(location, group))]
    more = (
        f"{len(plots) - MAX_PLOTS} more plots are left out; their numbers are below."
        if len(plots) > MAX_PLOTS
        else None
    )
    sizes = measurements(checks, lambda metric: metric.get("size") is not None)
    return section(
        "fabric",
        "Between nodes",
        counts(checks),
        plots[:MAX_PLOTS],
        el("p", more) if more else None,
        table(COLUMNS, measurements(checks, of_interest)),
        el("details", el("summary", "Every message size"), table(COLUMNS, sizes)) if sizes else None,
    )


def series(checks: t.Iterable[Row]) -> dict[str, list[Row]]:
    """Return the samples that can be plotted, by collective, smallest size first."""
    by_name: dict[str, list[Row]] = {}
    for check in checks:
        for row in rows(check.get("samples")):
            if number(row.get("busbw")) is not None and (number(row.get("size")) or 0) > 0:
                by_name.setdefault(str(row.get("collective") or row.get("op") or check.get("check")), []).append(row)
    return {op: sorted(points, key=lambda row: row["size"]) for op, points in by_name.items()}


def limits(checks: t.Iterable[Row], names: t.Sequence[str]) -> list[Limit]:
    """Return what is expected of the bandwidth, as lines to draw."""
    lines = []
    for check in checks:
        for metric in rows(check.get("metrics")):
            text = _NUMBER.search(str(metric.get("expected") if metric.get("expected") is not None else ""))
            if text is None or metric.get("unit") != "GB/s" or "busbw" not in str(metric.get("name")):
                continue
            op = str(metric.get("collective") or str(check.get("check")).partition(".")[2])
            words = f"{metric_name(metric, op)} of {op}: {expected(metric)} expected"
            words += f" ({metric['source']})" if metric.get("source") else ""
            size_of = number(metric.get("size"))
            lines.append(Limit(float(text[0]), size_of, words, names.index(op) if op in names else 0))
    return lines


def _bandwidth(location: str, checks: list[Row]) -> Html | None:
    groups = series(checks)
    if not groups:
        return None
    lines = [
        Line(op, [(row["size"], row["busbw"]) for row in points], [_say(op, row) for row in points])
        for op, points in groups.items()
    ]
    marks = limits(checks, list(groups))
    title = f"Bus bandwidth over message size, {location}"
    notes = [el("span", el("i", class_=f"s{mark.series % 6} dash"), mark.words) for mark in marks]
    return el(
        "figure",
        el("figcaption", el("strong", "Bus bandwidth over message size"), f" · {location}"),
        scroll(chart(lines, marks, title=title, x="message size", y="bus bandwidth, GB/s", sizes=True), title),
        el("div", notes, class_="legend") if notes else None,
    )


def _say(op: str, row: Row) -> str:
    took = f" in {short(row['time_us'])} µs" if row.get("time_us") is not None else ""
    algorithm = f", algorithm bandwidth {short(row['algbw'])} GB/s" if row.get("algbw") is not None else ""
    return f"{op} {size(row['size'])}: {short(row['busbw'])} GB/s{took}{algorithm}"


def training(run: Run) -> Html | None:
    """Show each training job."""
    checks = [check for check in run.checks if check.get("check") == TRAINING]
    if not run.training and not checks:
        return None
    return section(
        "training",
        "Training",
        counts(checks),
        [_job(job) for job in run.training],
        table(COLUMNS, measurements(checks)) if checks else None,
    )


def _job(job: Row) -> Html:
    losses = [(step, value) for step, raw in enumerate(_losses(job), 1) if (value := number(raw)) is not None]
    done = job.get("state") == "COMPLETED" and not job.get("exit_code")
    hosts: dict[str, list[str]] = {}
    for row in rows(job.get("ranks")):
        hosts.setdefault(str(row.get("host")), []).append(str(row.get("rank")))
    size_of = sum(len(ranks) for ranks in hosts.values())
    facts = [
        tile("Job", job.get("job_id") or NONE, chip("pass" if done else "fail", str(job.get("state")))),
        tile("Throughput", [short(job.get("samples_per_second")), el("small", " samples/s")]),
        tile("Loss", [short(losses[0][1]), el("small", " → "), short(losses[-1][1])]) if losses else None,
        tile("Took", duration(job.get("seconds")), f"exit code {job.get('exit_code', NONE)}"),
        tile("Processes", short(size_of), f"on {plural(len(hosts), 'host')}") if hosts else None,
    ]
    ranks = [
        el("li", el("b", host), f" {'rank' if len(r) == 1 else 'ranks'} {listing(r, 16)}") for host, r in hosts.items()
    ]
    return el("div", el("div", facts, class_="tiles small"), _curve(losses), el("ul", ranks, class_="ranks"))


def _losses(job: Row) -> list[t.Any]:
    losses = job.get("loss")
    return losses if isinstance(losses, list) else []


def _curve(losses: list[tuple[int, float]]) -> Html | None:
    if len(losses) < 2:
        return None
    points = [(float(step), value) for step, value in thin(losses)]
    words = [f"step {step:g}: loss {value:.4g}" for step, value in points]
    name = f"loss {short(points[-1][1])}"
    line = Line(name, points, words, area=True)
    low = min(value for dummy, value in points)
    return el(
        "figure",
        el("figcaption", el("strong", "Training loss"), f" · from {short(points[0][1])} to {short(points[-1][1])}"),
        scroll(chart([line], [], title="Training loss", x="step", y="loss", sizes=False, zero=low >= 0), "loss"),
    )
