# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The section about GPUs: one cell per device, collectives inside a node, and how a node is wired. Private."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.curves import limits
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Row, Run, is_group, natural, rows
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import (
    SYMBOLS,
    chip,
    expected,
    scroll,
    section,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.plot import Limit, Line, chart
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import (
    listing,
    number,
    plural,
    quantity,
    short,
    size,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.wiring import wirings
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import verdict_of, worst

# So many nodes get a row each and so many a curve; the worst are among them.
MAX_NODES = 64
MAX_CURVES = 6
SHOWN = ("h2d", "d2h")
USUAL = ("nccl_tests", "collective_test")
Place = t.Tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Device:
    """What was measured of one GPU: (name of the check, metric)."""

    metrics: list[tuple[str, Row]]

    @property
    def verdict(self) -> str:
        """Return the worst; a pair counts where most pairs of this GPU are bad, for else the other one is to blame."""
        own = [verdict_of(metric) for dummy, metric in self.metrics if metric.get("peer") is None]
        pairs = [verdict_of(metric) for dummy, metric in self.metrics if metric.get("peer") is not None]
        bad = [verdict for verdict in pairs if verdict not in ("pass", "unjudged")]
        pairs = bad if 2 * len(bad) > len(pairs) else [verdict for verdict in pairs if verdict == "pass"]
        return worst(verdict for verdict in [*own, *pairs] if verdict != "unjudged")

    def metric(self, name: str) -> Row | None:
        return next((metric for dummy, metric in self.metrics if metric.get("name") == name), None)


def devices(run: Run) -> dict[Place, Device]:
    """Return every GPU that a check of a single node speaks of."""
    by_place: dict[Place, Device] = {}
    for check in run.checks:
        for metric in [] if is_group(check) else rows(check.get("metrics")):
            gpu = metric.get("gpu")
            if isinstance(gpu, int):
                place = (str(check.get("node")), gpu)
                by_place.setdefault(place, Device([])).metrics.append((str(check.get("check")), metric))
    return by_place


def gpus(run: Run) -> Html | None:
    """Show GPUs by nodes."""
    by_place = devices(run)
    if not by_place:
        return None
    tally = dict.fromkeys(SYMBOLS, 0)
    for device in by_place.values():
        tally[device.verdict] += 1
    note = [chip(verdict, f"{amount} {verdict}") for verdict, amount in tally.items() if amount]
    return section("gpus", "GPUs", note, _grid(by_place), _curves(run), wirings(run, _verdicts(by_place)))


def _verdicts(by_place: dict[Place, Device]) -> dict[Place, str]:
    return {place: device.verdict for place, device in by_place.items()}


def _grid(by_place: dict[Place, Device]) -> list[Html | None]:
    names = sorted({node for node, dummy in by_place}, key=natural)
    columns = sorted({gpu for dummy, gpu in by_place})
    bad = [name for name in names if any(by_place[place].verdict != "pass" for place in by_place if place[0] == name)]
    clean = [name for name in names if name not in set(bad)]
    shown = names if len(names) <= MAX_NODES else sorted((bad + clean)[:MAX_NODES], key=natural)
    body = [
        el("tr", el("th", name, scope="row"), [_cell(name, gpu, by_place.get((name, gpu))) for gpu in columns])
        for name in shown
    ]
    head = el(
        "thead", el("tr", el("th", "Node", scope="col"), [el("th", f"GPU {gpu}", scope="col") for gpu in columns])
    )
    more = len(names) - len(shown)
    return [
        el("p", _legend(by_place), class_="faint"),
        el("div", el("table", head, el("tbody", body), class_="matrix devices"), class_="scroll"),
        el("p", f"{plural(more, 'more node')} without a finding") if more else None,
    ]


def _legend(by_place: dict[Place, Device]) -> str:
    wanted = {
        name: expected(metric)
        for device in by_place.values()
        for name in SHOWN
        if (metric := device.metric(name)) is not None and metric.get("expected") is not None
    }
    if not any(device.metric(name) for device in by_place.values() for name in SHOWN):
        return "The worst verdict of everything that was measured on a GPU."
    words = [f"{name.upper()} {limit}" for name, limit in wanted.items()]
    limits = f" Expected: {', '.join(words)}." if words else ""
    return f"Copy bandwidth host to device and device to host, GB/s, each GPU from its own NUMA node.{limits}"


def _cell(node: str, gpu: int, device: Device | None) -> Html:
    if device is None:
        return el("td", chip("error", "no result"))
    pair = [device.metric(name) for name in SHOWN]
    values = [short(metric.get("value")) if metric else "" for metric in pair]
    text: t.Any = f"{values[0]} / {values[1]}" if any(pair) else device.verdict
    tip = el(
        "div",
        el("strong", f"GPU {gpu} on {node}"),
        el("table", el("tbody", _lines(device))),
        class_="tip",
        role="tooltip",
    )
    return el("td", el("div", chip(device.verdict, text), tip, class_="cell", tabindex="0"))


def _lines(device: Device) -> list[Html]:
    return [
        el(
            "tr",
            el("td", SYMBOLS[verdict_of(metric)], class_=f"v-{verdict_of(metric)} toned"),
            el("td", str(metric.get("name")).replace("_", " ")),
            el("td", quantity(metric.get("value"), metric.get("unit")), class_="number"),
            el("td", expected(metric) or "", class_="faint"),
            el("td", check.replace("_", " "), class_="faint"),
        )
        for check, metric in device.metrics
    ]


def _curves(run: Run) -> list[Html]:
    """Draw collectives inside single nodes: a plot per check and collective; measured again, the last counts."""
    curves: dict[tuple[str, str], dict[str, dict[float, Row]]] = {}
    single = [check for check in run.checks if not is_group(check)]
    for check in single:
        for row in rows(check.get("samples")):
            if number(row.get("busbw")) is not None and (number(row.get("size")) or 0) > 0:
                key = (str(check.get("check")).partition(".")[0], str(row.get("collective")))
                curves.setdefault(key, {}).setdefault(str(check.get("node")), {})[row["size"]] = row
    plots = []
    for (family, name), nodes in curves.items():
        own = [check for check in single if str(check.get("check")).partition(".")[0] == family]
        marks = {mark.words: mark for mark in limits(own, [name]) if f" of {name}: " in mark.words}
        title = f"{name} inside a node" if family in USUAL else f"{name}, {family.replace('_', ' ')}"
        plots.append(_curve(title, {node: list(points.values()) for node, points in nodes.items()}, [*marks.values()]))
    return plots


def _curve(title: str, nodes: dict[str, list[Row]], marks: list[Limit]) -> Html:
    slowest = sorted(nodes, key=lambda node: max(row["busbw"] for row in nodes[node]))[:MAX_CURVES]
    shown = sorted(slowest, key=natural)
    lines = []
    for node in shown:
        points = sorted(nodes[node], key=lambda row: row["size"])
        words = [f"{node}, {size(row['size'])}: {short(row['busbw'])} GB/s" for row in points]
        lines.append(Line(node, [(row["size"], row["busbw"]) for row in points], words))
    notes = [el("span", el("i", class_=f"s{mark.series % 6} dash"), mark.words) for mark in marks]
    which = listing(shown) if len(shown) == len(nodes) else f"the {len(shown)} slowest of {plural(len(nodes), 'node')}"
    if all(len(line.points) == 1 for line in lines):
        drawn = _values(nodes, shown)
    else:
        drawn = scroll(chart(lines, marks, title=title, x="message size", y="bus bandwidth, GB/s", sizes=True), title)
    return el(
        "figure",
        el("figcaption", el("strong", title), f" · {which}"),
        drawn,
        el("div", notes, class_="legend") if notes else None,
    )


def _values(nodes: dict[str, list[Row]], shown: list[str]) -> Html:
    """One size makes no curve."""
    items = []
    for node in shown:
        row = nodes[node][0]
        items.append(el("li", el("b", node), f" {quantity(row['busbw'], 'GB/s')} at {size(row['size'])}"))
    return el("ul", items, class_="ranks")
