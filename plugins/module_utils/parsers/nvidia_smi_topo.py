# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi topo -m`` (and ``-p2p``): the matrix of links between GPUs and network adapters."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_values as said
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text as words
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, Log, log_of

_CODE = r"NV\d+|PIX|PXB|PHB|NODE|SYS|C2C|X|OK|CNS|GNS|TNS|NS|DR|U"
_CODES = re.compile(rf"(?:{_CODE})+")
_EACH = re.compile(_CODE)
_NAME = re.compile(r"[A-Za-z][A-Za-z_.-]*\d[\w.-]*")
_GPU = re.compile(r"GPU(\d{1,3})")
_TAIL = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID")
_NUMBERED = re.compile(r"NIC\d{1,3}")
_LEGEND = re.compile(r"(NIC\d{1,3}):\s+(\S+)")
_NOTHING = ("", "N/A")


@dataclass(frozen=True)
class TopologyDevice:
    """A row. ``links`` are codes by the other device's name; affinities are None where not printed or N/A."""

    name: str
    links: dict[str, str]
    cpus: str | None
    numa: str | None
    gpu_numa_id: str | None

    @property
    def index(self) -> int | None:
        """Return the number of a GPU, None for an adapter."""
        match = _GPU.fullmatch(self.name)
        return int(match.group(1)) if match else None


@dataclass(frozen=True)
class TopologyRun:
    """One matrix; adapters go by their device names also where the table calls them NIC0.

    ``legend``: the explanation of the codes was there, which is the end of the matrix.
    """

    devices: list[TopologyDevice]
    columns: list[str]
    messages: list[said.Message]
    legend: bool

    @property
    def gpus(self) -> list[TopologyDevice]:
        return [device for device in self.devices if device.index is not None]

    @property
    def nics(self) -> list[str]:
        return [name for name in self.columns if not _GPU.fullmatch(name)]

    @property
    def cause(self) -> Cause | None:
        return self.messages[0] if self.messages else None

    @property
    def complete(self) -> bool:
        whole = [device.name for device in self.devices if len(device.links) == len(self.columns) - 1]
        unnamed = any(_NUMBERED.fullmatch(name) for name in self.columns)
        return self.legend and bool(whole) and whole == self.columns and not unnamed

    @property
    def ok(self) -> bool:
        return self.complete and not self.messages


@dataclass
class _Table:
    columns: list[str]
    tail: list[str]
    rows: list[tuple[str, list[str], dict[str, str]]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    legend: bool = False

    def run(self, messages: list[said.Message]) -> TopologyRun:
        names = {name: self.names.get(name, name) for name in self.columns}
        devices = [
            TopologyDevice(
                names[name],
                {names[other]: code for other, code in zip(self.columns, codes) if other != name},
                tail.get("CPU Affinity"),
                tail.get("NUMA Affinity"),
                tail.get("GPU NUMA ID"),
            )
            for name, codes, tail in self.rows
        ]
        return TopologyRun(devices, list(names.values()), messages, self.legend)


def parse_topo(source: words.Source) -> Log[TopologyRun]:
    """Read one or several matrices; never raises, whatever the text."""
    tables: list[_Table] = []
    messages: list[said.Message] = []
    tail = words.Tail()
    for raw in words.raw_lines(source, tail):
        line = raw.strip(" \t\0")
        head, complaint = _head(line), said.complaint(line)
        if head:
            tables = [*(table for table in tables if table.rows), head]
        elif complaint:
            messages.append(complaint)
        elif tables:
            _see(tables[-1], line, tail.cut)
    return log_of([table.run(messages) for table in tables if table.rows], messages)


def _see(table: _Table, line: str, cut: bool) -> None:
    """Of a line that lacks its end the name of an adapter may be half a name."""
    name = _LEGEND.fullmatch(line)
    if name and cut:
        return
    if name:
        table.names.setdefault(name.group(1), name.group(2))
    elif line == "Legend:":
        table.legend = True
    elif line.split(None, 1)[:1] and line.split(None, 1)[0] in table.columns:
        _row(table, line)


def _head(line: str) -> _Table | None:
    """A header is all names: a row has at least the X of the device with itself."""
    if not line.startswith("GPU"):
        return None
    names = _TAIL.split(line, maxsplit=1)[0].split()
    good = [name for name in names if _NAME.fullmatch(name) and not _CODES.fullmatch(name)]
    if len(good) != len(names) or len(set(names)) != len(names) or not _GPU.fullmatch(names[0]):
        return None
    return _Table(names, _TAIL.findall(line))


def _row(table: _Table, line: str) -> None:
    """Cells are separated by tabs; in pasted copies by blanks, where a wide column can even touch the next."""
    tabs = "\t" in line
    name, *cells = [cell.strip() for cell in line.split("\t")] if tabs else line.split()
    if not tabs:
        cells = [code for cell in cells for code in (_EACH.findall(cell) if _CODES.fullmatch(cell) else [cell])]
    width = len(table.columns)
    codes = cells[:width]
    if len(codes) < width:
        # The output ends here, so that the last code may be the beginning of another one.
        codes = codes[:-1]
    if codes and all(_CODES.fullmatch(code) for code in codes) and all(name != row[0] for row in table.rows):
        table.rows.append((name, codes, _affinities(table.tail, cells[width:])))


def _affinities(names: t.Sequence[str], cells: t.Sequence[str]) -> dict[str, str]:
    """Match cells with the trailing columns, although padding gives rows more tabs than the header has."""
    texts = [cell for cell in cells if cell]
    if len(texts) < len(names) and cells[:1] == [""]:
        names = names[len(names) - len(texts) :]
    return {name: text for name, text in zip(names, texts) if text not in _NOTHING}
