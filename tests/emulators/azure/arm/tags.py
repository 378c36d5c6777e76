# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tags of anything, by themselves: Microsoft.Resources/tags/default."""

from __future__ import annotations

from . import access, schema
from .faults import error
from .http import ArmError, Response
from .routes import Context, route

T = "Microsoft.Resources/tags"


@route("GET PUT PATCH DELETE", f"(?P<scope>.+)/providers/{T}/default", T)
def _tags(context: Context) -> Response:
    request, scope = context.request, context.words["scope"]
    found = context.state.get(scope)
    if not found:
        raise error("ResourceNotFound", resource=scope, group=scope)
    access.allow(context.state, request)
    models = context.schemas.providers["microsoft.resources"]["models"]
    if request.method in ("PUT", "PATCH", "DELETE"):
        access.unlocked(context.state, scope, "write")
    if request.method == "PUT":
        schema.check("Tags", models, request.body)
        found["tags"] = request.body["properties"]["tags"]
    elif request.method == "PATCH":
        schema.check("TagsPatch", models, request.body)
        found["tags"] = _patched(found.get("tags") or {}, request.body)
    elif request.method == "DELETE":
        found["tags"] = {}
        return Response(200)
    said = {"tags": found.get("tags") or {}}
    return Response(200, {"id": f"{scope}/providers/{T}/default", "name": "default", "type": T, "properties": said})


def _patched(old: dict[str, str], body: dict[str, object]) -> dict[str, str]:
    given = (body.get("properties") or {}).get("tags", {})  # type: ignore[attr-defined]
    kind = body.get("operation")
    if kind == "Replace":
        return dict(given)
    if kind == "Merge":
        return {**old, **given}
    if kind == "Delete":
        return {key: value for key, value in old.items() if given.get(key, object()) != value}
    raise ArmError(400, "InvalidRequestContent", "operation is to be Merge, Replace or Delete.")
