# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check records as JUnit XML, as build servers read it: a suite per node, a case per check. Private.

A fail is a failure, an error of the checker is an error, a skipped or unjudged check is skipped: none of them counts as
passed. A warning passes and says so in its output, for JUnit has no word for it.
"""

from __future__ import annotations

import math
import re
import typing as t
from xml.sax.saxutils import escape, quoteattr

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import verdict_of

Row = t.Mapping[str, t.Any]
# XML 1.0 has no way to write these.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_KINDS = {"fail": "failures", "error": "errors", "skipped": "skipped", "unjudged": "skipped"}
_TAGS = {"fail": "failure", "error": "error", "skipped": "skipped", "unjudged": "skipped"}
CLUSTER = "the cluster"


class Junit:
    """A document grown record by record; only what a case says is kept, not the record."""

    def __init__(self, name: str = "hpcai.gpu_cluster") -> None:
        self.name = name
        self._suites: dict[str, list[str]] = {}
        self._counts: dict[str, dict[str, int]] = {}

    def add(self, record: Row) -> None:
        """Take one record."""
        node = str(record.get("node") or CLUSTER)
        self._suites.setdefault(node, []).append(_testcase(node, record))
        count = self._counts.setdefault(node, {"failures": 0, "errors": 0, "skipped": 0})
        kind = _KINDS.get(verdict_of(record))
        if kind:
            count[kind] += 1

    def text(self) -> t.Iterator[str]:
        """Yield the document in pieces."""
        # Jenkins' plugin xunit refuses a file that counts the skipped ones here as well.
        sums = {kind: sum(count[kind] for count in self._counts.values()) for kind in ("failures", "errors")}
        yield '<?xml version="1.0" encoding="UTF-8"?>\n'
        yield f"<testsuites name={_text(self.name)}{_attributes(sum(map(len, self._suites.values())), sums)}>\n"
        for node, cases in self._suites.items():
            yield f"<testsuite name={_text(node)}{_attributes(len(cases), self._counts[node])}>\n"
            yield from cases
            yield "</testsuite>\n"
        yield "</testsuites>\n"


def _attributes(total: int, count: dict[str, int]) -> str:
    return f' tests="{total}"' + "".join(f' {kind}="{number}"' for kind, number in count.items())


def _text(value: object) -> str:
    return quoteattr(_FORBIDDEN.sub("\ufffd", str(value)))


def _testcase(node: str, record: Row) -> str:
    verdict = verdict_of(record)
    seconds = record.get("seconds")
    sound = isinstance(seconds, (int, float)) and math.isfinite(seconds) and seconds >= 0
    took = f' time="{seconds:.3f}"' if sound else ""
    start = f"<testcase classname={_text(node)} name={_text(_name(record))}{took}"
    reason = str(record.get("reason") or ("nothing is expected of it" if verdict == "unjudged" else "no reason given"))
    tag = _TAGS.get(verdict)
    if tag:
        kind = f" type={_text(record.get('class') or verdict)}" if tag != "skipped" else ""
        return f"{start}><{tag}{kind} message={_text(reason)}/></testcase>\n"
    if verdict == "warn":
        return f"{start}><system-out>warning: {escape(_FORBIDDEN.sub(chr(0xFFFD), reason))}</system-out></testcase>\n"
    return f"{start}/>\n"


def _name(record: Row) -> str:
    """Name a check with what it was about, so that two of one node differ."""
    scope, context = record.get("scope"), record.get("context")
    parts = [str(record.get("check"))]
    if isinstance(context, dict) and context.get("collective") and str(context["collective"]) not in parts[0]:
        parts.append(str(context["collective"]))
    for key, value in scope.items() if isinstance(scope, dict) else ():
        if value not in (None, [], ""):
            parts.append(f"{key}={','.join(map(str, value)) if isinstance(value, (list, tuple)) else value}")
    return " ".join(parts)
