# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resource ids: taken apart, put together, compared without case."""

from __future__ import annotations

import re
import typing as t


class Target(t.NamedTuple):
    """What a path names: a resource (``name``), a collection (no name), or an action on a resource."""

    scope: str
    namespace: str
    types: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def type(self) -> str:
        return f"{self.namespace}/{'/'.join(self.types)}"

    @property
    def is_collection(self) -> bool:
        return len(self.types) > len(self.names)

    @property
    def id(self) -> str:
        pairs = "".join(f"/{kind}/{name}" for kind, name in zip(self.types, self.names))
        return f"{self.scope}/providers/{self.namespace}{pairs}"

    @property
    def parent(self) -> str:
        """The id one level up; the scope for a top-level resource."""
        kept = len(self.types) - 1
        if not kept:
            return self.scope
        return self._replace(types=self.types[:kept], names=self.names[:kept]).id


def parse(path: str) -> Target | None:
    """Take a path apart at its last provider; None where it has none."""
    match = re.fullmatch(r"(?P<scope>.*)/providers/(?P<rest>[^/]+/.+)", path.rstrip("/"), re.IGNORECASE)
    if not match:
        return None
    namespace, *rest = match["rest"].split("/")
    return Target(match["scope"], namespace, tuple(rest[::2]), tuple(rest[1::2]))


def subscription(path: str) -> str:
    match = re.match(r"/subscriptions/([^/]+)", path, re.IGNORECASE)
    return match[1] if match else ""


def group(path: str) -> str:
    """Return the id of the resource group that a path lies in, or nothing."""
    match = re.match(r"/subscriptions/[^/]+/resourceGroups/[^/]+", path, re.IGNORECASE)
    return match[0] if match else ""


def same(one: str, other: str) -> bool:
    return one.rstrip("/").lower() == other.rstrip("/").lower()


def inside(scope: str, path: str) -> bool:
    """Tell whether ``path`` is ``scope`` or lies below it."""
    start = scope.rstrip("/").lower()
    return not start or path.lower() == start or path.lower().startswith(f"{start}/")


def references(body: t.Any) -> t.Iterator[str]:
    """Yield every resource id that a body refers to by an ``id`` key."""
    if isinstance(body, dict):
        for key, value in body.items():
            if key == "id" and isinstance(value, str) and "/providers/" in value.lower():
                yield value
            else:
                yield from references(value)
    elif isinstance(body, list):
        for item in body:
            yield from references(item)
