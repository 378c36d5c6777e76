# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which function answers which path: everything that is not a typed resource."""

from __future__ import annotations

import re
import typing as t

from .http import Request, Response
from .schema import Schemas
from .state import State


class Context(t.NamedTuple):
    """What a route gets: the memory, the schemas, the request, and the groups of its pattern."""

    state: State
    schemas: Schemas
    request: Request
    words: dict[str, str]


Route = t.Callable[[Context], Response]
ROUTES: list[tuple[frozenset[str], re.Pattern[str], str, Route]] = []
SUB = "/subscriptions/(?P<sub>[^/]+)"
RG = f"{SUB}/resourceGroups/(?P<group>[^/]+)"


def route(methods: str, pattern: str, versions: str) -> t.Callable[[Route], Route]:
    """Register a function; ``versions`` is the type whose api-versions count."""
    compiled = re.compile(pattern, re.IGNORECASE)

    def keep(function: Route) -> Route:
        ROUTES.append((frozenset(methods.split()), compiled, versions, function))
        return function

    return keep


def find(state: State, schemas: Schemas, request: Request) -> Response | None:
    """Answer with the first route that fits; None when there is none."""
    for methods, pattern, versions, function in ROUTES:
        match = pattern.fullmatch(request.path)
        if match and request.method in methods:
            schemas.kind(versions, request.version)
            return function(Context(state, schemas, request, match.groupdict()))
    return None
