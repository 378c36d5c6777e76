# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A runbook of Azure Automation: what differs from the request, and what a person has done to it."""

from __future__ import annotations

import hashlib
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import ownership
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.client import AzureError, Json

PUBLISHED, EDITED = "Published", "Edit"


class RunbookPlan(t.NamedTuple):
    """``differences`` are why the runbook is published again, each with what is there; ``warnings`` what stays."""

    differences: dict[str, str]
    warnings: list[str]


def digest(content: str) -> str:
    """Return the SHA-256 digest of a script."""
    return hashlib.sha256(content.encode()).hexdigest()


def mark(content: str) -> str:
    """Return the description of a runbook with this script; it is written last, so it says that all went well."""
    return f"{ownership.CREATOR} sha256:{digest(content)}"


class RunbookKind(t.NamedTuple):
    """The language, as Azure's type of a runbook, and the runtime environment; empty is Azure's own for the type."""

    type: str
    environment: str = ""


def plan(body: Json, content: str, kind: RunbookKind, observed: Json | None, published: str | None) -> RunbookPlan:
    """Compare a runbook and its published script with the request. A draft of somebody stays while all else fits."""
    if observed is None:
        return RunbookPlan({"runbook": "absent"}, [])
    properties = observed.get("properties") or {}
    if properties.get("runbookType", kind.type) != kind.type:
        raise AzureError(
            f"its type is {properties['runbookType']}, and Azure does not change the type of a runbook; {kind.type} is"
            " needed: delete it, or choose another name"
        )
    differences = {}
    environment = str(properties.get("runtimeEnvironment") or "")
    if kind.environment and environment != kind.environment:
        differences["environment"] = environment
    description, state = str(properties.get("description") or ""), str(properties.get("state") or "")
    if description != mark(content):
        differences["description"] = description
    if published is None or _plain(published) != _plain(content):
        differences["script"] = "not published" if published is None else f"sha256:{digest(published)}"
    if state not in (PUBLISHED, EDITED):
        differences["state"] = state
    differences.update(
        {name: str(observed.get(name)) for name in ("location", "tags") if not _fits(name, body, observed)}
    )
    warnings = []
    if state == EDITED and not differences:
        warnings.append("it has a draft that somebody did not publish; the published script runs, and the draft stays")
    return RunbookPlan(differences, warnings)


def _fits(name: str, body: Json, observed: Json) -> bool:
    return ownership.fits({name: body[name]}, {name: observed.get(name) or ({} if name == "tags" else "")})


def _plain(text: str) -> str:
    """Return a script without what Azure may change of it: byte order mark, ends of lines, the last of them."""
    return text.lstrip("\ufeff").replace("\r\n", "\n").rstrip("\n")
