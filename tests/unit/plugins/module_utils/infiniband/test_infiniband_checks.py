# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import bandwidth, payload

LIMIT = {
    "check": "infiniband_bandwidth",
    "metric": "bandwidth",
    "op": ">=",
    "value": 180,
    "unit": "Gb/s",
    "source": "test",
}
ABOUT: dict[str, t.Any] = {"node": "n", "time": 1.0, "run": "r"}
ASKED = {"test": "ib_write_bw", "size": 8388608, "link_layer": "InfiniBand", "nodes": 1, "devices": []}
RULE = "-" * 87
REFUSED = "Couldn't connect to gpu-001:18515\n"


def table(
    nic: str = "mlx5_ib0",
    gbps: float = 196.58,
    link: str = "IB",
    title: str = "RDMA_Write BW Test",
    size: int = 8388608,
) -> str:
    return f"""\
{RULE}
                    {title}
 Dual-port       : OFF\t\tDevice         : {nic}
 Link type       : {link}
{RULE}
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 {size}    14650            0.00               {gbps:.2f} \t\t   0.002929
{RULE}
"""


def client(nic: str = "mlx5_ib0", out: str | None = None, rc: int | None = 0, **more: t.Any) -> dict[str, t.Any]:
    told = {
        "nic": nic,
        "partner": nic,
        "role": "client",
        "rc": rc,
        "out": table(nic) if out is None else out,
        "host": "c1",
    }
    return {**told, "link_layer": "InfiniBand", "argv": ["ib_write_bw"], "seconds": 7.0, **more}


def server(nic: str = "mlx5_ib0", out: str = "", **more: t.Any) -> dict[str, t.Any]:
    return {**client(nic, out), "role": "server", **more}


def printed(*found: dict[str, t.Any], plan: t.Sequence[str] | None = None) -> str:
    nics = [item["nic"] for item in found if item["role"] == "client"] if plan is None else plan
    items = [{"host": "c1", "plan": nics}, *found]
    return "".join(f"{payload.MARK}{json.dumps(item)}\n" for item in items)


def result(
    *found: dict[str, t.Any], expect: t.Sequence[t.Any] = (), rc: int | None = 0, err: str = "", **more: t.Any
) -> t.Any:
    plan = more.pop("plan", None)
    outcome = Outcome(rc, printed(*found, plan=plan), err, 9.0)
    return bandwidth.result(outcome, {**ASKED, **more}, expect, ABOUT)


def check(*found: dict[str, t.Any], **more: t.Any) -> t.Any:
    return result(*found, **more)["checks"][0]


def test_each_port_is_judged() -> None:
    found = result(client(), server(), client("mlx5_ib1", table("mlx5_ib1", 90.0)), server("mlx5_ib1"), expect=[LIMIT])
    (record,) = found["checks"]
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "fabric", {"nic": ["mlx5_ib1"]})
    assert [(m["nic"], m["test"], m["value"], m["verdict"]) for m in record["metrics"]] == [
        ("mlx5_ib0", "ib_write_bw", 196.58, "pass"),
        ("mlx5_ib1", "ib_write_bw", 90.0, "fail"),
    ]
    assert record["reason"] == "bandwidth (nic=mlx5_ib1 test=ib_write_bw): 90 Gb/s, expected >= 180"
    assert [(row["nic"], row["bandwidth"], row["host"], row["server"]) for row in found["results"]] == [
        ("mlx5_ib0", 196.58, "c1", "c1"),
        ("mlx5_ib1", 90.0, "c1", "c1"),
    ]


def test_the_average_at_the_size_asked_for() -> None:
    assert check(client(), server())["verdict"] == "unjudged"
    assert check(client(out=table(size=65536)), expect=[LIMIT])["verdict"] == "error"


@pytest.mark.parametrize(
    "found, reason",
    [
        ([client(out=table(link="Ethernet"))], "mlx5_ib0: ib_write_bw used Ethernet, not InfiniBand"),
        ([client(out=table("mlx5_ib3"))], "mlx5_ib0: ib_write_bw measured mlx5_ib3"),
        ([client(out=table(title="RDMA_Write Bidirectional BW Test"))], "no average of one direction"),
        ([client(out=table(), rc=1)], "exit status 1"),
        ([client(out=table(), rc=None)], "ib_write_bw: did not end"),
        ([client(out=table()[:-60])], "no complete table"),
        ([client(out="")], "no complete table"),
        (
            [client(problem="mlx5_ib0: link layer is Ethernet, not InfiniBand", out="")],
            "mlx5_ib0: link layer is Ethernet, not InfiniBand",
        ),
        ([client(out="Couldn't allocate MR\nfailed to create mr\n", rc=1)], "mlx5_ib0: Couldn't allocate MR"),
        ([client(out=REFUSED, rc=1), server(out="Couldn't listen to port 18515\n")], REFUSED.strip()),
        (
            [client(out=REFUSED, rc=1), server(out="Couldn't allocate MR\n")],
            "gpu-001:18515; server: Couldn't allocate MR",
        ),
        ([client(out=REFUSED, rc=1), server(problem="mlx5_ib0 is not there")], "server: mlx5_ib0 is not there"),
    ],
)
def test_what_cannot_be_believed_is_an_error_without_number(found: list[t.Any], reason: str) -> None:
    record = check(*found, expect=[LIMIT])
    assert (record["verdict"], record["class"], record["metrics"][0]["value"]) == ("error", "infra", None)
    assert reason in record["reason"]
    assert record["scope"] == {"nic": ["mlx5_ib0"]}


@pytest.mark.parametrize(
    "out, reason",
    [
        (
            " Port number 1 state is Down\n Couldn't get context for the device\n",
            "mlx5_ib0: Port number 1 state is Down",
        ),
        ("Completion with error at client\n Failed status 12: wr_id 0\n", "transport retries exceeded"),
        (table(gbps=0).replace("14650", "0"), "0 iterations: no message got through"),
    ],
)
def test_a_link_that_breaks_is_a_finding(out: str, reason: str) -> None:
    record = check(client(out=out, rc=1), server())
    assert (record["verdict"], record["class"]) == ("fail", "fabric")
    assert reason in record["reason"]


def test_planned_ports_that_were_not_reached_have_their_metric() -> None:
    record = check(
        client(), server(), plan=["mlx5_ib0", "mlx5_ib1"], rc=None, err="python did not end within 9 s", expect=[LIMIT]
    )
    assert [(m["nic"], m["value"], m["verdict"]) for m in record["metrics"]] == [
        ("mlx5_ib0", 196.58, "pass"),
        ("mlx5_ib1", None, "error"),
    ]
    assert (record["verdict"], record["class"]) == ("error", "infra")
    assert "mlx5_ib1: no result" in record["reason"]
    assert "did not end within 9 s" in record["reason"]


def test_nothing_came_back() -> None:
    record = bandwidth.result(Outcome(1, "", "srun: error: Unable to create step", 1.0), ASKED, [], ABOUT)["checks"][0]
    assert (record["verdict"], "Unable to create step" in record["reason"]) == ("error", True)


def test_busy_nodes_are_skipped() -> None:
    err = "srun: error: Unable to allocate resources: Requested nodes are busy\n"
    record = bandwidth.result(Outcome(1, "", err, 60.0), ASKED, [LIMIT], ABOUT)["checks"][0]
    assert (record["verdict"], "nodes are busy" in record["reason"]) == ("skipped", True)


def test_none_and_none_expected_is_skipped() -> None:
    assert [check(plan=[])[key] for key in ("verdict", "reason")] == ["skipped", "no InfiniBand"]
    record = check(plan=[], expect=[LIMIT])
    assert (record["verdict"], record["reason"]) == ("error", "no port of the link layer is up")


def test_two_nodes_are_a_pair() -> None:
    one, two = client(host="c2"), client("mlx5_ib1", table("mlx5_ib1"), host="c2")
    for item in (one, two):
        del item["partner"]
    found = result(server(host="c1"), one, two, server("mlx5_ib9", host="c1"), nodes=2)
    assert found["checks"][0]["scope"] == {"pair": ["c1", "c2"]}
    assert [(row["host"], row["server"]) for row in found["results"]] == [("c2", "c1"), ("c2", "c1")]


def test_lines_with_numbers_of_tasks_and_noise() -> None:
    text = "0: hello\n" + printed(client()).replace(payload.MARK, f"1: {payload.MARK}") + f"{payload.MARK}{{broken\n"
    planned, found = bandwidth.reports(text)
    assert (planned, len(found)) == (["mlx5_ib0"], 1)


def params(**changes: t.Any) -> dict[str, t.Any]:
    spec = {**_launch.SPEC, **bandwidth.SPEC}
    return {**{name: option.get("default") for name, option in spec.items()}, **changes}


def launch(**changes: t.Any) -> _launch.Launch:
    return _launch.read(params(**changes))


@pytest.mark.parametrize(
    "change, says",
    [
        ({"launcher": "mpirun"}, "launcher is local or srun"),
        ({"launcher": "srun", "ranks_per_node": 2}, "launcher is local or srun"),
        ({"visible_devices": [1]}, "without ranks_per_node"),
        ({"launcher": "srun", "nodes": 3}, "3 nodes"),
        ({"launcher": "srun", "nodes": 2, "partner": "next"}, "2 nodes"),
        ({"duration": 2}, "at least 3 s"),
        ({"size": 0}, "1 to 2"),
        ({"devices": ["mlx5_ib0", "mlx5_ib0"]}, "each once"),
        ({"devices": ["--help"]}, "devices must be names"),
        ({"devices": [f"mlx5_{number}" for number in range(17)]}, "17 devices"),
        ({"devices": ["mlx5_0:x"]}, "devices must be names"),
        ({"arguments": ["-b"]}, "arguments -b"),
        ({"arguments": ["--report-both"]}, "arguments --report-both"),
        ({"arguments": ["-d", "mlx5_1"]}, "arguments -d"),
        ({"arguments": ["--size=5"]}, "arguments --size=5"),
    ],
)
def test_nonsense_is_refused(change: dict[str, t.Any], says: str) -> None:
    with pytest.raises(bandwidth.InfinibandBandwidthError, match=says):
        bandwidth.validate(params(**change), launch(**change))


def test_ordinary_options_are_accepted() -> None:
    bandwidth.validate(
        params(devices=["mlx5_ib0", "mlx5_0:2"], arguments=["--perform_warm_up", "-x", "3", "-q", "4"]), launch()
    )


@pytest.mark.parametrize(
    "changes, want",
    [
        ({}, {}),
        ({"use_cuda": True, "gpus": {"mlx5_ib0": 3, "mlx5_ib1": "2"}}, {"mlx5_ib0": 3, "mlx5_ib1": 2}),
        (
            {
                "use_cuda": True,
                "topology": {"gpus": [{"index": 0, "nics": ["a", "b"]}, {"index": 1, "nics": ["a", "b"]}]},
            },
            {"a": 0, "b": 1},
        ),
        ({"use_cuda": True, "topology": {"gpus": [{"index": 5, "nics": ["ib10", "ib2"]}]}}, {"ib2": 5, "ib10": 5}),
        (
            {
                "use_cuda": True,
                "gpus": {"a": 1},
                "topology": {"gpus": [{"index": 1, "nics": ["a", "b"]}, {"index": 0, "nics": ["b"]}]},
            },
            {"a": 1, "b": 0},
        ),
    ],
)
def test_the_gpu_of_each_port(changes: dict[str, t.Any], want: dict[str, int]) -> None:
    assert bandwidth.gpus(params(**changes)) == want


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gpus": {"a": 0}, "devices": ["b"]},
        {"gpus": {"a": "x"}},
        {"gpus": {"a": True}},
        {"topology": {"gpus": [{"nics": ["a"]}]}},
    ],
)
def test_gpus_that_are_not_known_are_refused(changes: dict[str, t.Any]) -> None:
    with pytest.raises(bandwidth.InfinibandBandwidthError):
        bandwidth.gpus(params(use_cuda=True, **changes))


@pytest.mark.parametrize(
    "path, want",
    [
        (None, "ib_write_bw"),
        ("/opt/perftest", "/opt/perftest/ib_write_bw"),
        ("/opt/x/ib_write_bw", "/opt/x/ib_write_bw"),
    ],
)
def test_program(path: str | None, want: str) -> None:
    assert bandwidth.program(path, "ib_write_bw") == want


def test_command_lines_of_server_and_client() -> None:
    task = bandwidth.payload_task(
        params(use_cuda=True, gpus={"mlx5_0:2": 1}, devices=["mlx5_0:2"], arguments=["-q", "4"]), 1
    )
    common = "ib_write_bw -d mlx5_0 -i 2 -p 7 -s 8388608 -D 5 -f 1 -F --report_gbits -q 4 --use_cuda=1"
    assert " ".join(payload.arguments(task, "mlx5_0:2", 7)) == common
    assert " ".join(payload.arguments(task, "mlx5_0:2", 7, "gpu-001")) == f"{common} gpu-001"


def test_runs_at_the_same_time_use_other_ports() -> None:
    ports = {bandwidth.payload_task(params(), 2)["port"] for dummy in range(40)}
    assert len(ports) > 20
    assert all(61000 <= port < port + 16 <= 65536 for port in ports)


def test_the_program_travels_as_text() -> None:
    text = bandwidth.source()
    assert "ansible_collections" not in text
    names: dict[str, t.Any] = {"__name__": "travelled"}
    exec(compile(text, "payload", "exec"), names)
    assert names["port_state"] and names["main"]


@pytest.mark.parametrize(
    "hostlist, want",
    [("c1", "c1"), ("c[1-2]", "c1"), ("n[007-012,020]", "n007"), ("r[1,2]n[03,05]-ib,x", "r1n03-ib"), ("", "")],
)
def test_first_host(hostlist: str, want: str) -> None:
    assert payload.first_host(hostlist) == want


@pytest.mark.parametrize("cpus, want", [("", set()), ("0-2", {0, 1, 2}), ("1,3-4", {1, 3, 4})])
def test_cpu_lists(cpus: str, want: set[int]) -> None:
    assert payload.numbers(cpus) == want


def test_long_output_keeps_both_ends() -> None:
    text = payload.shorten("first\n" + "x\n" * 9000 + "last")
    assert (text.startswith("first\n"), text.endswith("last"), len(text) < 7000) == (True, True, True)
    assert payload.shorten("short") == "short"
