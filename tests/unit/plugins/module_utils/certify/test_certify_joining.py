# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that join a certified cluster: who is held, beside whom they are certified, and what that finds."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from simulated import Fault, Fleet, certify

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import installation, joining
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.joining import REASON

Json = t.Dict[str, t.Any]
STAGES = {"stages": ["reach", "local", "pair", "confirm"]}
PROVEN = {f"c{number}": True for number in range(1, 9)}
LEAVES = {f"c{number}": {"leaf": f"leaf{(number + 3) // 4}", "pod": "pod1"} for number in range(1, 13)}


def node(name: str, state: str = "IDLE", reason: str = "", flags: t.Sequence[str] = ()) -> Json:
    about = {"reason": reason, "reason_user": "ops", "drained": "DRAIN" in flags}
    return {"name": name, "state": state, "flags": list(flags), **about}


def held(name: str, **more: t.Any) -> Json:
    return node(name, reason=REASON, **{"flags": ["DRAIN"], **more})


def old(busy: t.Container[str] = ()) -> list[Json]:
    return [node(name, "ALLOCATED" if name in busy else "IDLE") for name in PROVEN]


def plan(nodes: list[Json], named: t.Sequence[str] = (), known: t.Mapping[str, bool] = PROVEN) -> joining.Joining:
    return joining.plan(nodes, known, LEAVES, named, 3)


def test_a_node_that_nobody_has_measured_is_held_and_certified_beside_its_own_leaf() -> None:
    found = plan([*old(), node("c9")], known={**PROVEN, "c7": False})
    assert (found.hold, found.ready, found.findings) == (["c9"], ["c9"], [])
    assert found.partners == ["c1", "c2", "c3", "c4"]  # nobody of leaf3 is there yet: of the same pod
    found = plan([*old(), node("c8x")], known=PROVEN)
    assert found.hold == ["c8x"]


def test_partners_are_of_the_newcomers_leaves_in_turn() -> None:
    known = dict.fromkeys(("c1", "c2", "c3", "c5", "c6", "c7", "c9"), True)
    nodes = [node(name) for name in ("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9")]
    found = joining.plan(nodes, known, LEAVES, [], 4)
    assert found.ready == ["c4", "c8"]
    assert found.partners == ["c1", "c5", "c2", "c6"]


def test_nobody_is_held_before_the_first_certification() -> None:
    assert plan([*old(), node("c9")], known={}) == ([], [], [], [], [])
    assert plan([*old(), node("c9")], known={"c1": False}).hold == []
    assert "certify.yml" in plan([*old()], ["c1"], known={}).findings[0]


@pytest.mark.parametrize(
    ("newcomer", "said"),
    [
        (node("c9", reason="rack is moved", flags=["DRAIN"]), "left as it is, its reason is of ops: rack is moved"),
        (node("c9", flags=["DRAIN"]), "left as it is, its reason is of ops: none"),
        (node("c9", reason="hpcai:gpu_count:7 of 8", flags=["DRAIN"]), "drained for hpcai:gpu_count:7 of 8: mend that"),
        (node("c9", reason="do not reboot"), "left as it is"),
        (node("c9", "ALLOCATED"), "runs jobs; name it"),
    ],
)
def test_what_somebody_decided_stays(newcomer: Json, said: str) -> None:
    found = plan([*old(), newcomer])
    assert (found.hold, found.ready) == ([], [])
    assert said in found.findings[0]


def test_a_named_node_that_is_left_as_it_is_counts_as_not_certified() -> None:
    newcomer = node("c9", reason="rack is moved", flags=["DRAIN"])
    assert (plan([*old(), newcomer]).waiting, plan([*old(), newcomer], ["c9"]).waiting) == ([], ["c9"])
    assert plan([*old(), newcomer], ["c9"], known={}).waiting == ["c9"]


def test_nodes_that_slurm_creates_are_not_held() -> None:
    assert plan([*old(), node("c9", flags=["CLOUD"]), node("c10", "FUTURE")]) == ([], [], [], [], [])


def test_a_node_is_held_before_its_slurmd_runs_and_certified_when_it_does() -> None:
    for new in (node("c9", "UNKNOWN"), node("c9", "DOWN", "Not responding", ["NOT_RESPONDING"])):
        found = plan([*old(), new])
        assert (found.hold, found.ready, found.waiting) == (["c9"], [], ["c9"])
        assert "slurmd does not answer" in found.findings[0]
    found = plan([*old(), held("c9")])
    assert (found.hold, found.ready, found.waiting) == ([], ["c9"], [])


def test_a_reinstalled_node_is_named_and_its_jobs_end_first() -> None:
    found = plan(old(busy=["c3"]), ["c3"])
    assert (found.hold, found.ready, found.waiting) == (["c3"], [], ["c3"])
    found = plan([*(one for one in old() if one["name"] != "c3"), held("c3")], ["c3"])
    assert (found.hold, found.ready, found.partners) == ([], ["c3"], ["c1", "c2", "c4", "c5"])


def test_too_few_idle_proven_nodes_leave_it_held() -> None:
    found = plan([*old(busy=[f"c{n}" for n in range(2, 9)]), held("c9")])
    assert (found.ready, found.partners, found.waiting) == ([], [], ["c9"])
    assert "2 proven nodes have to be idle, and 1 are" in found.findings[0]


def test_few_partners_prove_less_and_that_is_said() -> None:
    found = plan([*old(busy=[f"c{n}" for n in range(3, 9)]), held("c9")])
    assert (found.ready, found.partners) == (["c9"], ["c1", "c2"])
    assert "not compared with each other" in found.findings[0]


def test_only_a_certificate_beside_others_proves_and_the_last_one_counts() -> None:
    def one(**status: tuple[str, int]) -> Json:
        return {"nodes": {name: {"status": word, "tests": tests} for name, (word, tests) in status.items()}}

    certificates = [
        one(a=("cleared", 3), b=("cleared", 3), c=("untested", 0), d=("drained", 3), e=("cleared", 0)),
        one(a=("untested", 0), b=("drained", 4), d=("cleared", 0)),
        {"nodes": {"a": "odd", "f": {"status": "cleared", "tests": "many"}}},
        "odd",
        {"nodes": ["odd"]},
    ]
    assert joining.proven(certificates) == {"a": True, "b": False, "d": False}


@pytest.mark.parametrize("kind", ["slow", "rail", "wrong", "local"])
@pytest.mark.parametrize("newcomers", [1, 2, 6])
def test_a_bad_newcomer_is_found_beside_few_proven_nodes_and_nobody_else(kind: str, newcomers: int) -> None:
    """The fleet of a joining: the newcomers first, then their partners; stages as role node_repair has them."""
    nodes = [held(f"c{number}") for number in range(9, 9 + newcomers)]
    found = plan([*old(), *nodes])
    fleet = Fleet(len(found.ready) + len(found.partners), 3, faults={"n00000": Fault(kind)})
    got = certify(fleet, STAGES).certificate()["nodes"]
    assert got["n00000"]["status"] == "drained", got
    assert {got[name]["status"] for name in fleet.names[1:]} == {"cleared"}


@pytest.mark.parametrize("newcomers", [1, 3, 12])
def test_healthy_newcomers_are_proven_by_it(newcomers: int) -> None:
    nodes = [held(f"c{number}") for number in range(9, 9 + newcomers)]
    found = plan([*old(), *nodes])
    fleet = Fleet(newcomers + len(found.partners), 5)
    certificate = certify(fleet, STAGES).certificate()
    assert all(joining.proven([certificate])[name] for name in fleet.names)
    assert len(found.partners) == max(3, 5 - newcomers)


def told(**nodes: Json) -> Json:
    return {"nodes": nodes}


def of(installation: t.Any, status: str = "cleared", tests: int = 7) -> Json:
    return {"status": status, "tests": tests, "installation": installation}


@pytest.mark.parametrize(
    ("certificates", "now", "again"),
    [
        ([told(c1=of("a"))], {"c1": "a"}, set()),
        ([told(c1=of("a"))], {"c1": "b"}, {"c1"}),
        ([told(c1=of("a"))], {}, set()),  # did not answer
        ([told(c1=of("a"))], {"c1": ""}, set()),
        ([told(c1=of(""))], {"c1": "b"}, set()),  # of an agent that did not tell
        ([told(c1={"status": "cleared", "tests": 7})], {"c1": "b"}, set()),
        ([told(c1=of(["a"]))], {"c1": "b"}, set()),
        ([told(c1=of("a")), told(c1=of("b"))], {"c1": "b"}, set()),
        ([told(c1=of("a")), told(c1=of("b"))], {"c1": "a"}, {"c1"}),
        # A look at the node alone, or none at all, was no certification beside others.
        ([told(c1=of("a")), told(c1=of("b", tests=0))], {"c1": "b"}, {"c1"}),
        ([told(c1=of("a")), told(c1=of("b", "untested"))], {"c1": "b"}, {"c1"}),
        ([told(c1=of("a", "drained"))], {"c1": "b"}, {"c1"}),
        ([], {"c1": "b"}, set()),
        ([{"nodes": 3}, 4], {"c1": "b"}, set()),
    ],
)
def test_a_node_is_another_one_when_its_last_certificate_tells_of_another_installation(
    certificates: list[t.Any], now: dict[str, str], again: set[str]
) -> None:
    assert joining.renewed(certificates, now) == again


def test_a_node_that_was_installed_anew_joins_again_and_is_nobodys_partner() -> None:
    found = joining.plan(old(), PROVEN, LEAVES, [], 3, {"c3"})
    assert (found.hold, found.ready) == (["c3"], ["c3"])
    assert "c3" not in found.partners and len(found.partners) == 4
    assert "c3: was installed anew" in found.findings[0]
    found = joining.plan(old(busy={"c3"}), PROVEN, LEAVES, [], 3, {"c3"})
    assert (found.hold, found.ready) == ([], [])
    assert "not certified since it was installed anew and runs jobs; name it" in found.findings[1]


def test_when_all_were_installed_anew_certify_has_to_begin_again() -> None:
    assert joining.plan(old(), PROVEN, LEAVES, [], 3, set(PROVEN)).hold == []


def test_a_machine_id_is_shown_to_nobody_and_an_image_has_none(tmp_path: Path) -> None:
    machine_id = "8b0b0a8f3f1c4d0e9d8b7a6c5d4e3f21"
    (tmp_path / "machine-id").write_text(f"{machine_id}\n")
    here = installation.here((str(tmp_path / "none"), str(tmp_path / "machine-id")))
    assert here == installation.digest(machine_id.upper()) and len(here) == 32
    assert machine_id not in here
    for nothing in ("", "\n", "uninitialized\n"):
        (tmp_path / "machine-id").write_text(nothing)
        assert installation.here((str(tmp_path / "machine-id"),)) == ""
