# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import cluster_state, nodes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.nodes import NodesPlan, plan, progress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import CycleClient, CycleCloudError

STATUS = json.loads((Path(__file__).parents[3] / "fixtures/cyclecloud/status.json").read_text())
Json = t.Dict[str, t.Any]


def wish(**given: t.Any) -> Json:
    base = {
        "cluster": "c1",
        "state": "present",
        "partial": False,
        "wait": True,
        "wait_timeout": 30,
        "poll": 1,
        "settle": 5,
    }
    return {**base, **given}


def changed(**buckets: Json) -> Json:
    """The status with other values in the first bucket of a node array."""
    made = copy.deepcopy(STATUS)
    for array in made["nodearrays"]:
        array["buckets"][0].update(buckets.get(array["name"], {}))
    return made


def test_nodes_in_our_words() -> None:
    found = {one["name"]: one for one in cluster_state.nodes(STATUS)}
    assert list(found) == ["gpu-1", "gpu-2", "gpu-3", "htc-1", "login-1", "scheduler"]
    assert {name: one["role"] for name, one in found.items() if one["role"] != "execute"} == {
        "login-1": "login",
        "scheduler": "scheduler",
    }
    one = found["gpu-1"]
    assert (one["gpus"], one["cores"], one["placement_group"], one["state"]) == (8, 96, "pg0", "Ready")
    assert found["scheduler"]["gpus"] is None and found["htc-1"]["message"] == "Timeout awaiting system boot-up"


@pytest.mark.parametrize("name, kept", [("gpu-1.internal", True), ("-oProxyCommand=x", False), ("a b", False)])
def test_a_host_name_that_ssh_would_take_for_an_option_is_no_address(name: str, kept: bool) -> None:
    one = cluster_state.node({"Name": "gpu-1", "Template": "gpu", "Status": "Ready", "Hostname": name})
    found = cluster_state.to_hosts([one], "c1", ["Ready"], "")
    assert [host.remote["ansible_host"] for host in found] == ([name] if kept else [])


def test_roles_without_configuration_follow_the_template() -> None:
    names = ("scheduler", "login", "gpu", "other")
    roles = [
        cluster_state.node({"Template": name}, {"name": name} if name == "gpu" else None)["role"] for name in names
    ]
    assert roles == ["scheduler", "login", "execute", ""]


@pytest.mark.parametrize(
    "bucket, spot, available, limit, most",
    [
        ({}, False, 12, "node array", 16),
        ({"availableCount": 3}, False, 3, "bucket", 16),
        ({"familyQuotaCoreCount": 480}, False, 2, "family quota", 16),
        ({"regionalQuotaCoreCount": 250}, False, 0, "regional quota", 16),
        ({"familyQuotaCount": 0, "familyQuotaCoreCount": 0, "quotaCount": 5}, True, 12, "node array", 16),
        ({"valid": False, "invalidReason": "NotActivated"}, False, 0, "NotActivated", 16),
        ({"familyQuotaCount": 4}, False, 12, "node array", 4),
    ],
)
def test_the_lowest_limit_counts(bucket: Json, spot: bool, available: int, limit: str, most: int) -> None:
    array = next(
        one
        for one in changed(gpu={"activeCount": 4, "availableCount": 12, **bucket})["nodearrays"]
        if one["name"] == "gpu"
    )
    array["buckets"][0]["familyConsumedCoreCount"] = 288
    assert cluster_state.available_now(array, array["buckets"][0], spot) == (available, limit)
    assert cluster_state.maximum(array, array["buckets"][0], spot) == most


def test_gpus_that_cyclecloud_does_not_see() -> None:
    assert cluster_state.gpu_problems(STATUS, {"gpu": 8}) == []
    blind = changed(gpu={"virtualMachine": {"vcpuCount": 96, "gpuCount": 0}})
    assert (
        "sees 0 GPUs in Standard_ND96asr_v4 of node array gpu, not 8"
        in cluster_state.gpu_problems(blind, {"gpu": 8})[0]
    )
    assert "no node array gqu" in cluster_state.gpu_problems(STATUS, {"gqu": 8})[0]


def test_ready_means_started_and_scheduler_ready() -> None:
    assert cluster_state.ready(STATUS) == (True, [])
    assert cluster_state.ready({**STATUS, "targetState": "Off"})[0] is False
    failed = copy.deepcopy(STATUS)
    failed["nodes"][0].update(Status="Failed", StatusMessage="AllocationFailed")
    assert cluster_state.ready(failed) == (False, ["scheduler is Failed: AllocationFailed"])
    assert cluster_state.ready({}) == (False, [])


NOTHING = ("", [], [])


@pytest.mark.parametrize(
    "given, expected",
    [
        ({"nodearray": "gpu", "count": 2}, NOTHING),
        ({"nodearray": "gpu", "count": 4}, ("create", [], [{"nodearray": "gpu", "count": 2}])),
        ({"nodearray": "gpu", "count": 0}, NOTHING),
        ({"nodearray": "gpu", "cores": 192}, NOTHING),
        ({"nodearray": "gpu", "cores": 193}, ("scale", [], [{"nodearray": "gpu", "count": 1}])),
        ({"nodearray": "gpu", "names": ["gpu-1"]}, NOTHING),
        (
            {
                "nodearray": "gpu",
                "names": ["gpu-1", "big-12"],
                "placement_group": "pg1",
                "attributes": {"KeepAlive": True},
            },
            (
                "create",
                ["big-12"],
                [
                    {
                        "nodearray": "gpu",
                        "placementGroupId": "pg1",
                        "nodeAttributes": {"KeepAlive": True},
                        "count": 1,
                        "nameFormat": "big-%d",
                        "nameOffset": 12,
                    }
                ],
            ),
        ),
        ({"state": "absent", "names": ["gpu-1", "gone-1"]}, ("remove", ["gpu-1"], [])),
        ({"state": "absent", "names": ["gpu-2"]}, NOTHING),
        ({"state": "terminated", "nodearray": "gpu"}, ("terminate", ["gpu-1", "gpu-3"], [])),
        ({"state": "started", "names": ["gpu-1", "gpu-3"]}, NOTHING),
        ({"state": "started", "names": ["gpu-2", "htc-1"]}, ("start", ["gpu-2", "htc-1"], [])),
        ({"state": "shut_down", "names": ["gpu-1", "gpu-2"]}, ("shutdown", ["gpu-1"], [])),
        ({"state": "deallocated", "names": ["gpu-1", "gpu-2"]}, ("deallocate", ["gpu-1", "gpu-2"], [])),
        ({"state": "restarted", "names": ["gpu-1"]}, ("restart", ["gpu-1"], [])),
        ({"state": "reimaged", "nodearray": "htc"}, ("reimage", ["htc-1"], [])),
    ],
)
def test_plan(given: Json, expected: tuple[str, list[str], list[Json]]) -> None:
    made = plan(STATUS, wish(**given))
    assert (made.route, made.names, made.sets) == expected


@pytest.mark.parametrize(
    "given, part",
    [
        ({"nodearray": "gqu", "count": 1}, "no node array gqu; there are login, gpu, htc"),
        ({"nodearray": "gpu", "count": 20}, "18 more nodes of Standard_ND96asr_v4 are wanted, but"),
        ({"nodearray": "gpu", "count": -1}, "count is negative"),
        ({"nodearray": "gpu", "cores": -1}, "cores is negative"),
        ({"nodearray": "gpu", "count": 3, "machine_type": "X"}, "has no machine type X"),
        ({"nodearray": "gpu", "names": ["gpu"]}, "gpu does not end with a number"),
        ({"nodearray": "gpu", "names": ["gpu-2"]}, "gpu-2 is there but not started"),
        ({"state": "started", "names": ["x-1"]}, "no node x-1; there are gpu-1"),
    ],
)
def test_what_cannot_be_is_refused(given: Json, part: str) -> None:
    with pytest.raises(CycleCloudError, match=part):
        plan(STATUS, wish(**given))


def test_new_node_arrays_wait_for_a_start() -> None:
    waiting = changed(gpu={"valid": False, "invalidReason": "NotActivated"})
    with pytest.raises(CycleCloudError, match="NotActivated: start the cluster again"):
        plan(waiting, wish(nodearray="gpu", count=9))
    disabled = changed(gpu={"valid": False, "invalidReason": "DisabledMachineType"})
    with pytest.raises(CycleCloudError, match="DisabledMachineType: choose another"):
        plan(disabled, wish(nodearray="gpu", count=9))


def test_partial_takes_what_there_is() -> None:
    assert plan(STATUS, wish(nodearray="gpu", count=99, partial=True)).sets == [{"nodearray": "gpu", "count": 97}]


def test_progress_tells_failures_from_waiting() -> None:
    nodes = cluster_state.nodes(STATUS)
    assert progress(nodes, ["gpu-1", "gpu-3"], {"Ready"}) == (["gpu-3"], [])
    waiting, failed = progress(nodes, ["htc-1", "lost-1"], {"Ready"})
    assert waiting == [] and "9443" in failed[0] and failed[1] == "lost-1 is gone"
    assert progress(nodes, ["lost-1"], {"Off", "Terminated"}) == ([], [])


class Server:
    """Answers status after status, and one operation."""

    def __init__(self, *status: Json, answer: Json | None = None) -> None:
        self.status_list, self.answer = list(status), answer or {"requestId": "r-1"}
        self.posted: list[tuple[str, Json]] = []
        self.now = 0.0

    def status(self, dummy: str) -> Json:
        return self.status_list.pop(0) if len(self.status_list) > 1 else self.status_list[0]

    def known(self, dummy: str) -> bool:
        return False

    def get(self, dummy: str, **query: str) -> Json:
        return {"nodes": [{"Name": "gpu-3"}]}

    def post_once(self, path: str, body: Json, dummy: str | None) -> Json:
        self.posted.append((path, body))
        return self.answer

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def run(self, check: bool = False, **given: t.Any) -> Json:
        task = nodes.NodesTask(t.cast(CycleClient, self), wish(**given), lambda: self.now)
        return task.run(check)


def test_a_restart_is_seen_to() -> None:
    busy = copy.deepcopy(STATUS)
    busy["nodes"][2]["Status"] = "Preparing"
    server = Server(STATUS, STATUS, STATUS, busy, STATUS)
    result = server.run(state="restarted", names=["gpu-1"])
    assert result["changed"] and result["problems"] == [] and server.now == 2
    slow = Server(STATUS)
    assert slow.run(state="restarted", names=["gpu-1"])["problems"] == [] and slow.now == 5


def test_waiting_ends() -> None:
    result = Server(STATUS).run(nodearray="gpu", count=2)
    assert not result["changed"] and result["problems"] == [
        "not as wanted after 30 seconds: gpu-3 is Preparing Installing software"
    ]


def test_fewer_nodes_than_wanted_is_a_problem() -> None:
    answer = {"requestId": "r-1", "sets": [{"added": 1, "message": "Quota reached"}]}
    result = Server(STATUS, answer=answer).run(nodearray="gpu", count=4, wait=False)
    assert result["added"] == 1 and result["problems"] == ["CycleCloud added 1 of 2 nodes: Quota reached"]
    assert Server(STATUS, answer=answer).run(nodearray="gpu", count=4, wait=False, partial=True)["problems"] == []


def test_refused_nodes_are_named() -> None:
    answer = {"requestId": "r", "nodes": [{"name": "gpu-1", "status": "Error", "error": "is Off"}]}
    with pytest.raises(CycleCloudError, match="did not restart gpu-1: is Off"):
        Server(STATUS, answer=answer).run(state="restarted", names=["gpu-1"])


def test_check_mode_asks_nothing_and_foresees() -> None:
    server = Server(STATUS)
    result = server.run(check=True, nodearray="gpu", count=5)
    assert result["changed"] and server.posted == [] and result["diff"]["after"] == {"gpu (3 more)": "Ready"}


def test_a_plan_without_change_has_no_route() -> None:
    assert plan(STATUS, wish(state="absent", names=["x-1"])) == NodesPlan("", [], [], [], {"Off", "Terminated"})
