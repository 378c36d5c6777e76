# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node is wired, as SVG: NUMA nodes with their CPUs, GPUs and network adapters. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import (
    Row,
    Run,
    mapping,
    natural,
    rows,
    strings,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import SYMBOLS, scroll
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import listing, plural
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import worst

CHECK = "gpu_topology"
WIDTH, GAP, ROW, HEAD, CHIP = 1040, 14, 34, 46, 26
MAX_DRAWINGS = 4
Place = t.Tuple[str, int]
Board = t.Dict[t.Any, t.List[Row]]


def wirings(run: Run, verdicts: t.Mapping[Place, str]) -> list[Html]:
    """Draw each distinct wiring once; nodes that are wired alike share a drawing."""
    alike: dict[str, tuple[list[str], list[Row]]] = {}
    for check in run.checks:
        samples = [row for row in rows(check.get("samples")) if "gpu" in row] if check.get("check") == CHECK else []
        if samples:
            key = repr([(row.get("gpu"), row.get("numa_node"), row.get("cpus"), row.get("nics")) for row in samples])
            alike.setdefault(key, ([], samples))[0].append(str(check.get("node")))
    return [
        _drawing(sorted(set(names), key=natural), samples, verdicts)
        for names, samples in [*alike.values()][:MAX_DRAWINGS]
    ]


def _drawing(names: list[str], samples: list[Row], verdicts: t.Mapping[Place, str]) -> Html:
    board: Board = {}
    for row in samples:
        board.setdefault(row.get("numa_node"), []).append(row)
    order = sorted(board, key=lambda node: (node is None, node if isinstance(node, int) else 0))
    tallest = max(len(group) for group in board.values())
    height = HEAD + tallest * ROW + GAP
    wide = (WIDTH - GAP * (len(order) - 1)) / len(order)
    title = f"Wiring of {listing(names)}"
    boxes = [
        _box(node, board[node], index * (wide + GAP), wide, height, names, verdicts) for index, node in enumerate(order)
    ]
    who = f"{listing(names)} alike, each GPU in the colour of its worst" if len(names) > 1 else names[0]
    return el(
        "figure",
        el("figcaption", el("strong", "Wiring"), f" · {who}", f" · {_links(samples)}" if _links(samples) else None),
        scroll(
            el(
                "svg",
                el("title", title),
                boxes,
                viewBox=f"0 0 {WIDTH} {height}",
                role="img",
                aria_label=title,
                class_="plot wiring",
            ),
            title,
        ),
    )


def _box(
    node: t.Any,
    group: list[Row],
    left: float,
    wide: float,
    height: float,
    names: list[str],
    verdicts: t.Mapping[Place, str],
) -> list[Html]:
    cpus = next((str(row["cpus"]) for row in group if row.get("cpus")), "")
    head = "NUMA node unknown" if node is None else f"NUMA {node}"
    drawn = [
        el("rect", x=left + 1, y=1, width=wide - 2, height=height - 2, rx=10, class_="numa"),
        el(
            "text",
            head,
            el("tspan", f"  CPUs {cpus}" if cpus else "", class_="tick"),
            x=left + GAP,
            y=26,
            class_="head",
        ),
    ]
    for index, row in enumerate(sorted(group, key=lambda gpu: str(gpu.get("gpu")).zfill(4))):
        top = HEAD + index * ROW
        verdict = worst(verdicts.get((name, t.cast(int, row.get("gpu"))), "unjudged") for name in names)
        drawn += _device(f"GPU {row.get('gpu')}", row.get("bus_id"), left + GAP, top, wide * 0.42, verdict)
        nics = ", ".join(strings(row.get("nics")))
        if nics:
            middle, start = top + CHIP / 2, left + GAP + wide * 0.42
            drawn.append(el("line", x1=start, x2=left + wide * 0.56, y1=middle, y2=middle, class_="base"))
            drawn += _device(nics, None, left + wide * 0.56, top, wide * 0.44 - GAP, "skipped")
    return drawn


def _device(name: str, address: t.Any, left: float, top: float, wide: float, verdict: str) -> list[Html]:
    symbol = f"{SYMBOLS[verdict]} " if verdict in ("fail", "warn", "error") else ""
    return [
        el(
            "g",
            el("title", f"{name} {address or ''}".strip()),
            el("rect", x=left, y=top, width=wide, height=CHIP, rx=6, class_=f"device v-{verdict}"),
            el(
                "text",
                f"{symbol}{name}",
                x=left + wide / 2,
                y=top + 17.5,
                text_anchor="middle",
                class_=f"v-{verdict} toned",
            ),
        )
    ]


def _links(samples: list[Row]) -> str:
    """Say how GPUs reach each other, when they all do it the same way."""
    pairs = [pair for row in samples for pair in mapping(row.get("links")).items()]
    kinds = {str(kind) for other, kind in pairs if other.startswith("GPU") and str(kind).strip() not in ("X", "")}
    if len(kinds) == 1 and len(samples) > 1:
        return f"{kinds.pop()} between all {plural(len(samples), 'GPU')}"
    return f"GPUs reach each other by {', '.join(sorted(kinds, key=natural))}" if kinds else ""
