# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi -q -x``: DTD v10 to v13, whatever stands before, between and after the documents."""

from __future__ import annotations

import re

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_messages as said
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text as words
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._nvidia_smi_document import Document, Run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log, log_of

_OPEN, _CLOSE = "<nvidia_smi_log", "</nvidia_smi_log>"
_TYPE = re.compile(r"nvsmi_device_(v\d{1,3})\.dtd")


class _Scanner:
    """Tells documents from the text around them."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.messages: list[said.Message] = []
        self._document: Document | None = None
        self._dtd: str | None = None
        self._inside = False

    def see(self, line: str) -> None:
        begin = line.find(_OPEN)
        if begin >= 0:
            self._outside(line[:begin])
            self._begin()
            line = line[begin:]
        if self._document is None or not self._inside:
            self._outside(line)
            return
        complaint = None if line.startswith("<") else said.complaint(line)
        if complaint:
            self.messages.append(complaint)
            return
        head, close, rest = line.partition(_CLOSE)
        self._document.feed(head + close)
        if close:
            self._inside = False
            self._outside(rest)

    def end(self) -> Log[Run]:
        self._flush()
        return log_of(self.runs, self.messages)

    def _begin(self) -> None:
        """What was complained about before the first document is about that document."""
        dtd = self._dtd
        if self._document:
            self._flush()
        self._document, self._dtd, self._inside = Document(dtd), None, True

    def _outside(self, line: str) -> None:
        kind = _TYPE.search(line) if "nvsmi_device" in line else None
        self._dtd = kind.group(1) if kind else self._dtd
        complaint = said.complaint(line)
        if complaint:
            self.messages.append(complaint)

    def _flush(self) -> None:
        if self._document:
            self.runs.append(self._document.run(self.messages))
            self._document, self.messages = None, []


def parse_xml(source: words.Source) -> Log[Run]:
    """Read one or several documents; never raises, whatever the text."""
    scanner = _Scanner()
    for line in words.lines(source):
        scanner.see(line)
    return scanner.end()
