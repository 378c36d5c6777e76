# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole certifications of simulated fleets: each kind of fault is named for what it is, and nobody else is."""

from __future__ import annotations

import json
import random
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import EXPECT, Fault, Fleet, certify, strewn

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.campaign import CampaignPlan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import CampaignError

LADDERLESS = {"stages": ["reach", "local", "pair", "confirm"]}


def _by_status(certificate: dict[str, t.Any]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, node in certificate["nodes"].items():
        found.setdefault(node["status"], set()).add(name)
    return found


def _kinds(certificate: dict[str, t.Any]) -> list[str]:
    return [one["kind"] for one in certificate["findings"]]


@pytest.mark.parametrize("nodes", [2, 3, 5, 16, 17, 64, 255])
def test_a_healthy_fleet_is_cleared(nodes):
    found = certify(Fleet(nodes, leaf=16)).certificate()
    assert _by_status(found) == {"cleared": set(found["nodes"])}
    assert found["miss_bound"]["probability"] <= 0.004
    assert found["findings"] == found["untested"] == []
    assert (found["planned"], found["reached"]) == (nodes, nodes)


@pytest.mark.parametrize(("nodes", "pairs"), [(2, [3]), (3, [2, 2, 1]), (4, [2, 2, 2])], ids=["two", "three", "four"])
def test_very_few_sound_nodes_take_no_more_steps_than_they_have_partners(nodes, pairs):
    """Each step starts ranks anew: what is needed in any case is measured by those that are there."""
    fleet, steps = Fleet(nodes), []
    campaign = CampaignPlan(fleet.facts(), {"rails": True})
    while batch := campaign.next():
        steps.append(batch)
        for test in batch["tests"]:
            campaign.take(test["id"], fleet.answer(test))
    assert [len(step["tests"]) for step in steps[1 : 1 + len(pairs)]] == pairs
    assert all(test["rails"] for step in steps[1 : 1 + len(pairs)] for test in step["tests"])
    ladder = [[(test["stage"], test["collective"]) for test in step["tests"]] for step in steps[1 + len(pairs) :]]
    assert ladder == ([[("ladder", "all_reduce"), ("ladder", "alltoall")]] if nodes > 2 else [])
    found = campaign.certificate()
    assert all(node["status"] == "cleared" and node["tests"] >= 3 for node in found["nodes"].values())


@pytest.mark.parametrize("kind", ["slow", "wrong", "local"])
@pytest.mark.parametrize("nodes", [3, 4, 5])
def test_the_one_bad_node_of_very_few_is_named(kind, nodes):
    fleet = Fleet(nodes, 3, faults={"n00001": Fault(kind)})
    found = certify(fleet).certificate()
    assert _by_status(found) == {"cleared": set(fleet.names) - {"n00001"}, "drained": {"n00001"}}


@pytest.mark.parametrize("kind", ["slow", "rail", "wrong", "local"])
@pytest.mark.parametrize("nodes", [8, 40, 200])
def test_the_one_bad_node_is_named(kind, nodes):
    fleet = Fleet(nodes, 3, leaf=16, faults={"n00005": Fault(kind)})
    found = certify(fleet).certificate()
    assert _by_status(found) == {"cleared": set(fleet.names) - {"n00005"}, "drained": {"n00005"}}
    assert found["drains"] == ["n00005"]
    assert found["nodes"]["n00005"]["posterior"] >= 0.95
    assert found["nodes"]["n00005"]["reason"]


@pytest.mark.parametrize("kind", ["dead", "hang"])
@pytest.mark.parametrize("nodes", [8, 40, 200])
def test_silence_is_infra_and_spoils_nobody_else(kind, nodes):
    fleet = Fleet(nodes, 3, leaf=16, faults={"n00005": Fault(kind)})
    found = certify(fleet).certificate()
    assert _by_status(found) == {"cleared": set(fleet.names) - {"n00005"}, "untested": {"n00005"}}
    assert found["nodes"]["n00005"]["class"] == "infra"
    assert [one["node"] for one in found["untested"]] == ["n00005"]


def test_a_node_that_hangs_only_with_others_is_infra_and_its_partners_are_cleared():
    fleet = Fleet(60, 1, leaf=16, faults={"n00005": Fault("hang pair")})
    found = certify(fleet).certificate()
    assert _by_status(found) == {"cleared": set(fleet.names) - {"n00005"}, "untested": {"n00005"}}


@pytest.mark.parametrize("nodes", [7, 16, 60, 61])
def test_a_node_that_hangs_costs_two_rounds_their_time_limit(nodes):
    """Two partners that answer others are enough to know who is silent."""
    found = certify(Fleet(nodes, 1, leaf=16, faults={"n00005": Fault("hang pair")})).certificate()
    wide = [one for one in found["rounds"] if one["stage"] in ("pair", "confirm", "ladder")]
    assert sum("n00005" in test["nodes"] for one in wide for test in one["tests"]) == 2
    assert found["nodes"]["n00005"]["status"] == "untested"
    assert {node["status"] for name, node in found["nodes"].items() if name != "n00005"} == {"cleared"}


def test_where_nothing_comes_back_nobody_is_left_out():
    """A controller that was away for a while is no node that hangs."""
    campaign = CampaignPlan(Fleet(60, 1, leaf=16).facts(), {"stages": ["pair"]})
    for dummy in range(3):
        batch = campaign.next()
        assert len({name for test in batch["tests"] for name in test["nodes"]}) == 60
        for test in batch["tests"]:
            campaign.take(test["id"], [], "the controller was away")


def test_a_node_with_a_bad_history_is_tested_more_often():
    fleet = Fleet(64, 1, leaf=16)
    facts = fleet.facts()
    facts["nodes"][7]["suspicion"] = 0.2
    found = _run(CampaignPlan(facts, {}), fleet).certificate()
    assert {node["tests"] for name, node in found["nodes"].items() if name != "n00007"} <= {3, 4}
    assert found["nodes"]["n00007"]["tests"] >= 4


@pytest.mark.parametrize("nodes", [3, 4, 5, 8, 64])
@pytest.mark.parametrize("broken", [False, True])
def test_who_was_convicted_and_is_well_now_is_cleared_by_one_run(nodes: int, broken: bool):
    """A repaired node would have come back drained, with good tests alone."""
    faults = {"n00001": Fault("slow")} if broken else {}
    fleet = Fleet(nodes, 1, leaf=16, faults=faults)
    facts = fleet.facts()
    facts["nodes"][1]["suspicion"] = 0.99995
    found = _run(CampaignPlan(facts, {}), fleet).certificate()
    assert found["nodes"]["n00001"]["status"] == ("drained" if broken else "cleared")


def test_who_lost_a_result_is_tested_once_more():
    fleet = Fleet(64, 1, leaf=16)
    campaign = CampaignPlan(fleet.facts(), LADDERLESS)
    while True:
        batch = campaign.next()
        if batch is None:
            break
        for test in batch["tests"]:
            lost = "n00007" in test["nodes"] and (test["stage"], test["round"]) == ("pair", 2)
            campaign.take(test["id"], [] if lost else fleet.answer(test), "the step was lost")
    found = campaign.certificate()
    assert set(_by_status(found)) == {"cleared"}
    assert min(node["tests"] for node in found["nodes"].values()) == 3
    assert found["nodes"]["n00007"]["tests"] == 4


def test_a_weak_rail_is_named():
    fleet = Fleet(64, 1, leaf=16, faults={"n00007": Fault("rail")})
    found = certify(fleet, {"rails": True}).certificate()
    assert _by_status(found) == {"cleared": set(fleet.names) - {"n00007"}, "drained": {"n00007"}}
    assert "all_reduce of 2, rail 3 at 32.9% of the fleet's median" in found["nodes"]["n00007"]["reason"]


def test_two_bad_partners_are_both_named():
    fleet = Fleet(200, 1, leaf=16)
    first = certify(fleet, LADDERLESS).certificate()["rounds"][2]["tests"][0]["nodes"]
    fleet.faults = dict.fromkeys(first, Fault("slow"))
    assert _by_status(certify(fleet).certificate())["drained"] == set(first)


def test_a_node_is_convicted_by_its_own_tests_and_not_by_those_of_its_partners():
    fleet = Fleet(48, 3, leaf=16)
    first = certify(fleet, LADDERLESS).certificate()["rounds"][2]["tests"][0]["nodes"]
    fleet.faults = {first[0]: Fault("wrong"), first[1]: Fault("slow")}
    found = certify(fleet, LADDERLESS).certificate()["nodes"]
    assert [found[name]["status"] for name in first] == ["drained", "drained"]
    assert "wrong values" in found[first[0]]["reason"]
    assert "wrong values" not in found[first[1]]["reason"] and "GB/s" in found[first[1]]["reason"]


def test_an_intermittent_node_is_never_silently_cleared_once_seen():
    for seed in range(5):
        fleet = Fleet(200, seed, leaf=16, faults={"n00005": Fault("flaky", 1 / 3)})
        node = certify(fleet).certificate()["nodes"]["n00005"]
        assert node["failed"] < 2 or node["status"] in ("watched", "drained")


def test_a_bad_link_is_no_fault_of_its_two_nodes():
    fleet = Fleet(200, 1, leaf=16)
    pair = certify(fleet, LADDERLESS).certificate()["rounds"][3]["tests"][7]["nodes"]
    fleet.links = {frozenset(pair)}
    found = certify(fleet, LADDERLESS).certificate()
    assert not _by_status(found).get("drained")
    assert [(one["kind"], one["nodes"]) for one in found["findings"]] == [("fabric", sorted(pair))]
    assert _by_status(found)["cleared"] == set(fleet.names)


@pytest.mark.parametrize(
    "ends", [("n00002", "n00011"), ("n00002", "n00037"), ("n00016", "n00047"), ("n00031", "n00032")]
)
def test_a_bad_link_that_no_pair_met_is_named_by_the_ladder(ends):
    fleet = Fleet(48, 3, leaf=16)
    pairs = [test["nodes"] for part in certify(fleet, LADDERLESS).certificate()["rounds"] for test in part["tests"]]
    assert list(ends) not in pairs and [*reversed(ends)] not in pairs
    fleet.links = {frozenset(ends)}
    found = certify(fleet).certificate()
    assert _by_status(found) == {"cleared": set(fleet.names)}
    (one,) = found["findings"]
    assert (one["kind"], one["nodes"]) == ("fabric", list(ends))


def test_a_bad_link_is_found_beside_a_slow_uplink_and_another_link():
    fleet = Fleet(64, 4, leaf=16, uplinks=["leaf0001"])
    fleet.links = {frozenset(("n00003", "n00008")), frozenset(("n00035", "n00060"))}
    campaign = certify(fleet)
    found = campaign.certificate()
    for batch in campaign.ledger.batches:
        names = [name for test in batch.tests for name in test.nodes]
        assert len(names) == len(set(names)), "what runs at the same time shares no node"
    assert _by_status(found) == {"cleared": set(fleet.names)}
    named = {tuple(one["nodes"]) for one in found["findings"] if "uplink" not in one["text"] and len(one["nodes"]) == 2}
    assert named == {("n00003", "n00008"), ("n00035", "n00060")}
    assert [one["suspects"] for one in found["findings"] if len(one["nodes"]) > 2] == [["uplink leaf0001"]]


def test_what_is_slow_only_once_in_the_ladder_is_said_to_come_and_go():
    fleet = Fleet(48, 3, leaf=16)
    campaign, slow = CampaignPlan(fleet.facts(), {}), 0
    while (batch := campaign.next()) is not None:
        for test in batch["tests"]:
            fleet.speed = 0.7 if len(test["nodes"]) == 48 and not slow else 1.0
            slow += fleet.speed < 1
            campaign.take(test["id"], fleet.answer(test))
    found = campaign.certificate()
    assert _by_status(found) == {"cleared": set(fleet.names)}
    (one,) = found["findings"]
    assert one["kind"] == "fabric" and "slow once and well when it ran again" in one["text"]


def test_who_was_bad_and_is_not_cleared_spoils_no_wide_step():
    watched = 0
    for seed in range(12):
        fleet = Fleet(64, seed, leaf=16, faults={"n00005": Fault("flaky", 1 / 3)})
        campaign = certify(fleet)
        node = campaign.certificate()["nodes"]["n00005"]
        wide = {name for test, dummy in campaign.ledger.results("ladder") for name in test.nodes}
        watched += node["status"] == "watched"
        assert ("n00005" in wide) == (node["status"] == "cleared")
    assert watched


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_leaf_is_one_finding_and_drains_nobody(seed):
    fleet = Fleet(256, seed, leaf=16, leaves=["leaf0003"], faults={"n00100": Fault("slow")})
    found = certify(fleet, LADDERLESS).certificate()
    assert _by_status(found)["drained"] == {"n00100"}
    assert _by_status(found)["watched"] == {name for name in fleet.names if fleet.leaf[name] == "leaf0003"}
    (one,) = found["findings"]
    assert (one["kind"], one["suspects"]) == ("fabric", ["leaf leaf0003"])


def test_a_slow_uplink_is_told_from_a_slow_leaf():
    fleet = Fleet(256, 2, leaf=16, uplinks=["leaf0003"])
    found = certify(fleet, LADDERLESS).certificate()
    assert not _by_status(found).get("drained")
    (one,) = found["findings"]
    assert (one["kind"], one["suspects"]) == ("fabric", ["uplink leaf0003"])


@pytest.mark.parametrize("seed", range(8))
def test_nobody_is_watched_for_having_been_tested_through_a_slow_uplink(seed):
    """Partners are chosen on this side of it; in the ladder it explains what is slow, once."""
    fleet = Fleet(48, seed, leaf=16, uplinks=["leaf0001"])
    found = certify(fleet).certificate()
    assert _by_status(found) == {"cleared": set(fleet.names)}
    assert [one["suspects"] for one in found["findings"]] == [["uplink leaf0001"]]


def test_a_slow_rung_over_clean_pairs_names_the_switches():
    fleet = Fleet(256, 2, leaf=16, pod=64, spines=["pod001"])
    found = certify(fleet).certificate()
    assert _by_status(found) == {"cleared": set(fleet.names)}
    slow = [one for one in found["ladder"] if one["verdict"] == "fail"]
    assert {one["nodes"] for one in slow} >= {64, 256}
    assert {one["nodes"] for one in found["ladder"]} >= {16, 64, 256}
    narrow = min((one for one in found["findings"] if one["kind"] == "fabric"), key=lambda one: len(one["nodes"]))
    assert set(narrow["suspects"]) <= {f"leaf{n:04d}" for n in range(4, 8)}


def test_a_slow_fleet_is_one_finding_and_judges_nobody():
    found = certify(Fleet(100, leaf=16, speed=0.7)).certificate()
    assert set(_by_status(found)) == {"watched"}
    assert set(_kinds(found)) == {"population", "fabric"}
    assert found["drains"] == []


def test_more_than_a_share_is_judged_and_not_drained():
    fleet = Fleet(300, 5)
    fleet.faults = strewn(fleet.names, 0.08, Fault("slow"), random.Random(1))
    found = certify(fleet, LADDERLESS).certificate()
    assert _by_status(found)["drained"] == set(fleet.faults)
    assert (found["drains"], _kinds(found)) == ([], ["common_cause"])


def test_a_slow_node_is_found_without_any_floor():
    fleet = Fleet(100, leaf=10, faults={"n00050": Fault("slow"), "n00020": Fault("local")})
    fleet.expect = []
    found = certify(fleet, expect=[]).certificate()
    assert _by_status(found)["drained"] == {"n00020", "n00050"}
    assert found["notes"] == ["no floor is known for the pair tests: they were judged beside each other only"]


def test_busy_and_down_nodes_are_untested_with_their_reason():
    fleet = Fleet(30)
    facts = fleet.facts()
    facts["nodes"][3].update(state="busy")
    facts["nodes"][4].update(state="down", reason="cable swap")
    found = _run(CampaignPlan(facts, {}), fleet).certificate()
    assert found["untested"] == [{"node": "n00003", "reason": "busy"}, {"node": "n00004", "reason": "down: cable swap"}]
    assert found["planned"] == found["reached"] + 2


def test_of_one_node_its_own_suite_is_all():
    found = certify(Fleet(1)).certificate()
    assert found["nodes"]["n00000"]["status"] == "cleared"
    assert found["miss_bound"]["text"].startswith("1 node cleared; not each was tested with another")
    assert certify(Fleet(1, faults={"n00000": Fault("local")})).certificate()["drains"] == ["n00000"]


def test_of_two_nodes_that_fail_together_neither_is_drained():
    found = certify(Fleet(2, faults={"n00000": Fault("slow")})).certificate()
    assert set(_by_status(found)) == {"watched"}


def _run(campaign: CampaignPlan, fleet: Fleet, dice: random.Random | None = None) -> CampaignPlan:
    """Run to the end; with dice in any order, each result up to three times, some of them early or lost."""
    while True:
        batch = campaign.next()
        if batch is None:
            return campaign
        tests = list(batch["tests"]) * (dice.randint(1, 2) if dice else 1)
        if dice:
            dice.shuffle(tests)
        for test in tests:
            campaign.take(test["id"], fleet.answer(test))


def _any_fleet(seed: int, most: int) -> tuple[Fleet, dict[str, t.Any]]:
    dice = random.Random(seed)
    kinds = ["slow", "rail", "flaky", "wrong", "hang", "dead", "local", "hang pair"]
    fleet = Fleet(dice.randint(1, most), seed, leaf=dice.choice([0, 1, 3, 8]), pod=dice.choice([0, 16]))
    fleet.noise = dice.choice([0, 0.01, 0.2])
    for name in dice.sample(fleet.names, dice.randint(0, len(fleet.names))):
        if dice.random() < dice.choice([0.1, 1.0]):
            fleet.faults[name] = Fault(dice.choice(kinds), dice.choice([1.0, 0.5]))
    facts = fleet.facts()
    for node in facts["nodes"]:
        node["state"] = dice.choice(["idle"] * 9 + ["busy", "down", "drained"])
    return fleet, facts


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 100_000))
def test_whatever_the_fleet_the_certificate_accounts_for_every_node(seed: int) -> None:
    fleet, facts = _any_fleet(seed, 40)
    campaign = _run(CampaignPlan(facts, {"seed": seed}), fleet)
    found = campaign.certificate()
    assert found["planned"] == len(fleet.names) == len(found["nodes"]) == found["reached"] + len(found["untested"])
    assert all(one["reason"] for one in found["untested"])
    assert all(node["reason"] for node in found["nodes"].values() if node["status"] != "cleared")
    assert all(len(campaign.explain(name)) >= 2 for name in fleet.names)
    json.dumps(found, allow_nan=False)
    for batch in found["rounds"]:
        names = [name for test in batch["tests"] for name in test["nodes"]]
        assert len(names) == len(set(names)), f"{batch['id']} needs a node twice at the same time"
    idle = [node["name"] for node in facts["nodes"] if node["state"] == "idle"]
    for name, fault in fleet.faults.items():
        # A weak rail misses no floor, and of very few nodes nothing else tells it; alone, a node meets nobody.
        if fault.shows == 1.0 and fault.kind != "rail" and len(idle) > 1:
            assert found["nodes"][name]["status"] != "cleared"


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 100_000))
def test_results_in_any_order_and_more_than_once_make_the_same_certificate(seed: int) -> None:
    fleet, facts = _any_fleet(seed, 30)
    plain = _run(CampaignPlan(facts, {"seed": seed}), fleet).certificate()
    assert _run(CampaignPlan(facts, {"seed": seed}), fleet, random.Random(seed)).certificate() == plain


def test_a_campaign_goes_on_where_it_was_killed():
    fleet = Fleet(60, 4, leaf=8, noise=0.01, faults={"n00007": Fault("slow")})
    whole = certify(fleet)
    told: list[str] = []
    for stop in range(0, 400, 37):
        campaign = CampaignPlan(fleet.facts(), {"seed": 4})
        for dummy in range(stop):
            batch = campaign.next()
            if batch is None:
                break
            test = next(one for one in batch["tests"] if one["id"] in batch["missing"])
            campaign.take(test["id"], fleet.answer(test))
            told.append(test["id"])
        fresh = CampaignPlan(fleet.facts(), {"seed": 4})
        assert _run(fresh, fleet).certificate() == whole.certificate()
    assert told


def test_the_same_batch_comes_until_all_of_it_was_taken():
    campaign = CampaignPlan(Fleet(5).facts(), {})
    first = campaign.next()
    assert first == campaign.next()
    assert [len(first["tests"]), first["stage"], first["concurrent"]] == [10, "local", 5]
    for test in first["tests"][:-1]:
        campaign.take(test["id"], [], "no answer")
    again = campaign.next()
    assert (again["id"], again["missing"]) == (first["id"], [first["tests"][-1]["id"]])
    campaign.take(again["missing"][0], [], "no answer")
    assert campaign.next() is None
    assert {one["reason"] for one in campaign.certificate()["untested"]} == {"did not answer: no answer"}


def test_what_was_given_up_stays_given_up():
    fleet = Fleet(4)
    campaign = CampaignPlan(fleet.facts(), {"stages": ["reach"]})
    tests = campaign.next()["tests"]
    campaign.take(tests[0]["id"], [], "given up")
    campaign.take(tests[0]["id"], fleet.answer(tests[0]))
    for test in tests[1:]:
        campaign.take(test["id"], fleet.answer(test))
    assert campaign.next() is None
    assert campaign.certificate()["nodes"]["n00000"]["status"] == "untested"


def test_the_plan_says_what_it_takes_before_it_starts():
    options = {"gpus_per_node": 8, "cost_per_gpu_hour": 4.0}
    plan = CampaignPlan(Fleet(1000, leaf=16, pod=256).facts(), options).plan()
    assert (plan["nodes"], plan["rounds"], plan["round_robin"]) == (1000, 7, False)
    assert plan["cost"] == pytest.approx(4 * plan["gpu_hours"], abs=0.05)
    assert plan["gpu_hours"] == pytest.approx(8 * plan["node_hours"], abs=0.05)
    assert plan["text"][-1].startswith("in all: 1000 nodes, at most ")
    assert CampaignPlan(Fleet(16).facts(), {}).plan()["round_robin"] is True
    assert CampaignPlan(Fleet(16).facts(), {}).plan()["rounds"] >= 15
    pair = [line for line in CampaignPlan(Fleet(2).facts(), {}).plan()["text"] if line.startswith("pair")]
    assert "pair: 1 round, 1 test, " in pair[0]
    ladder = [line for line in CampaignPlan(Fleet(3).facts(), {}).plan()["text"] if line.startswith("ladder")]
    assert "ladder: 1 round, 2 tests, 10.0 min " in ladder[0]


def test_explain_tells_tests_and_partners():
    fleet = Fleet(40, 2, leaf=8, faults={"n00005": Fault("slow")})
    lines = certify(fleet).explain("n00005")
    assert lines[0].startswith("n00005: drained, at fault with 1 (nccl_tests: busbw (")
    bad = [line for line in lines if ": bad 2" in line]
    assert len(bad) >= 3
    assert all(" with n000" in line and "of the median" in line for line in bad)


@pytest.mark.parametrize(
    ("fleet", "options", "said"),
    [
        ({}, {}, "names no nodes"),
        ({"nodes": [{"name": ""}]}, {}, "has no name"),
        ({"nodes": [{"name": "a"}, {"name": "a"}]}, {}, "a is named twice"),
        ({"nodes": [{"name": "a"}]}, {"k": 0}, "k is 0"),
        ({"nodes": [{"name": "a"}]}, {"k": 2.5}, "k is 2.5"),
        ({"nodes": [{"name": "a"}]}, {"q0": "x"}, "q0 is 'x'"),
        ({"nodes": [{"name": "a"}]}, {"stages": ["fly"]}, "stages has fly"),
        ({"nodes": [{"name": "a"}]}, {"seconds": {"pair": 0}}, "seconds.pair is 0"),
        ({"nodes": [{"name": "a"}]}, {"seconds": [1]}, "seconds is"),
        ({"nodes": [{"name": "a"}]}, {"collectives": []}, "collectives has none"),
        ({"nodes": [{"name": "a"}]}, {"collectives": ["all_gather"]}, "collectives has all_gather"),
        ({"nodes": [{"name": "a"}]}, {"drain_at": 0.5, "clear_at": 0.5}, "above clear_at"),
    ],
)
def test_bad_input_is_refused(fleet, options, said):
    with pytest.raises(CampaignError, match=said):
        CampaignPlan(fleet, options)


def test_an_unknown_node_is_not_explained():
    with pytest.raises(CampaignError, match="n9 is not in this certification"):
        CampaignPlan(Fleet(2).facts(), {}).explain("n9")


def test_the_expectations_of_the_simulation_have_sources():
    assert all(one["source"] for one in EXPECT)
