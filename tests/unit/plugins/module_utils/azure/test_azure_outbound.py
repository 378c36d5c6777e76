# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ways out of subnets that were there before."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.filter.azure_infra import azure_infra_outbound
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.infra import ways_out

TABLE = "/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/routeTables/T"


def subnet(**properties: t.Any) -> dict[str, t.Any]:
    return {"id": "/subscriptions/s/x/subnets/gpu", "properties": properties}


def table(hop: str, prefix: str = "0.0.0.0/0") -> dict[str, t.Any]:
    return {TABLE.lower(): {"properties": {"routes": [{"properties": {"addressPrefix": prefix, "nextHopType": hop}}]}}}


ROUTED = {"routeTable": {"id": TABLE}, "defaultOutboundAccess": False}


@pytest.mark.parametrize(
    "properties, tables, refused, warned",
    [
        ({"natGateway": {"id": "n"}, "defaultOutboundAccess": False}, {}, "", ""),
        ({"defaultOutboundAccess": False}, {}, "is private and has no NAT gateway", ""),
        ({}, {}, "", "counts on Azure's default outbound access"),
        ({"defaultOutboundAccess": True}, {}, "", "counts on Azure's default outbound access"),
        (ROUTED, table("VirtualAppliance"), "", "sends everything to a VirtualAppliance"),
        (ROUTED, table("VirtualNetworkGateway"), "", "sends everything to a VirtualNetworkGateway"),
        (ROUTED, table("VirtualAppliance", "10.0.0.0/8"), "is private and has no NAT gateway", ""),
        (ROUTED, table("Internet"), "is private and has no NAT gateway", ""),
        ({"routeTable": {"id": TABLE}}, table("None"), "a route to nowhere", ""),
    ],
)
def test_what_azure_says_of_a_subnet_decides(
    properties: dict[str, t.Any], tables: dict[str, t.Any], refused: str, warned: str
) -> None:
    found = ways_out({"compute_subnet": subnet(**properties)}, tables)
    assert [refused in text for text in found.refused] == [True] * bool(refused)
    assert [warned in text for text in found.warnings] == [True] * bool(warned)
    assert set(found.tables) == ({TABLE.lower()} if "routeTable" in properties else set())
    assert not ways_out({"compute_subnet": subnet(**properties)}, tables, confirmed=True).refused


def test_a_public_address_is_the_machines_own_way_and_not_the_nodes() -> None:
    inputs = {"existing_subnet_id": "x", "public_address": True, "outbound_confirmed": False}
    private = subnet(defaultOutboundAccess=False)
    found = azure_infra_outbound(inputs, {"server_subnet": private, "compute_subnet": subnet(natGateway={"id": "n"})})
    assert found["refused"] == []
    assert azure_infra_outbound(inputs, {"server_subnet": private, "compute_subnet": private})["refused"]
    own = azure_infra_outbound({**inputs, "existing_subnet_id": ""}, {"compute_subnet": private})
    assert own == {"tables": {}, "refused": [], "warnings": []}
