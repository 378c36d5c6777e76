# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi -q``, also with ``-d``: a tree by indentation, read into values by their path.

One name stands for several things (Graphics: of Clocks, Max Clocks, Applications Clocks), so a path is the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text as words
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, Log, log_of

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_SEPARATOR = " :"
_TOP = ("Timestamp", "Driver Version", "KMD Version", "CUDA Version", "CUDA UMD Version", "Attached GPUs")
# What every GPU has: where all of it is errors, the GPU does not answer.
_VITAL = (
    "Performance State",
    "FB Memory Usage/Total",
    "Temperature/GPU Current Temp",
    "Clocks/Graphics",
    "Clocks/SM",
    "Clocks/Memory",
)
_DEPTH = 16
_MOST = 4096
_BEGIN = "NVSMI LOG"


@dataclass(frozen=True)
class QueryGpu:
    """Texts by path, such as ``{"Clocks/Graphics": "1410 MHz"}``; ``processes`` has those of each Process ID."""

    bus_id: str
    values: dict[str, str] = field(default_factory=dict)
    processes: list[dict[str, str]] = field(default_factory=list)

    def get(self, *paths: str) -> str | None:
        """Return the first of some paths that has a value: sections are called differently by driver versions."""
        values = (nvidia_smi_values.plain(self.values.get(path)) for path in paths)
        return next((text for text in values if text is not None), None)

    @property
    def error(self) -> str | None:
        """Return why the GPU does not answer, None when it does."""
        vital = [self.values[path] for path in _VITAL if path in self.values]
        texts = (text for path, text in self.values.items() if not path.startswith("Processes"))
        return nvidia_smi_values.silent(texts, vital)

    def measured(self, unit: str, *paths: str) -> float | None:
        """Return the first of some paths that has a number with this unit."""
        return nvidia_smi_values.measured(self.get(*paths), unit)


@dataclass(frozen=True)
class QueryRun:
    """One output. It has no end marker: it is complete when no GPU and no section of one is missing."""

    values: dict[str, str]
    gpus: list[QueryGpu]
    messages: list[nvidia_smi_values.Message]

    @property
    def driver_version(self) -> str | None:
        """Return the kernel driver's version: R610 calls it KMD Version, and keeps the old name till CUDA 14."""
        return self._first("Driver Version", "KMD Version")

    @property
    def cuda_version(self) -> str | None:
        return self._first("CUDA Version", "CUDA UMD Version")

    def _first(self, *names: str) -> str | None:
        values = (nvidia_smi_values.plain(self.values.get(name)) for name in names)
        return next((text for text in values if text is not None), None)

    @property
    def attached_gpus(self) -> int | None:
        return nvidia_smi_values.count(self.values.get("Attached GPUs"))

    @property
    def cause(self) -> Cause | None:
        return self.messages[0] if self.messages else None

    @property
    def complete(self) -> bool:
        if not self.gpus or self.attached_gpus != len(self.gpus):
            return False
        if any("Product Name" in gpu.values for gpu in self.gpus):
            return all(any(path.startswith("Processes") for path in gpu.values) for gpu in self.gpus)
        return len({len(gpu.values) for gpu in self.gpus}) == 1

    @property
    def ok(self) -> bool:
        return self.complete and not self.messages and all(gpu.error is None for gpu in self.gpus)


class _Tree:
    """Knows in which section a line stands."""

    def __init__(self) -> None:
        self.runs: list[QueryRun] = []
        self.early: list[nvidia_smi_values.Message] = []
        self._path: list[tuple[int, str]] = []
        self._margin = 0

    def see(self, raw: str) -> None:
        """Read one line: of a GPU by its indent, or of what stands around it."""
        line = raw.strip(" \t\0")
        indent = len(raw) - len(raw.lstrip(" \t\0"))
        gpu = _GPU.fullmatch(line)
        name, separator, text = line.partition(_SEPARATOR)
        inside = bool(self.runs) and bool(self.runs[-1].gpus) and indent > self._margin
        complaint = None if inside and separator else nvidia_smi_values.complaint(line)
        if _BEGIN in line:
            self._start()
        elif gpu:
            self._run().gpus.append(QueryGpu(gpu.group(1).upper()))
            self._path, self._margin = [], indent
        elif complaint:
            (self.runs[-1].messages if self.runs else self.early).append(complaint)
        elif inside and line:
            self._put(self.runs[-1].gpus[-1], indent, name.rstrip(), text.strip() if separator else None)
        elif separator and name.rstrip() in _TOP:
            self._run().values.setdefault(name.rstrip(), text.strip())

    def _put(self, gpu: QueryGpu, indent: int, name: str, text: str | None) -> None:
        while self._path and self._path[-1][0] >= indent:
            self._path.pop()
        self._path = [*self._path[: _DEPTH - 1], (indent, name)]
        if text is None or len(gpu.values) >= _MOST:
            return
        names = [part for dummy, part in self._path]
        gpu.values.setdefault("/".join(names), text)
        if names == ["Processes", "Process ID"]:
            gpu.processes.append({name: text})
        elif names[:2] == ["Processes", "Process ID"] and gpu.processes:
            gpu.processes[-1].setdefault(name, text)

    def _run(self) -> QueryRun:
        if not self.runs:
            self._start()
        return self.runs[-1]

    def _start(self) -> None:
        """What was complained about before the first output is about that one."""
        self.runs.append(QueryRun({}, [], self.early))
        self.early, self._path = [], []


def parse_query(source: words.Source) -> Log[QueryRun]:
    """Read one or several outputs; never raises, whatever the text."""
    tree = _Tree()
    for line in words.raw_lines(source):
        tree.see(line)
    return log_of(tree.runs, tree.early)
