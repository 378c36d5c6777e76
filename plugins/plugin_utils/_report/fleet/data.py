# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page's script works on, in few bytes. Private."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.columns import ABSENT, CODES
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import STATUSES, Fleet, Series, word
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.rounds import read_rounds
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.squares import layout
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.strips import BAD
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import SYMBOLS
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import NONE, number, readable

MAX_SKIPPED = 200
DIGITS = 4
MAX_DEVICES = 40
PLACE = {status: index for index, status in enumerate(STATUSES)}


def data(fleet: Fleet) -> dict[str, t.Any]:
    """Return what the script needs, in few bytes: lists in the order of the nodes, common values said once."""
    made, places = layout(fleet.leaves), fleet.places
    reasons, notes = _notes(fleet)
    return {
        "nodes": [node.name for node in fleet.nodes],
        "status": "".join(str(PLACE[node.status]) for node in fleet.nodes),
        "statuses": [[status, verdict, SYMBOLS[verdict]] for status, verdict in STATUSES.items()],
        "verdicts": [[name, SYMBOLS[name]] for name in CODES] + [["error", "!"], ["skipped", NONE]],
        "leaves": fleet.leaves,
        "hosts": [str(node.about.get("physical_host") or "") for node in fleet.nodes],
        "certain": [_digits(node.about.get("posterior")) for node in fleet.nodes],
        "why": {index: node.reason for index, node in enumerate(fleet.nodes) if node.reason},
        "checks": {check: _codes(codes) for check, codes in fleet.verdicts.items()},
        "notes": notes,
        "reasons": reasons,
        "metrics": [_column(series) for series in fleet.series],
        "rounds": [
            [f"{tests.stage} {tests.number or ''}".strip(), [_test(test, places) for test in tests.tests]]
            for tests in read_rounds(fleet.certificate)
            if tests.stage not in ("reach", "local", "ladder")
        ],
        "map": [made.pitch, made.across, made.side, [[b.first, b.amount, b.x, b.y] for b in made.blocks]],
    }


def _notes(fleet: Fleet) -> tuple[list[str], dict[str, list[list[int]]]]:
    """Return each reason once, and [node, verdict, reason] by check; what most nodes skip need not be said of each."""
    reasons: dict[str, int] = {}
    notes = {
        check: [
            [index, code, reasons.setdefault(readable(reason), len(reasons))]
            for index, (code, reason, dummy) in texts.items()
            if word(code) in BAD or len(texts) <= MAX_SKIPPED
        ]
        for check, texts in fleet.notes.items()
    }
    return list(reasons), notes


def _test(test: t.Any, places: dict[str, int]) -> list[t.Any]:
    return [[places.get(name, name) for name in test.nodes], CODES[test.outcome], _digits(test.ratio)]


def _codes(codes: bytes) -> list[t.Any]:
    """Return the commonest code and runs of others: [common, [first, how many, code], ...]."""
    common = max(range(ABSENT + 1), key=codes.count)
    parts: list[t.Any] = [common]
    for index, code in enumerate(codes):
        if code == common:
            continue
        if len(parts) > 1 and parts[-1][2] == code and parts[-1][0] + parts[-1][1] == index:
            parts[-1][1] += 1
        else:
            parts.append([index, 1, code])
    return parts


def _column(series: Series) -> dict[str, t.Any]:
    values = [_digits(value) for value in series.values]
    column = series.column
    about: dict[str, t.Any] = {
        "check": column.check,
        "name": column.name,
        "unit": column.unit,
        "expected": column.expected,
    }
    common = max(set(values), key=values.count) if len(set(values)) <= DIGITS else None
    if common is None:
        about["values"] = values
    else:
        about["common"] = common
        about["other"] = {index: value for index, value in enumerate(values) if value != common}
    about["devices"] = _devices(series.devices)
    return about


def _devices(devices: list[str]) -> list[str] | None:
    """Return the kind of device and a character per node (its number from "0" up); nothing where it does not fit."""
    kinds = {name.partition(" ")[0] for name in devices if name}
    numbers = [name.partition(" ")[2] for name in devices]
    if len(kinds) != 1 or any(number and not (number.isdigit() and int(number) < MAX_DEVICES) for number in numbers):
        return None
    return [kinds.pop(), "".join(chr(ord("0") + int(number)) if number else "." for number in numbers)]


def _digits(value: t.Any) -> t.Any:
    """Return four significant digits, as an int where that is shorter."""
    finite = number(value)
    if finite is None or not math.isfinite(finite):
        return None
    rounded = float(f"{finite:.{DIGITS}g}")
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 1e15 else rounded
