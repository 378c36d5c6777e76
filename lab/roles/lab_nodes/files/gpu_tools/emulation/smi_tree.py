# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi: everything it says about a GPU, as a tree that is printed as XML, as text or cell by cell."""

from __future__ import annotations

import html  # and not xml.sax.saxutils, which brings an HTTP client: a quarter of what a call takes
import typing as t
from pathlib import Path

LABEL = 42
# What -d NAME shows of the tree.
SECTIONS = {
    "CLOCK": (
        "Clocks",
        "Applications Clocks",
        "Default Applications Clocks",
        "Deferred Clocks",
        "Max Clocks",
        "Max Customer Boost Clocks",
        "Clock Policy",
    ),
    "COMPUTE": ("Compute Mode",),
    "ECC": ("ECC Mode", "ECC Errors"),
    "MEMORY": ("FB Memory Usage", "BAR1 Memory Usage", "Conf Compute Protected Memory Usage"),
    "PAGE_RETIREMENT": ("Retired Pages",),
    "PERFORMANCE": ("Performance State", "Clocks Event Reasons", "Sparse Operation Mode"),
    "PIDS": (),
    "POWER": ("GPU Power Readings", "GPU Memory Power Readings", "Module Power Readings"),
    "ROW_REMAPPER": ("Remapped Rows",),
    "SUPPORTED_CLOCKS": (),
    "TEMPERATURE": ("Temperature",),
    "UTILIZATION": ("Utilization",),
    "VOLTAGE": ("Voltage",),
}


class Node(t.NamedTuple):
    """A value, or a section of values; a name is empty where that form of the output has none."""

    xml: str
    text: str
    value: str
    text_value: str
    children: tuple[t.Any, ...]


def tree(values: t.Mapping[str, object]) -> tuple[Node, ...]:
    """Fill the values of one GPU in."""
    lines = (Path(__file__).parent / "smi_tree.txt").read_text(encoding="utf-8").splitlines()
    rows = [(len(line) - len(line.lstrip()), line.split("|")) for line in lines if not line.startswith("#")]
    return _nodes(rows, 0, values)[0]


def _nodes(
    rows: list[tuple[int, list[str]]], indent: int, values: t.Mapping[str, object]
) -> tuple[tuple[Node, ...], int]:
    found: list[Node] = []
    at = 0
    while at < len(rows) and rows[at][0] >= indent:
        names = ["" if cell.strip() == "-" else cell.strip() for cell in rows[at][1]]
        cells = [cell.format(**values) for cell in names[2:]]
        children, taken = _nodes(rows[at + 1 :], indent + 4, values)
        found.append(Node(names[0], names[1], "".join(cells[:1]), "".join(cells[-1:]), children))
        at += 1 + taken
    return tuple(found), at


def xml(nodes: t.Iterable[Node], depth: int = 2) -> t.Iterator[str]:
    pad = "\t" * depth
    for node in nodes:
        if not node.xml:
            continue
        if node.children:
            yield f"{pad}<{node.xml}>"
            yield from xml(node.children, depth + 1)
            yield f"{pad}</{node.xml}>"
        elif node.xml == "mig_devices":
            yield f"{pad}<{node.xml}>\n{pad}\t{node.value}\n{pad}</{node.xml}>"
        else:
            yield f"{pad}<{node.xml}>{html.escape(node.value, quote=False)}</{node.xml}>"


def text(nodes: t.Iterable[Node], depth: int = 1, only: t.Container[str] | None = None) -> t.Iterator[str]:
    for node in nodes:
        if not node.text or (only is not None and node.text not in only):
            continue
        deeper = node.text.startswith(">")
        label = "    " * (depth + deeper) + node.text.lstrip(">")
        yield label if node.children else f"{label:<{LABEL}}: {node.text_value}"
        yield from text(node.children, depth + 1)


def find(nodes: t.Iterable[Node], path: str) -> str:
    """Return one value by the names of its XML elements."""
    head, dummy, rest = path.partition("/")
    node = next(node for node in nodes if node.xml == head)
    return find(node.children, rest) if rest else node.value


def supported_clocks(memory: int, graphics: int) -> tuple[int, list[int]]:
    """The clocks that may be asked for: one memory clock, graphics clocks in steps of 15 MHz."""
    return memory, list(range(graphics, 209, -15))
