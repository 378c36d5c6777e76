# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Microsoft.MarketplaceOrdering: the terms of a plan, read and accepted."""

from __future__ import annotations

import typing as t

from . import access, schema, skus
from .authorization import now
from .http import ArmError, Response
from .routes import SUB, Context, route

M = "Microsoft.MarketplaceOrdering"
PLAN = "publishers/(?P<publisher>[^/]+)/offers/(?P<offer>[^/]+)/plans/(?P<plan>[^/]+)"
OLD = f"{SUB}/providers/{M}/agreements/(?P<publisher>[^/]+)/offers/(?P<offer>[^/]+)/plans/(?P<plan>[^/]+)"


@route("GET PUT", f"{SUB}/providers/{M}/offerTypes/virtualmachine/{PLAN}/agreements/current", f"{M}/offerTypes")
def _terms(context: Context) -> Response:
    words, request = context.words, context.request
    known = [one["plan"] for one in skus.IMAGES.values() if one["plan"]]
    wanted = {"name": words["plan"], "publisher": words["publisher"], "product": words["offer"]}
    if wanted not in known:
        message = f"The offer with id '{words['offer']}' of publisher '{words['publisher']}' does not exist."
        raise ArmError(400, "BadRequest", message)
    access.allow(context.state, request)
    kept = context.state.data.setdefault("agreements", {})
    said = kept.get("/".join(wanted.values())) or _fresh(wanted)
    if request.method == "PUT":
        schema.check("Agreement", context.schemas.providers[M.lower()]["models"], request.body)
        given = request.body.get("properties", {})
        if given.get("signature") != said["signature"]:
            raise ArmError(400, "BadRequest", "Legal terms signature is invalid: PUT back what GET gave.")
        said = {**said, "accepted": bool(given.get("accepted"))}
        kept["/".join(wanted.values())] = said
    place = f"{request.path}"
    return Response(200, {"id": place, "name": words["plan"], "type": f"{M}/offertypes", "properties": said})


def _fresh(plan: dict[str, str]) -> dict[str, t.Any]:
    name = f"{plan['publisher']}/{plan['product']}/{plan['name']}"
    link = f"https://storelegalterms.blob.core.windows.net/legalterms/{name}.txt"
    return {
        "publisher": plan["publisher"],
        "product": plan["product"],
        "plan": plan["name"],
        "licenseTextLink": link,
        "privacyPolicyLink": "https://privacy.microsoft.com/",
        "marketplaceTermsLink": link,
        "retrieveDatetime": now(),
        "signature": f"EMULATED{len(name)}SIGNATURE",
        "accepted": False,
    }
