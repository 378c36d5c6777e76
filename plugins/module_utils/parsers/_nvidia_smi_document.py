# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One document of ``nvidia-smi -q -x``, read line by line so that of a broken one everything up to there is kept.

The document type is never handed to the XML parser, so there are no entities to expand and nothing is fetched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_messages as said
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_values as values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._nvidia_smi_fields import build
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_gpu import Gpu

# Names of processes are printed as they are, whatever characters they hold.
_NAME = ("<process_name>", "</process_name>")
_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]")
_DEPTH = 32
_LONGEST = 4096


@dataclass(frozen=True)
class Run:
    """One document. ``attached_gpus`` is what the driver counts: more than ``gpus`` when one does not answer."""

    dtd: str | None
    timestamp: str | None
    driver_version: str | None
    cuda_version: str | None
    attached_gpus: int | None
    gpus: list[Gpu]
    messages: list[said.Message]
    complete: bool

    @property
    def cause(self) -> Cause | None:
        return self.messages[0] if self.messages else None

    @property
    def ok(self) -> bool:
        missing = self.attached_gpus is not None and self.attached_gpus > len(self.gpus)
        answered = bool(self.gpus) and all(gpu.bus_id and gpu.error is None for gpu in self.gpus)
        return self.complete and answered and not self.messages and not missing


def _well_formed(line: str) -> str:
    """Escape what nvidia-smi does not."""
    if not line.isprintable():
        line = _CONTROL.sub("", line)
    if "&" in line:
        line = _AMPERSAND.sub("&amp;", line)
    begin, end = line.find(_NAME[0]) + len(_NAME[0]), line.rfind(_NAME[1])
    if len(_NAME[0]) <= begin < end:
        line = line[:begin] + line[begin:end].replace("<", "&lt;") + line[end:]
    return line


class _TooDeepError(Exception):
    """No nvidia-smi nests like this."""


@dataclass
class Document:
    """Collects what expat reports about one document."""

    dtd: str | None
    fields: dict[str, str] = field(default_factory=dict)
    gpus: list[Gpu] = field(default_factory=list)
    complete: bool = False
    broken: bool = False

    def __post_init__(self) -> None:
        self._path: list[str] = []
        self._text: list[str] = []
        self._size = 0
        self._gpu: dict[str, str] = {}
        self._processes: list[dict[str, str]] = []
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._data
        self._feed = parser.Parse

    def feed(self, line: str) -> None:
        if self.broken:
            return
        line = _well_formed(line)
        try:
            self._feed(f"{line}\n".encode("utf-8", "replace"), False)
        except (expat.ExpatError, _TooDeepError):
            self.broken = True

    def run(self, messages: list[said.Message]) -> Run:
        """Return what was read, with the GPU in whose midst the document ends."""
        if self._path[1:2] == ["gpu"]:
            self.gpus.append(build(self._gpu, self._processes, False))
        return Run(
            self.dtd,
            values.value(self.fields.get("timestamp")),
            values.value(self.fields.get("driver_version")),
            values.value(self.fields.get("cuda_version")),
            values.count(self.fields.get("attached_gpus")),
            self.gpus,
            messages,
            self.complete,
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= _DEPTH:
            raise _TooDeepError
        self._path.append(name)
        self._text, self._size = [], 0
        if self._path[1:] == ["gpu"]:
            self._gpu, self._processes = {"@id": attributes.get("id", "")}, []
        elif name == "process_info":
            self._processes.append({})

    def _data(self, data: str) -> None:
        if self._size < _LONGEST:
            self._text.append(data)
            self._size += len(data)

    def _end(self, name: str) -> None:
        path, text = self._path[1:], "".join(self._text).strip()[:_LONGEST]
        self._path.pop()
        self._text, self._size = [], 0
        if path == ["gpu"]:
            self.gpus.append(build(self._gpu, self._processes, True))
        elif not path:
            self.complete = True
        elif path[0] != "gpu":
            self.fields.setdefault("/".join(path), text)
        elif path[1:3] == ["processes", "process_info"]:
            if len(path) == 4 and self._processes:
                self._processes[-1].setdefault(name, text)
        # Thousands of supported clocks say nothing about the state; MIG devices repeat the GPU's sections.
        elif path[1] not in ("supported_clocks", "mig_devices", "processes", "accounted_processes"):
            self._gpu.setdefault("/".join(path[1:]), text)
