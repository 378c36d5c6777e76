# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The map of the fleet: a square per node, leaf by leaf, coloured by what became of it. Private."""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import STATUSES, Fleet, Node
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import SYMBOLS, chip, section
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import plural, short

WIDTH = 1040
TALLEST = 430
NAMED = 16  # so few squares have room for names
NAMED_PITCH = 86
PITCHES = (NAMED_PITCH, 30, 26, 22, 19, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4)
CROSSED_PITCH = 10
LABEL = 15
# Letters of 11 px are about so wide.
LETTER = 6.3


@dataclasses.dataclass(frozen=True)
class Block:
    """The squares of one leaf."""

    leaf: str
    first: int
    amount: int
    x: float
    y: float


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where every node's square stands; the page's script reads the same numbers."""

    pitch: int
    across: int
    labels: bool
    blocks: list[Block]
    height: float

    def place(self, block: Block, index: int) -> tuple[float, float]:
        """Return the upper left corner of a node's square."""
        row, column = divmod(index - block.first, self.across)
        return block.x + column * self.pitch, block.y + row * self.pitch

    @property
    def side(self) -> float:
        """Return the width of a square, which is less than the pitch by the gap."""
        return self.pitch - (3 if self.pitch > 11 else 2 if self.pitch > 6 else 1)


def layout(leaves: t.Sequence[tuple[str, int, int]]) -> Layout:
    """Choose the largest squares with which the fleet is not too tall."""
    few = sum(leaf[2] for leaf in leaves) <= NAMED
    pitches = PITCHES if few else PITCHES[1:]
    return next(
        (made for pitch in pitches if (made := _try(leaves, pitch)).height <= TALLEST), _try(leaves, PITCHES[-1])
    )


def _try(leaves: t.Sequence[tuple[str, int, int]], pitch: int) -> Layout:
    biggest = max((leaf[2] for leaf in leaves), default=1)
    flat = len(leaves) == 1
    across = WIDTH // pitch if flat else next(wide for wide in (8, 16, 32, 64) if biggest <= wide * 8 or wide == 64)
    across = max(1, min(across, biggest, WIDTH // pitch))
    gap = max(6.0, pitch * 0.8)
    names = max((len(leaf[0]) for leaf in leaves), default=0)
    labels = not flat and names * LETTER <= across * pitch + gap - 4
    in_row = max(1, int((WIDTH + gap) // (across * pitch + gap)))
    wide = across * pitch + gap
    if len(leaves) > in_row > 1:
        wide = (WIDTH - across * pitch) / (in_row - 1)  # the last ends where the page does
    head = LABEL if labels else 0
    blocks: list[Block] = []
    y, tall = 0.0, 0.0
    for index, (leaf, first, amount) in enumerate(leaves):
        if index and index % in_row == 0:
            y, tall = y + tall + gap, 0.0
        blocks.append(Block(leaf, first, amount, round(index % in_row * wide, 1), round(y + head, 1)))
        tall = max(tall, head + math.ceil(amount / across) * pitch)
    return Layout(pitch, across, labels, blocks, y + tall)


def squares(made: Layout, wanted: t.Callable[[int], bool]) -> str:
    """Return one path with the squares of the wanted nodes."""
    side = f"{made.side:g}"
    box = f"h{side}v{side}h-{side}z"
    parts = []
    for block in made.blocks:
        for index in _members(block):
            if wanted(index):
                x, y = made.place(block, index)
                parts.append(f"M{x:g} {y:g}{box}")
    return "".join(parts)


def _crosses(made: Layout, wanted: t.Callable[[int], bool]) -> str:
    """Return a path with a cross in each wanted square: colour alone must not tell."""
    inset, reach = round(made.side * 0.28, 2), round(made.side * 0.44, 2)
    parts = []
    for block in made.blocks:
        for index in _members(block):
            if wanted(index):
                x, y = made.place(block, index)
                left, top = f"{x + inset:g}", f"{y + inset:g}"
                parts.append(f"M{left} {top}l{reach} {reach}m0 -{reach}l-{reach} {reach}")
    return "".join(parts)


def fleet_map(fleet: Fleet) -> Html | None:
    """Show every node as a square."""
    if not fleet.nodes:
        return None
    made = layout(fleet.leaves)
    counts = {status: fleet.amount(status) for status in STATUSES if fleet.amount(status)}
    words = ", ".join(f"{counts[status]} {status}" for status in reversed(list(counts)))
    title = f"{plural(len(fleet.nodes), 'node')}: {words}"
    drawn = el(
        "svg",
        el("title", title),
        [_label(block) for block in made.blocks] if made.labels else None,
        _squares(fleet, made),
        el("path", d="", class_="dim"),
        el("path", d="", class_="ring"),
        viewBox=f"-2 -2 {WIDTH + 4} {max(made.height, made.pitch) + 4:g}",
        role="img",
        aria_label=title,
        class_="fleet-map",
        id="fleet-map",
    )
    note = [chip(STATUSES[status], f"{short(amount)} {status}") for status, amount in counts.items()]
    grouped = "a square per node, leaf by leaf" if len(made.blocks) > 1 else "a square per node"
    return section("map", "The fleet", note, el("div", drawn, class_="map"), el("p", grouped, class_="faint small"))


def _squares(fleet: Fleet, made: Layout) -> list[Html]:
    """Draw a path per status, the worst on top; names where there is room, or else a cross in what is drained."""
    codes = [node.status for node in fleet.nodes]
    parts = []
    for status, verdict in reversed(list(STATUSES.items())):
        path = squares(made, lambda index, status=status: codes[index] == status)  # type: ignore[misc]
        parts += [el("path", d=path, class_=f"square v-{verdict}")] if path else []
    if made.pitch == NAMED_PITCH:
        return parts + [_name(made, block, i, fleet.nodes[i]) for block in made.blocks for i in _members(block)]
    cross = _crosses(made, lambda index: codes[index] == "drained") if made.pitch >= CROSSED_PITCH else ""
    return parts + ([el("path", d=cross, class_="cross")] if cross else [])


def _members(block: Block) -> range:
    return range(block.first, block.first + block.amount)


def _name(made: Layout, block: Block, index: int, node: Node) -> Html:
    x, y = made.place(block, index)
    verdict = STATUSES[node.status]
    middle = x + made.side / 2
    symbol = el("tspan", SYMBOLS[verdict], x=middle, dy=-5, style="font-size:17px")
    most = int(made.side / LETTER) - 1
    word = el("tspan", node.name if len(node.name) <= most else f"…{node.name[1 - most :]}", x=middle, dy=20)
    return el(
        "text", symbol, word, x=middle, y=y + made.side / 2, text_anchor="middle", class_=f"square-name v-{verdict}"
    )


def _label(block: Block) -> Html:
    return el("text", block.leaf or "no leaf", x=block.x, y=block.y - 4, class_="tick")
