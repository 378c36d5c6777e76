# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether machines in a subnet of somebody else reach the Internet, as far as Azure describes it. No I/O."""

from __future__ import annotations

import typing as t

ROUTES_API = "2024-07-01"
# Who needs what: CycleCloud stages its projects, and they install Slurm and DCGM on every node when it boots.
NEEDED = (
    "the CycleCloud machine reaches packages.microsoft.com, github.com and Azure's own endpoints, and each node"
    " packages.microsoft.com and the package sources of its image"
)
_DEFAULTS = ("0.0.0.0/0", "::/0")
_AWAY = ("VirtualAppliance", "VirtualNetworkGateway")


class WaysOut(t.NamedTuple):
    """``tables`` are route tables to read; with them ``refused`` and ``warnings`` are complete."""

    tables: dict[str, dict[str, str]]
    refused: list[str]
    warnings: list[str]


def ways_out(
    subnets: t.Mapping[str, t.Mapping[str, t.Any] | None],
    tables: t.Mapping[str, t.Mapping[str, t.Any] | None],
    public: t.Collection[str] = (),
    confirmed: bool = False,
) -> WaysOut:
    """Judge subnets by name; `tables` are the route tables that were read, `public` subnets whose machine has a public
    address.

    `confirmed` is the word of a person that there is a way that Azure does not show.
    """
    needed: dict[str, dict[str, str]] = {}
    refused: list[str] = []
    warnings: list[str] = []
    for name, subnet in subnets.items():
        properties = (subnet or {}).get("properties") or {}
        table = str((properties.get("routeTable") or {}).get("id") or "")
        if not subnet or properties.get("natGateway") or name in public:
            continue
        if table:
            needed[table.lower()] = {"id": table, "api_version": ROUTES_API}
        hop = _default_route(tables.get(table.lower()) or {})
        label = f"subnet {subnet.get('id')}"
        if hop in _AWAY:
            warnings.append(f"{label} sends everything to a {hop}, which has to let it through: {NEEDED}")
        elif confirmed:
            continue
        elif hop == "None":
            refused.append(f"{label} has a route to nowhere for all addresses, in {table}. {_advice()}")
        elif properties.get("defaultOutboundAccess") is False:
            refused.append(f"{label} is private and has no NAT gateway. {_advice()}")
        else:
            warnings.append(
                f"{label} has no NAT gateway and counts on Azure's default outbound access, which networks made since"
                " April 2026 do not have: attach a NAT gateway before it ends"
            )
    return WaysOut(needed, sorted(set(refused)), sorted(set(warnings)))


def _default_route(table: t.Mapping[str, t.Any]) -> str:
    """Return where a route table sends what no other route is for."""
    for route in (table.get("properties") or {}).get("routes") or []:
        properties = route.get("properties") or {}
        if properties.get("addressPrefix") in _DEFAULTS:
            return str(properties.get("nextHopType") or "")
    return ""


def _advice() -> str:
    return (
        f"A cluster needs a way out: {NEEDED}. Attach a NAT gateway, route to a firewall, or, where a way is"
        " there that Azure does not show (a gateway's route by BGP, a virtual hub), set azure_infra_outbound_confirmed"
    )
