# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would stop the bring-up, from what Azure says: families, headroom, zones, images, permissions."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import preflight, skus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.skus import Grant, NodeGroup, Restriction, Sku

REGION = "southcentralus"
CAPABILITIES = {
    "vCPUs": "96",
    "GPUs": "8",
    "RdmaEnabled": "True",
    "NvmeDiskSizeInMiB": "6676480",
    "MemoryGB": "900",
    "CpuArchitectureType": "x64",
    "HyperVGenerations": "V2",
    "LowPriorityCapable": "True",
}
NDV4 = Sku("Standard_ND96asr_v4", "standardNDASv4_A100Family", CAPABILITIES, ("1", "2", "3"))
GPU = NodeGroup("gpu", "Standard_ND96asr_v4", 4)
CONTRIBUTOR = Grant(
    ("*",),
    (
        "Microsoft.Authorization/*/Delete",
        "Microsoft.Authorization/*/Write",
        "Microsoft.Authorization/elevateAccess/Action",
    ),
)
OWNER = Grant(("*",))


def usages(family: int = 1000, region: int = 1000, spot: int = 1000, used: int = 0) -> list[skus.Usage]:
    return [
        skus.Usage("cores", "Total Regional vCPUs", used, region),
        skus.Usage("lowPriorityCores", "Total Regional Spot vCPUs", 0, spot),
        skus.Usage("Standard NDASv4_A100 Family", "Standard NDASv4_A100 Family vCPUs", used, family),
    ]


def seen(**changes: t.Any) -> preflight.ObservedLocation:
    urn = skus.Urn("microsoft-dsvm", "ubuntu-hpc", "2204", "22.04.10")
    base = preflight.ObservedLocation(
        REGION,
        {"standard_nd96asr_v4": NDV4},
        usages(),
        {"microsoft-dsvm:ubuntu-hpc:2204:latest": ["22.04.9", "22.04.10"]},
        {"microsoft-dsvm:ubuntu-hpc:2204:latest": skus.Image(urn, None, "V2", "x64")},
        [OWNER],
        {"Microsoft.Compute": "Registered"},
    )
    return base._replace(**changes)


def asked(*nodes: NodeGroup, **changes: t.Any) -> preflight.PreflightRequest:
    return preflight.PreflightRequest(nodes or (GPU,), REGION, "/subscriptions/s")._replace(**changes)


def problems(result: dict[str, t.Any]) -> list[str]:
    return [f"{one['check']}: {one['problem']}" for one in result["findings"]]


@pytest.mark.parametrize(
    ("skus_api", "usages_api"),
    [
        ("standardNDASv4_A100Family", "Standard NDASv4_A100 Family"),
        ("standardNDISRGB300V6Family", "standardNDISR GB300V6 Family"),
        ("standardDSv5Family", "StandardDSV5Family"),
    ],
)
def test_families_are_the_same_however_they_are_written(skus_api: str, usages_api: str) -> None:
    assert skus.key(skus_api) == skus.key(usages_api)


@pytest.mark.parametrize(
    ("value", "number"), [(100, 100), ("100", 100), (99.0, 99), ("1e3", 1000), (None, 0), ("?", 0)]
)
def test_limits_are_read_leniently(value: t.Any, number: int) -> None:
    assert skus.number(value) == number


def want(cores: int, spot: bool = False, family: str = "standardNDASv4_A100Family") -> skus.CoreDemand:
    return skus.CoreDemand("gpu", family, cores, spot)


@pytest.mark.parametrize(
    ("wants", "limits", "told"),
    [
        ([want(384)], {}, []),
        ([want(384)], {"family": 383}, ["384 cores are needed and 383 are free (0 of 383 used)"]),
        (
            [want(384)],
            {"region": 100},
            ["Total Regional vCPUs in southcentralus: 384 cores are needed and 100 are free"],
        ),
        ([want(384)], {"family": 0, "region": 0}, ["Total Regional vCPUs", "NDASv4"]),
        # Spot has one quota of its own, whatever the family's says.
        ([want(384, spot=True)], {"family": 0, "region": 0}, []),
        (
            [want(384, spot=True)],
            {"spot": 96},
            ["Total Regional Spot vCPUs in southcentralus: 384 cores are needed and 96"],
        ),
        # What fits each by itself may not fit together.
        ([want(600), want(600)], {}, ["1200 cores are needed and 1000 are free", "1200 cores"]),
        ([want(600), want(600, spot=True)], {}, []),
        ([want(10, family="standardNewFamily")], {}, ["does not say what quota of standardNewFamily"]),
        ([want(300)], {"family": 200, "used": 250}, ["300 cores are needed and 0 are free (250 of 200 used)"]),
    ],
)
def test_headroom(wants: list[skus.CoreDemand], limits: dict[str, int], told: list[str]) -> None:
    found = skus.headroom(wants, usages(**limits), REGION, True)
    assert len(found) == len(told)
    for finding, text in zip(found, told):
        assert text in finding.problem
        assert finding.action


def test_quota_only_warns_where_nodes_may_run_already() -> None:
    assert [one.blocks for one in skus.headroom([want(384)], usages(family=0), REGION, False)] == [False]


ZONE_1 = Restriction("Zone", "NotAvailableForSubscription", ("1",))
EVERY_ZONE = Restriction("Zone", "NotAvailableForSubscription", ("1", "2", "3"))


@pytest.mark.parametrize(
    ("node", "sku", "told"),
    [
        (GPU, NDV4, []),
        (GPU, None, ["is not offered"]),
        (
            GPU,
            NDV4._replace(restrictions=(Restriction("Location", "QuotaId"),)),
            ["closed to this subscription (QuotaId)"],
        ),
        (GPU, NDV4._replace(restrictions=(ZONE_1,)), []),
        (GPU, NDV4._replace(restrictions=(EVERY_ZONE,)), ["in every zone"]),
        (NodeGroup("gpu", "x", zone="1"), NDV4._replace(restrictions=(ZONE_1,)), ["zone 1; zones left: 2, 3"]),
        (NodeGroup("gpu", "x", zone="2"), NDV4._replace(restrictions=(ZONE_1,)), []),
        (NodeGroup("gpu", "x", zone="1"), NDV4._replace(zones=()), ["zones left: none"]),
        (NodeGroup("gpu", "x", gpus=8, rdma=True, nvme=True), NDV4, []),
        (NodeGroup("gpu", "x", gpus=4), NDV4, ["has gpus 8; expected was 4"]),
        (NodeGroup("gpu", "x", rdma=True), NDV4._replace(capabilities={"vCPUs": "4"}), ["does not say what rdma"]),
        (NodeGroup("gpu", "x", rdma=False), NDV4, ["has rdma True; expected was False"]),
        (NodeGroup("gpu", "x"), NDV4._replace(capabilities={}), ["does not say how many cores"]),
        (
            NodeGroup("gpu", "x", spot=True),
            NDV4._replace(capabilities={"vCPUs": "4", "LowPriorityCapable": "False"}),
            ["Spot"],
        ),
    ],
)
def test_sizes(node: NodeGroup, sku: Sku | None, told: list[str]) -> None:
    found = skus.judge_size(node, sku, REGION)
    assert len(found) == len(told)
    assert all(text in one.problem for text, one in zip(told, found))


def test_a_missing_capability_is_unknown_not_zero() -> None:
    known = skus.facts(NDV4._replace(capabilities={"vCPUs": "4"}))
    assert (known["gpus"], known["rdma"], known["nvme"]) == (None, None, None)
    assert skus.facts(NDV4)["nvme"] is True


def test_versions_are_numbers() -> None:
    urn = skus.Urn("p", "o", "s", "latest")
    assert skus.resolve(urn, ["22.04.9", "22.04.10", "22.04.beta"]) == "22.04.10"
    assert skus.resolve(urn, []) is None
    assert skus.resolve(urn._replace(version="22.04.9"), ["22.04.9"]) == "22.04.9"
    assert skus.resolve(urn._replace(version="1"), ["22.04.9"]) is None


@pytest.mark.parametrize("text", ["", "a:b:c", "/subscriptions/s/x", "a:b:c:d e"])
def test_other_names_are_no_urn(text: str) -> None:
    assert skus.parse(text) is None


PLAN = {"publisher": "azurecyclecloud", "product": "azure-cyclecloud", "name": "cyclecloud8-gen2"}


@pytest.mark.parametrize(
    ("changes", "generations", "architecture", "told"),
    [
        ({}, ["V2"], "x64", []),
        ({"architecture": "Arm64"}, ["V2"], "x64", ["is for Arm64, the size is x64"]),
        ({"generation": "V1"}, ["V2"], "x64", ["generation V1, the size starts only V2"]),
        ({"generation": "V1"}, [], None, []),
        ({"plan": PLAN, "accepted": True}, ["V2"], "x64", []),
        ({"plan": PLAN, "accepted": False}, ["V2"], "x64", ["are not accepted"]),
        ({"plan": PLAN}, ["V2"], "x64", ["cannot be read"]),
    ],
)
def test_images(changes: dict[str, t.Any], generations: list[str], architecture: str | None, told: list[str]) -> None:
    image = skus.Image(skus.Urn("a", "b", "c", "1"), None, "V2", "x64")._replace(**changes)
    found = skus.judge_image(image, "gpu", generations, architecture)
    assert len(found) == len(told)
    assert all(text in one.problem for text, one in zip(told, found))


@pytest.mark.parametrize(
    ("image", "machine", "architecture", "expected"),
    [
        ("microsoft-dsvm:ubuntu-hpc:2404:latest", "x86_64", "x64", []),
        ("Canonical:ubuntu-24_04-lts:server:latest", "x86_64", "x64", []),
        ("Debian:debian-12:12-gen2:latest", "x86_64", None, []),
        ("/subscriptions/s/images/own", "x86_64", "x64", []),
        ("almalinux:almalinux-hpc:8_10-hpc-gen2:latest", "x86_64", "x64", [(True, "has Python 3.6")]),
        ("almalinux:almalinux-hpc:9-hpc-gen2:latest", "x86_64", "x64", [(True, "has no Debian or Ubuntu")]),
        ("azure-hpc:azurelinux-hpc:3:latest", "x86_64", "x64", [(True, "has no Debian or Ubuntu")]),
        ("microsoft-dsvm:ubuntu-hpc:2004:latest", "x86_64", "x64", [(True, "older than 3.9")]),
        ("microsoft-dsvm:ubuntu-hpc:2204:latest", "x86_64", "x64", [(False, "has Python 3.10")]),
        ("microsoft-dsvm:ubuntu-hpc:2204-rocm:latest", "x86_64", "x64", [(False, "has Python 3.10")]),
        ("Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:latest", "x86_64", "x64", [(False, "Python 3.10")]),
        ("microsoft-dsvm:ubuntu-hpc:2404:latest", "x86_64", "Arm64", [(True, "is Arm64, the bundle")]),
        ("microsoft-dsvm:ubuntu-hpc:2404:latest", "aarch64", "Arm64", []),
        ("microsoft-dsvm:ubuntu-hpc:2404:latest", "aarch64", "x64", [(True, "is x64, the bundle")]),
    ],
)
def test_images_that_cannot_run_the_bundle(
    image: str, machine: str, architecture: str | None, expected: list[tuple[bool, str]]
) -> None:
    findings = skus.judge_bundle(NodeGroup("gpu", "Standard_ND96asr_v4", image=image), machine, architecture)
    assert [finding.blocks for finding in findings] == [blocks for blocks, dummy in expected]
    assert all(text in finding.problem for finding, (dummy, text) in zip(findings, expected))
    assert all("ubuntu-hpc:2404" in finding.action or "Choose a size" in finding.action for finding in findings)


def test_the_bundle_is_judged_where_there_is_one() -> None:
    node = NodeGroup("gpu", "Standard_ND96asr_v4", 4, image="almalinux:almalinux-hpc:8_10-hpc-gen2:latest")
    image = skus.Image(skus.Urn("almalinux", "almalinux-hpc", "8_10-hpc-gen2", "8.10.1"), None, "V2", "x64")
    observed = seen(images={node.image: image}, versions={node.image: ["8.10.1"]})
    request = preflight.PreflightRequest([node], REGION, "/subscriptions/s")
    assert preflight.judge(request, observed)["ready"]
    result = preflight.judge(request._replace(bundle_machine="x86_64"), observed)
    assert not result["ready"] and [finding["check"] for finding in result["findings"]] == ["bundle"]


@pytest.mark.parametrize(
    ("pattern", "action", "same"),
    [
        ("*", "Microsoft.Compute/virtualMachines/write", True),
        ("*/read", "Microsoft.Compute/virtualMachines/read", True),
        ("*/read", "Microsoft.Compute/virtualMachines/write", False),
        ("microsoft.compute/*", "Microsoft.Compute/virtualMachines/write", True),
        ("Microsoft.Compute/virtualMachines/write", "Microsoft.Compute/virtualMachines/writeX", False),
        ("Microsoft.Computex", "Microsoft_Compute", False),
    ],
)
def test_patterns_of_actions(pattern: str, action: str, same: bool) -> None:
    assert skus.matches(pattern, action) is same


def test_contributor_may_all_but_assign_roles() -> None:
    (found,) = skus.judge_permissions([CONTRIBUTOR], "/subscriptions/s")
    assert found.problem == (
        "The identity may not do Microsoft.Authorization/roleAssignments/write (Microsoft.Authorization/*/Write is "
        "taken out of the role it has)."
    )
    assert "Contributor lacks it" in found.action
    assert found.blocks


def test_what_one_role_takes_out_another_gives() -> None:
    assert (
        skus.judge_permissions([CONTRIBUTOR, Grant(("Microsoft.Authorization/roleAssignments/*",))], "/subscriptions/s")
        == []
    )


def test_missing_rights_are_all_told_in_one_order() -> None:
    found = skus.judge_permissions([Grant(("*/read",))], "/subscriptions/s")
    assert [one.problem for one in found] == sorted(one.problem for one in found)
    assert len(found) == len(skus.NEEDED)
    assert skus.judge_permissions(None, "/subscriptions/s")[0].blocks is False


def test_a_provider_stops_only_those_who_may_not_register_it() -> None:
    states = {"Microsoft.Compute": "NotRegistered", "Microsoft.Network": "Registered"}
    (may,) = skus.providers(states, [OWNER])
    (may_not,) = skus.providers(states, [Grant(("*/read",))])
    assert (may.blocks, may_not.blocks) == (False, True)
    assert "az provider register --namespace Microsoft.Compute" in may_not.action


def test_all_is_well() -> None:
    node = NodeGroup("gpu", "Standard_ND96asr_v4", 4, image="microsoft-dsvm:ubuntu-hpc:2204:latest", price=27.2)
    result = preflight.judge(asked(node), seen())
    assert result["ready"]
    assert result["findings"] == []
    assert result["images"]["microsoft-dsvm:ubuntu-hpc:2204:latest"]["urn"] == "microsoft-dsvm:ubuntu-hpc:2204:22.04.10"
    assert result["nodes"][0]["cores"] == 384
    assert result["nodes"][0]["zones"] == ["1", "2", "3"]
    assert (result["cost"]["hour"], result["cost"]["day"]) == (108.8, 2611.2)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    nodes = (
        NodeGroup("gpu", "Standard_ND96asr_v4", 20, image="a:b:c:latest", zone="4", gpus=16),
        NodeGroup("other", "Standard_Gone", 1),
    )
    state = seen(
        usages=usages(region=500),
        versions={"a:b:c:latest": []},
        images={},
        grants=[CONTRIBUTOR],
        providers={"Microsoft.Compute": "Registered", "Microsoft.Storage": "NotRegistered"},
        group_location="westus",
    )
    result = preflight.judge(asked(*nodes), state)
    checks = [one["check"] for one in result["findings"]]
    assert not result["ready"]
    assert sorted(checks) == ["group", "image", "permissions", "provider", "quota", "quota", "size", "size", "size"]
    assert [one["blocks"] for one in result["findings"]] == [True] * 8 + [False]
    assert result == preflight.judge(asked(*nodes), state)


def test_nothing_is_said_of_sizes_that_could_not_be_read() -> None:
    state = seen(readable=False, skus={}, usages=[], providers={"Microsoft.Compute": "NotRegistered"})
    result = preflight.judge(asked(), state)
    assert result["ready"]
    assert result["unregistered"] == ["Microsoft.Compute"]
    assert [one["check"] for one in result["findings"]] == ["provider", "provider"]


def test_terms_that_will_be_accepted_do_not_block() -> None:
    image = skus.Image(skus.Urn("a", "b", "c", "1"), PLAN, accepted=False)
    node = NodeGroup("gpu", "Standard_ND96asr_v4", image="a:b:c:1")
    state = seen(versions={"a:b:c:1": ["1"]}, images={"a:b:c:1": image})
    assert not preflight.judge(asked(node), state)["ready"]
    assert preflight.judge(asked(node, accept_terms=True), state)["ready"]


def test_groups_without_a_price_are_named() -> None:
    cost = preflight.cost([NodeGroup("a", "x", 2, price=1.5), NodeGroup("b", "x", 1)], "EUR")
    assert (cost["hour"], cost["currency"], cost["without_price"]) == (3.0, "EUR", ["b"])


def test_what_cannot_be_meant_is_refused() -> None:
    told = preflight.refusals([NodeGroup("a", "x", -1, price=-2), NodeGroup("a", "x", image="bad")])
    assert len(told) == 4


@pytest.mark.parametrize("text", ["southcentralus", "South Central US", " SouthCentralUS "])
def test_regions_are_the_same_however_they_are_written(text: str) -> None:
    assert preflight.region(text) == REGION
