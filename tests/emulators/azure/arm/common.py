# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Regions, pages of lists, removal and merging: what several parts do alike."""

from __future__ import annotations

import json
import typing as t
import urllib.parse
from pathlib import Path

from . import behaviour, operations
from .faults import error
from .http import Request, Response
from .state import State

REGIONS: dict[str, str] = json.loads((Path(__file__).parents[1] / "data/regions.json").read_text())


def region(name: str, kind: str) -> str:
    """Normalise a location, or refuse it."""
    plain = name.replace(" ", "").lower()
    if plain not in REGIONS:
        raise error("LocationNotAvailableForResourceType", location=name, type=kind, known=", ".join(REGIONS))
    return plain


def remove(state: State, resource: dict[str, t.Any]) -> dict[str, t.Any]:
    """Take a resource away with what lies below it."""
    for child in state.under(resource["id"]):
        behaviour.of(child["type"]).deleted(state, child)
        state.drop(child["id"])
    behaviour.of(resource["type"]).deleted(state, resource)
    state.drop(resource["id"])
    return resource


@operations.effect("written")
def _written(state: State, operation: dict[str, t.Any]) -> None:
    found = state.get(operation["resource"])
    if found and found.get("properties", {}).get("provisioningState", "Deleting") != "Deleting":
        found["properties"]["provisioningState"] = operation["status"]


@operations.effect("removed")
def _removed(state: State, operation: dict[str, t.Any]) -> None:
    found = state.get(operation["resource"])
    if found and operation["status"] == "Succeeded":
        remove(state, found)


def merge(old: dict[str, t.Any], new: dict[str, t.Any]) -> None:
    """PATCH: objects are merged, anything else is replaced, null takes away."""
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            merge(old[key], value)
        elif value is None:
            old.pop(key, None)
        else:
            old[key] = value


def page(state: State, request: Request, found: list[t.Any], size: int | None = None) -> Response:
    """Return one page of a list, and where the next one is."""
    start = int(request.query.get("$skiptoken", "0"))
    end = start + min(size or state.settings["page_size"], int(request.query.get("$top", "1000000")))
    body: dict[str, t.Any] = {"value": found[start:end]}
    if end < len(found):
        query = urllib.parse.urlencode({**request.query, "$skiptoken": str(end)})
        body["nextLink"] = f"{request.origin}{urllib.parse.quote(request.path)}?{query}"
    return Response(200, body)
