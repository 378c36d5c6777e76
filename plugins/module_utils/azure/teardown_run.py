# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deletes what a plan names, one by one; what is gone already counts as done. Private."""

from __future__ import annotations

import re
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.arguments import AzureError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import Plan, TeardownError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown_read import (
    ASSIGNMENTS,
    LOCKS,
    RESOURCES,
    Arm,
)

# In this order: an assignment outlives its identity as an orphan, and a lock keeps everything.
PARTS = ("locks", "role_assignments", "resources", "groups")
_NEWEST_LISTED = "2021-04-01"
_PAUSE, _PATIENCE = 5.0, 720
# Codes of Azure for what is used by something that goes, too.
_BUSY = ("InUse", "CannotBeDeleted", "OperationNotAllowed", "AttachedDisk", "AnotherOperationInProgress", "Conflict:")
_STABLE = re.compile(r"\d{4}-\d\d-\d\d")


class Done(t.NamedTuple):
    """Ids by what became of them; `failed` says why, `left` was not tried any more."""

    deleted: list[str]
    gone: list[str]
    failed: str
    left: list[str]


def targets(plan: Plan, parts: t.Collection[str]) -> list[str]:
    """Return what goes, in order."""
    by_part = {
        "locks": plan.locks,
        "role_assignments": plan.assignments,
        "resources": plan.resources,
        "groups": plan.groups,
    }
    return [identifier for part in PARTS if part in parts for identifier in by_part[part]]


def run(arm: Arm, identifiers: t.Sequence[str], pause: t.Callable[[float], None] = time.sleep) -> Done:
    """Delete in order. What others still use is tried again after them; anything else that fails ends it."""
    deleted: list[str] = []
    gone: list[str] = []
    left = list(identifiers)
    while left:
        tried, busy, left = left, "", []
        for index, identifier in enumerate(tried):
            try:
                (deleted if _delete(arm, identifier, pause) else gone).append(identifier)
            except (AzureError, TeardownError) as exc:
                if not any(code in str(exc) for code in _BUSY):
                    return Done(deleted, gone, f"{identifier}: {exc}", [*left, *tried[index:]])
                busy = busy or f"{identifier}: {exc}"
                left.append(identifier)
        if len(left) == len(tried):
            return Done(deleted, gone, busy, left)
    return Done(deleted, gone, "", [])


def _delete(arm: Arm, identifier: str, pause: t.Callable[[float], None]) -> bool:
    """Delete and wait; a group that somebody is deleting already is only waited for."""
    try:
        return arm.delete(identifier, version(arm, identifier))
    except AzureError as exc:
        if "ResourceGroupBeingDeleted" not in str(exc):
            raise
    for dummy in range(_PATIENCE):
        if arm.get(identifier, RESOURCES) is None:
            return True
        pause(_PAUSE)
    raise TeardownError(f"still being deleted after {_PATIENCE * _PAUSE / 60:.0f} min: look at its activity log")


def version(arm: Arm, identifier: str) -> str:
    """Return the api-version to delete something with: of other types the newest that Azure names."""
    provider = identifier.rsplit("/providers/", 1)[-1] if "/providers/" in identifier else ""
    namespace, *rest = provider.split("/")
    kind = "/".join(rest[::2])
    known = {
        ("", ""): RESOURCES,
        ("microsoft.authorization", "locks"): LOCKS,
        ("microsoft.authorization", "roleassignments"): ASSIGNMENTS,
    }.get((namespace.lower(), kind.lower()))
    if known:
        return known
    listed = arm.get(f"/subscriptions/{arm.subscription}/providers/{namespace}", _NEWEST_LISTED) or {}
    for entry in listed.get("resourceTypes") or []:
        stable = [one for one in entry.get("apiVersions") or [] if _STABLE.fullmatch(one)]
        if str(entry.get("resourceType", "")).lower() == kind.lower() and stable:
            return max(stable)
    raise TeardownError(f"Azure names no api-version of {namespace}/{kind}: delete it in the portal, then start again")
