# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvbandwidth --json: what is in a document. Private, see nvbandwidth."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import _json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import number

Found = t.Dict[str, t.Any]

MARK = '"nvbandwidth"'
_STATUS = {"Passed": "passed", "Waived": "waived", "Running": "running"}
_DEVICE = re.compile(r"(\d{1,9}): (.*?)(?: \(([\da-fA-F:]+)\))?(?:: \(([^()]*)\))?")


def read(text: str) -> Found:
    """Return version, devices, tests, the error of the whole and whether the document is."""
    document = _json.read(text)
    top = _dictionary(_dictionary(document.data).get("nvbandwidth"))
    tests: list[Found] = []
    for item in _items(top.get("testcases")):
        _add(tests, _test(_dictionary(item)))
    devices = [found for found in map(_device, _items(top.get("GPU Device list"))) if found]
    return {
        "version": _text(top.get("version")),
        "cuda_runtime": _text(top.get("CUDA Runtime Version")),
        "driver": _text(top.get("Driver Version")),
        "host": devices[0]["host"] if devices else None,
        "devices": devices,
        "tests": tests,
        "error": _text(top.get("error")),
        "whole": document.whole,
    }


def _add(tests: list[Found], test: Found) -> None:
    """An error is told by a second entry of the test that is left as running."""
    before = tests[-1] if tests else None
    if before and before["status"] == "running" and (before["name"], test["status"]) == (test["name"], "error"):
        tests.pop()
    tests.append(test)


def _test(item: Found) -> Found:
    description, said = _text(item.get("bandwidth_description")), _text(item.get("status"))
    name, error = _text(item.get("name")), _text(item.get("error"))
    latency = "(ns)" in (description or "") or "_latency_" in (name or "")
    matrices = _matrices(item.get("bandwidth_matrix"), description or "")
    if said == "ERROR" and not error:  # the document leaves out what the text form says
        error = f"ERROR: Testcase {name} not found!"
    return {
        "name": name,
        "status": _STATUS.get(said or "", "error"),
        "unit": None if not matrices else "ns" if latency else "GB/s",
        "description": description,
        "matrices": matrices,
        "sum": None if latency else _value(item.get("sum")),
        "error": error,
    }


def _matrices(value: t.Any, description: str) -> list[list[list[float | None]]]:
    """Three matrices are stacked under the description of the last."""
    rows = [[_value(cell) for cell in _items(row)] for row in _items(value)]
    if not rows:
        return []
    count = 3 if " Total " in description and len(rows) % 3 == 0 else 1
    size = len(rows) // count
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)]


def _device(item: t.Any) -> Found | None:
    match = _DEVICE.fullmatch(item[:1000]) if isinstance(item, str) else None
    if not match:
        return None
    return {"index": int(match[1]), "name": match[2], "bus_id": match[3], "host": match[4]}


def _value(cell: t.Any) -> float | None:
    """Cells are text, sums are numbers."""
    return number(str(cell)) if _plain(cell) else None


def _plain(cell: t.Any) -> bool:
    return isinstance(cell, (str, int, float)) and not isinstance(cell, bool)


def _items(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else []


def _dictionary(value: t.Any) -> Found:
    return value if isinstance(value, dict) else {}


def _text(value: t.Any) -> str | None:
    return str(value)[:1000] if _plain(value) and value != "" else None
