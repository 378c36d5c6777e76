# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import importlib.util
import io
import json
import re
import subprocess
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stand_in import STAND_INS, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import request as asked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.run import (
    MeasuredCollective,
    Network,
    bus_factor,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests

FAKE = STAND_INS / "nccl_perf.py"
_spec: t.Any = importlib.util.spec_from_file_location("nccl_fake_perf", FAKE)
fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake)

GIB8 = 8 * 2**30
BLANK: dict[str, t.Any] = {name: option.get("default") for name, option in {**_launch.SPEC, **asked.SPEC}.items()}
TWO = Launch("srun", "srun", nodes=2, ranks_per_node=8)
ONE = Launch("local")
REQUEST = asked.NcclTestsRequest(TWO, infiniband=True)
COMMON: dict[str, t.Any] = {"node": None, "time": 1.0, "run": "r", "context": {}}


def limit(value: float = 185, **more: t.Any) -> dict[str, t.Any]:
    base = {"check": "nccl_tests", "metric": "busbw", "collective": "all_reduce", "op": ">=", "unit": "GB/s"}
    return {**base, "size": GIB8, "value": value, "source": "test", **more}


def check(
    text: str,
    rc: int | None = 0,
    request: asked.NcclTestsRequest = REQUEST,
    expect: t.Sequence[t.Any] = (),
    problem: str | None = None,
    collective: str = "all_reduce",
) -> dict[str, t.Any]:
    said = ("" if rc == 0 else f"exit status {rc}: x") if problem is None else problem
    measured = MeasuredCollective(rc, said, nccl_tests.parse(text), Network().read(io.StringIO(text)))
    got = run.check(measured, request, collective, expect, COMMON)
    json.dumps(got, allow_nan=False)
    return got


# What is asked for


@pytest.mark.parametrize(("text", "want"), [("8", 8), ("512k", 524288), ("128M", 2**27), ("8G", GIB8), (" 1K ", 1024)])
def test_sizes_are_read_as_nccl_tests_does(text: str, want: int) -> None:
    assert asked.to_bytes(text) == want


@pytest.mark.parametrize("text", ["", "8GB", "8.5G", "G", "-8", "1T", "8 G", "0x8"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(asked.NcclTestsError):
        asked.to_bytes(text)


def test_sizes_of_a_complete_table() -> None:
    assert asked.NcclTestsRequest(ONE, min_size="8", max_size="100", factor=3).sizes == [8, 24, 72]
    assert (len(REQUEST.sizes), REQUEST.sizes[-1]) == (31, GIB8)


def read(**params: t.Any) -> asked.NcclTestsRequest:
    options = {**BLANK, **params}
    return asked.read_request(options)._replace(launch=asked.read_launch(options, _launch.read))


def test_argv() -> None:
    request = read(gpus_per_rank=8, min_size="1G", check=False, arguments=["-o", "all"])
    argv = run.arguments(request)
    assert " ".join(argv) == "-b 1G -e 8G -f 2 -n 20 -w 5 -g 8 -d float -c 0 -o all"
    assert request.gpus == 8


@pytest.mark.parametrize(
    ("params", "want"),
    [
        ({}, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}),
        ({"debug": "NONE"}, {}),
        ({"debug": "NONE", "topology_file": "/t.xml"}, {"NCCL_TOPO_FILE": "/t.xml"}),
        (
            {"environment": {"NCCL_DEBUG": "TRACE", "NCCL_TOPO_FILE": "/mine"}, "topology_file": "/t.xml"},
            {"NCCL_DEBUG": "TRACE", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV", "NCCL_TOPO_FILE": "/mine"},
        ),
    ],
)
def test_variables(params: dict[str, t.Any], want: dict[str, str]) -> None:
    assert read(**params).launch.environment == want


@pytest.mark.parametrize(
    ("options", "want"), [({}, "pmix"), ({"mpi": "pmi2"}, "pmi2"), ({"--mpi": "none"}, "none"), ({"mpi": None}, None)]
)
def test_mpi_of_srun(options: dict[str, t.Any], want: str | None) -> None:
    assert read(launcher="srun", launcher_options=options).launch.options["mpi"] == want
    assert "mpi" not in read(launcher="mpirun").launch.options


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"collectives": []}, "at least one"),
        ({"collectives": ["all_reduce", "all_reduce"]}, "each once"),
        ({"collectives": ["all_reduce", "alltoall"], "path": "/p/all_reduce_perf"}, "one program"),
        ({"iterations": 0}, "iterations"),
        ({"gpus_per_rank": 0}, "gpus_per_rank"),
        ({"factor": 1}, "factor"),
        ({"warmup": -1}, "warmup"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("inf")}, "finite"),
        ({"timeout": float("nan"), "launcher": "srun"}, "finite"),
        ({"min_size": "2G", "max_size": "1G"}, "min_size <= max_size"),
        ({"min_size": "0"}, "min_size <= max_size"),
        ({"max_size": "8GB"}, "not a number of bytes"),
        ({"arguments": ["-c", "0"]}, "options of its own"),
        ({"arguments": ["-e16G"]}, "options of its own"),
        ({"arguments": ["--nthreads", "2"]}, "options of its own"),
        ({"arguments": ["-J", "x.json"]}, "options of its own"),
        ({"expect": [{"check": "nccl_tests"}]}, "lacks"),
    ],
)
def test_nonsense_is_refused(params: dict[str, t.Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(**params)


def test_harmless_arguments_are_taken() -> None:
    assert read(arguments=["-o", "all", "-r", "-1", "-z", "1", "--cudagraph", "1", "-G", "1"]).arguments


FOUND = {"local": ["all_reduce_perf", "all_reduce_perf_mpi"], "mpi": ["all_reduce_perf_mpi", "all_reduce_perf"]}


@pytest.mark.parametrize(
    ("launch", "path", "want"),
    [
        (ONE, None, [(FOUND["local"], None)]),
        (ONE, "/p", [(FOUND["local"], "/p")]),
        (TWO, None, [(FOUND["mpi"], None)]),
        (TWO, "/both/", ["/both/all_reduce_perf_mpi"]),
        (TWO, "/plain", ["/plain/all_reduce_perf"]),
        (TWO, "/p/all_reduce_perf_mpi", ["/p/all_reduce_perf_mpi"]),
        (TWO._replace(container_image="i"), None, ["all_reduce_perf_mpi"]),
        (ONE._replace(container_image="i"), "/both", ["/both/all_reduce_perf"]),
    ],
)
def test_program(launch: Launch, path: str | None, want: t.Any) -> None:
    def find(names: list[str], given: str | None, places: t.Sequence[str]) -> t.Any:
        assert places
        return names, given

    here = {"/both/all_reduce_perf", "/both/all_reduce_perf_mpi", "/plain/all_reduce_perf"}
    request = REQUEST._replace(launch=launch, path=path)
    assert run.program(request, "all_reduce", find, here.__contains__) == want


@pytest.mark.parametrize(
    "there", [["all_reduce_perf"], ["all_reduce_perf_mpi"], ["all_reduce_perf", "all_reduce_perf_mpi"]]
)
def test_of_a_directory_that_only_the_nodes_see_they_take_the_build_with_mpi(tmp_path: Path, there: list[str]) -> None:
    for name in there:
        stand_in(tmp_path / name, "says_its_call.sh")
    for launch in (TWO, TWO._replace(container_image="i")):
        request = REQUEST._replace(launch=launch, path=str(tmp_path))
        words = run.program(request, "all_reduce", pytest.fail, lambda _path: False)
        done = subprocess.run([*words, "-b", "1 G"], capture_output=True, text=True, check=True)
        assert done.stdout == f"{there[-1]} -b 1 G\n"


# The network


def network(text: str) -> Network:
    return Network().read(io.StringIO(text))


INFO = "gpu-001:71:99 [0] NCCL INFO"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", None),
        ("Using network IB", None),
        (f"{INFO} Using network IB", "InfiniBand"),
        (f"[1,0]<stdout>:{INFO} Using network IBext_v8", "InfiniBand"),
        (f"12: {INFO} Assigned NET plugin IB to comm", "InfiniBand"),
        (f"{INFO} Initialized NET plugin IB", None),
        (f"{INFO} Using network Socket", "Socket"),
        (f"{INFO} NET/IB : Using [0]mlx5_ib0:1/IB [1]mlx5_an0:1/RoCE [RO]\n{INFO} Using network IB", "InfiniBand"),
        (f"{INFO} NET/IB : Using [0]mlx5_an0:1/RoCE [RO]\n{INFO} Using network IB", "RoCE"),
        (f"{INFO} Using network IB\ngpu-002:71:99 [0] NCCL INFO Using network Socket", "Socket"),
        (f"{INFO} Channel 00/0 : 1[1] -> 8[0] [receive] via NET/IB/0/GDRDMA", "InfiniBand"),
        (f"{INFO} Channel 00/0 : 1[1] -> 8[0] [send] via NET/Socket/0", "Socket"),
        (f"{INFO} Bootstrap : Using eth0:10.0.0.4<0>", None),
        (f"{INFO} NET/Socket : Using [0]eth0:10.0.0.4<0>", None),
        (f"{INFO} Using network AWS Libfabric", "AWS"),
    ],
)
def test_network(text: str, kind: str | None) -> None:
    assert network(text).kind == kind


def test_network_facts() -> None:
    text = fake.render() + f"{INFO} Channel 00/0 : 1[1] -> 8[0] [receive] via NET/IB/0/GDRDMA\n"
    assert network(text).facts() == {
        "network": "InfiniBand",
        "network_plugins": ["IB"],
        "network_interfaces": [],
        "infiniband_devices": {"gpu-001": 8, "gpu-002": 8},
        "gpu_direct": True,
    }
    assert network(text + f"{INFO} Channel 01/0 : 1[1] -> 8[0] [send] via NET/IB/0\n").facts()["gpu_direct"] is False


def test_network_does_not_choke() -> None:
    found = network("NET" * 200000 + "\n" + f"{INFO} Using network IB\n" + "\0\x1b[" * 10)
    assert found.kind == "InfiniBand"


# What is believed


def test_a_good_run_passes_at_the_size_that_is_expected() -> None:
    got = check(fake.render(), expect=[limit()])
    assert (got["verdict"], got["class"], got["scope"]) == ("pass", None, {"group": ["gpu-001", "gpu-002"]})
    by_name = {(m["name"], m.get("size")): m for m in got["metrics"]}
    assert by_name["busbw", GIB8]["verdict"] == "pass"
    assert by_name["wrong", None]["value"] == 0
    assert by_name["ranks", None]["value"] == 16
    assert len(got["samples"]) == 31
    assert got["samples"][-1]["collective"] == "all_reduce"


def test_a_slow_run_fails() -> None:
    got = check(fake.render(peak=170.0), expect=[limit()])
    assert (got["verdict"], got["class"]) == ("fail", "fabric")
    assert "busbw" in got["reason"]
    single = asked.NcclTestsRequest(ONE, gpus_per_rank=8)
    got = check(fake.render(hosts=("a",)), request=single, expect=[limit(228)])
    assert (got["verdict"], got["class"], got["scope"]) == ("fail", "hardware", {})


def test_right_values_without_a_limit_are_no_pass() -> None:
    assert check(fake.render())["verdict"] == "unjudged"
    assert check(fake.render(), expect=[limit(nodes=4)])["verdict"] == "unjudged"


def test_no_limit_is_held_against_the_mean() -> None:
    """The mean of a sweep is 56 where the peak is 190: a limit for one of them says nothing about the other."""
    got = check(fake.render(), expect=[limit(50, metric="busbw_average", size=None)])
    assert got["verdict"] == "error"
    with pytest.raises(ValueError, match="GB/s over all sizes"):
        check(fake.render(), expect=[limit(50, metric="sweep_mean", size=None)])
    mean = next(m for m in check(fake.render(), expect=[limit(1, size=None)])["metrics"] if m["name"] == "sweep_mean")
    assert (mean["verdict"], round(mean["value"])) == ("unjudged", 56)


def test_a_size_that_was_not_measured_is_an_error() -> None:
    small = REQUEST._replace(max_size="1G")
    got = check(fake.render(sizes=tuple(small.sizes)), request=small, expect=[limit()])
    assert got["verdict"] == "error"
    assert "not measured" in got["reason"]


def test_a_size_is_found_although_nccl_tests_rounds_it() -> None:
    ranks72 = REQUEST._replace(launch=TWO._replace(nodes=18, ranks_per_node=4), collectives=["alltoall"])
    hosts = tuple(f"n{number}" for number in range(18))
    sizes = tuple(size // 1152 * 1152 for size in ranks72.sizes)
    text = fake.render("alltoall", hosts, 4, sizes)
    got = check(text, request=ranks72, collective="alltoall", expect=[limit(collective="alltoall")])
    assert got["verdict"] == "pass", got["reason"]


TEN = tuple(8 * 2**n for n in range(10))
ALONE = fake.render(hosts=("a",), per_host=1).splitlines()
LIES: list[t.Any] = [
    pytest.param("".join(f"{line}\n" * 16 for line in ALONE), 0, "error", "built without MPI", id="interleaved tables"),
    pytest.param(
        "".join(f"[1,{rank}]<stdout>:{line}\n" for line in ALONE for rank in range(16)),
        0,
        "error",
        "built without MPI",
        id="interleaved tables with tags",
    ),
    pytest.param(fake.render(hosts=("a",), per_host=1) * 16, 0, "error", "built without MPI", id="N one-rank tables"),
    pytest.param(fake.render(hosts=("a",), per_host=1), 0, "error", "built without MPI", id="one one-rank table"),
    pytest.param(fake.render(per_host=4), 0, "error", "16 ranks were asked for, 8 took part", id="fewer ranks"),
    pytest.param(
        re.sub(r"#  Rank.*\n", "", fake.render()), 0, "error", "does not list the devices of the ranks", id="no devices"
    ),
    pytest.param(fake.render(hosts=("a",), per_host=16), 0, "error", "2 nodes were asked for, .* on a", id="one node"),
    pytest.param(fake.render() * 2, 0, "error", "2 tables", id="two tables"),
    pytest.param(fake.render(footer=False), 0, "error", "without its footer", id="no footer"),
    pytest.param(fake.render(footer=False), 143, "error", "exit status 143", id="killed"),
    pytest.param(fake.render(sizes=TEN), 0, "error", "10 of 31 sizes", id="sizes missing"),
    pytest.param(fake.render(sizes=(*TEN, GIB8)), 0, "error", "11 of 31 sizes, the largest 8589934592", id="a hole"),
    pytest.param(
        fake.render(sizes=TEN, extra=("#", "# Reducing maxBytes to 4096 due to memory limitation")),
        0,
        "error",
        "Reducing maxBytes to 4096",
        id="memory",
    ),
    pytest.param("invalid option '?'\nUSAGE: all_reduce_perf\n", 0, "error", "invalid option", id="bad option"),
    pytest.param("", 0, "error", "no result table", id="silence"),
    pytest.param(fake.render(), 9, "error", "yet the program ended with exit status 9", id="bad end"),
    pytest.param(fake.render(check=False), 0, "error", "no count of wrong values", id="not validated"),
    pytest.param(fake.render("alltoall"), 0, "error", "the program measured alltoall", id="another program"),
    pytest.param(fake.render(network=""), 0, "error", "nobody knows", id="network unknown"),
    pytest.param(fake.render(network="UCX"), 0, "error", "only says UCX", id="network undecided"),
    pytest.param(
        fake.render(network="Socket", peak=3.2), 0, "fail", "Socket through eth0 on gpu-001, gpu-002", id="IPoIB"
    ),
    pytest.param(fake.render(network="RoCE"), 0, "fail", "NCCL used RoCE instead of InfiniBand", id="RoCE"),
    pytest.param(fake.render(wrong=3), 1, "fail", "2 results with wrong values", id="wrong values"),
    pytest.param(
        "srun: error: Unable to allocate resources: Requested nodes are busy\n", 1, "skipped", "busy", id="busy nodes"
    ),
    pytest.param(
        "a: Test NCCL failure common.cu:958 'unhandled system error (run with NCCL_DEBUG=INFO for details)'\n",
        3,
        "fail",
        "unhandled system error",
        id="NCCL failure",
    ),
]


@pytest.mark.parametrize(("text", "rc", "verdict", "reason"), LIES)
def test_lies(text: str, rc: int, verdict: str, reason: str) -> None:
    got = check(text, rc, expect=[limit(1)])
    assert got["verdict"] == verdict, got["reason"]
    assert re.search(reason, got["reason"]), got["reason"]
    if got["verdict"] in ("error", "skipped"):
        assert got["metrics"] == []
        assert got["class"] == (None if verdict == "skipped" else "infra")


def test_no_part_of_a_log_passes() -> None:
    """A killed run has no error text, and a wrapper may have swallowed its status."""
    text = fake.render()
    assert check(text, expect=[limit()])["verdict"] == "pass"
    lines = text.splitlines(keepends=True)
    for end in range(len(lines) - 2):
        got = check("".join(lines[:end]), expect=[limit()])
        assert got["verdict"] == "error", (end, got["reason"])
    cut = len(text) - len("".join(lines[-6:]))
    assert {check(text[:end], expect=[limit()])["verdict"] for end in range(cut, len(text) - 40)} == {"error"}


def test_unchecked_results_are_no_pass() -> None:
    got = check(fake.render(check=False), request=REQUEST._replace(check=False), expect=[limit()])
    assert (got["verdict"], got["reason"]) == ("unjudged", "results were not checked for wrong values")
    got = check(fake.render(check=False, peak=100.0), request=REQUEST._replace(check=False), expect=[limit()])
    assert got["verdict"] == "fail"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "srun did not end within 9 s"),
        (fake.render(sizes=TEN, footer=False), "srun did not end within 9 s; 10 sizes were measured"),
        (fake.render(), "srun did not end within 9 s; 31 sizes were measured"),
    ],
)
def test_a_program_that_does_not_end_measured_nothing(text: str, reason: str) -> None:
    got = check(text, None, expect=[limit(1)], problem="srun did not end within 9 s")
    assert (got["verdict"], got["class"], got["metrics"], got["reason"]) == ("error", "infra", [], reason)


def test_debug_builds_name_who_is_wrong() -> None:
    text = fake.render(wrong=3, extra=("rank=11 #wrong=3", "rank=2 #wrong=0"))
    got = check(text, 1)
    assert (got["verdict"], got["class"]) == ("fail", "hardware")
    assert got["reason"].endswith("wrong values: rank 11 on gpu-002 device 3")
    assert {m["name"]: m["verdict"] for m in got["metrics"]}["wrong"] == "fail"

    single = asked.NcclTestsRequest(ONE, gpus_per_rank=8)
    one = fake.render(hosts=("a",), wrong=3, extra=("rank=2 #wrong=1", "rank=5 #wrong=3"))
    assert check(one, 1, request=single)["scope"] == {"gpu": [2, 5]}
    reordered = single._replace(launch=ONE._replace(environment={"CUDA_VISIBLE_DEVICES": "2,3,0,1,6,7,4,5"}))
    assert check(one, 1, request=reordered)["scope"] == {"gpu": [0, 7]}


@given(st.text(), st.integers(0, 6000), st.integers(0, 6000), st.sampled_from([0, 1, None]))
def test_whatever_is_printed_gives_a_record(junk: str, begin: int, end: int, rc: int | None) -> None:
    text = fake.render()
    got = check(text[:begin] + junk + text[end:], rc, expect=[limit()], problem="" if rc == 0 else "it broke")
    assert rc == 0 or got["verdict"] in ("error", "fail", "skipped")


def test_wrong_values_outrank_everything() -> None:
    got = check(fake.render(wrong=3, footer=False, network="Socket"), 137)
    assert (got["verdict"], got["class"]) == ("fail", "hardware")


@pytest.mark.parametrize(("collective", "ranks", "want"), [("all_reduce", 16, 1.875), ("alltoall", 16, 0.9375)])
def test_bus_factor(collective: str, ranks: int, want: float) -> None:
    assert bus_factor(collective, ranks) == want
    assert bus_factor("broadcast", ranks) == 1.0


def of_half_the_ranks(text: str, **more: t.Any) -> str:
    """Replace the table by that of a run over eight ranks."""
    keep = [line for line in text.splitlines() if line.startswith("#")]
    rows = [line for line in fake.render(hosts=("a",), **more).splitlines() if line.strip()[:1].isdigit()]
    at = next(index for index, line in enumerate(keep) if "Out of bounds" in line)
    return "\n".join([*keep[:at], INFO + " Using network IB", *rows, *keep[at:]]) + "\n"


def test_a_table_about_other_ranks_is_refused() -> None:
    got = check(of_half_the_ranks(fake.render()), expect=[limit()])
    assert got["verdict"] == "error"
    assert re.search(r"busbw is 1\.7[45]", got["reason"])
    assert "16 ranks give 1.875" in got["reason"]


def test_a_profile_does_not_speak_of_a_part_of_the_ranks() -> None:
    text = of_half_the_ranks(fake.render()).replace("Group  0", "Group  1", 8)
    got = check(text, expect=[limit(500)])
    assert got["verdict"] == "unjudged", got["reason"]


def test_a_rank_alone_in_the_table_of_many() -> None:
    """One rank moves nothing: busbw 0 at any algbw."""
    got = check(of_half_the_ranks(fake.render(), per_host=1), expect=[limit()])
    assert got["verdict"] == "error"
    assert "busbw is 0.000" in got["reason"]


def test_alltoall_counts_no_wrong_values_in_place() -> None:
    text = re.sub(r"0$", "N/A", fake.render("alltoall"), flags=re.MULTILINE)
    assert "N/A" in text
    got = check(text, collective="alltoall", expect=[limit(collective="alltoall")])
    assert got["verdict"] == "pass", got["reason"]


def test_sockets_are_fine_where_no_infiniband_is_expected() -> None:
    text = fake.render(network="Socket", peak=3.2)
    assert check(text, request=REQUEST._replace(infiniband=False), expect=[limit(3)])["verdict"] == "pass"
    single = asked.NcclTestsRequest(ONE, gpus_per_rank=8, infiniband=True)
    assert check(fake.render(hosts=("a",), network="Socket"), request=single, expect=[limit(3)])["verdict"] == "pass"


def test_repeated_sizes_are_judged_by_the_slowest() -> None:
    """-o all or -N print every size again."""
    text = fake.render()
    rows = [line for line in fake.render(peak=100.0).splitlines() if line.strip()[:1].isdigit()]
    got = check(text.replace("# Out of", "\n".join(rows) + "\n# Out of"), expect=[limit()])
    assert got["verdict"] == "fail"
    peak = next(m for m in got["metrics"] if m["name"] == "busbw_peak")
    assert peak["value"] > 185


def test_facts_of_tables_that_prove_nothing() -> None:
    text = fake.render(hosts=("a",), per_host=1) * 2
    measured = MeasuredCollective(0, "", nccl_tests.parse(text), Network())
    got = run.result({"all_reduce": measured}, REQUEST, [], {"all_reduce": COMMON})
    assert (got["rows"], got["peak"], got["runs"][0]["tables"]) == ([], {"all_reduce": None}, 2)
    json.dumps(got, allow_nan=False)
