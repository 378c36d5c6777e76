# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every part passes around: a request, a response, an error as ARM words it."""

from __future__ import annotations

import types
import typing as t


class Request(t.NamedTuple):
    """One request; ``query`` has lower-case keys, ``principal`` is who the token belongs to."""

    method: str
    path: str
    query: dict[str, str]
    headers: t.Mapping[str, str]
    body: t.Any = None
    principal: str = ""
    origin: str = ""
    raw: bytes = b""

    @property
    def version(self) -> str:
        return self.query.get("api-version", "")


class Response(t.NamedTuple):
    """One answer; no body at all where ``body`` is None."""

    status: int
    body: t.Any = None
    headers: t.Mapping[str, str] = types.MappingProxyType({})


class ArmError(Exception):
    """An error in ARM's envelope."""

    def __init__(self, status: int, code: str, message: str, **more: t.Any) -> None:
        super().__init__(f"{code}: {message}")
        self.status, self.code, self.message, self.more = status, code, message, more
        self.headers: dict[str, str] = more.pop("headers", {})

    def body(self) -> dict[str, t.Any]:
        return {"error": {"code": self.code, "message": self.message, **self.more}}

    def response(self) -> Response:
        return Response(self.status, self.body(), {"x-ms-failure-cause": "gateway", **self.headers})


class DropError(Exception):
    """The connection is to be cut without an answer."""
