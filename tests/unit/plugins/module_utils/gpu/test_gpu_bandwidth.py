# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess
import threading
import typing as t
from pathlib import Path

import pytest
from patience import patience

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import BindMethod, Launch, NotFound, busy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth import (
    BandwidthReading,
    BandwidthRequest,
    Listed,
    MeasuredBandwidth,
    MeasuredGpu,
    judged,
    read_output,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import from_facts

FIXTURES = Path(__file__).parents[3] / "fixtures"
ALL = ["h2d", "d2h", "d2d"]
NUMACTL = BindMethod("numactl", "/usr/bin/numactl")
GPU2 = MeasuredGpu(2, "GPU-aa", "00000003:00:00.0", 0, "0-23")
FACTS = {
    "gpus": [
        {"index": 0, "bus_id": "00000001:00:00.0", "numa_node": 1, "cpus": "24-47"},
        {"index": 1, "bus_id": "00000002:00:00.0", "numa_node": 1, "cpus": "24-47"},
        {"index": 2, "bus_id": "00000003:00:00.0", "numa_node": 0, "cpus": "0-23"},
    ]
}
LISTED = [Listed(n, f"GPU-{n}", f"0000000{n + 1}:00:00.0") for n in range(3)]
LIMIT = {"check": "gpu_bandwidth", "metric": "h2d", "op": ">", "value": 20, "unit": "GB/s", "source": "test"}


def fixture(tool: str, name: str) -> str:
    return (FIXTURES / tool / name).read_text()


@pytest.mark.parametrize(
    "value, want",
    [
        (None, None),
        ("", None),
        (3, [0, 1, 2]),
        ("2", [0, 1]),
        ("0,3", [0, 3]),
        ([4, "6"], [4, 6]),
        (0, []),
        ([], []),
    ],
)
def test_gpus_is_a_count_or_a_list(value: t.Any, want: list[int] | None) -> None:
    assert bandwidth.parse_gpus(value) == want


@pytest.mark.parametrize("value", [True, "all", [1, 1], [-1], {"a": 1}, "1,x", 5000, [None]])
def test_other_gpus_are_refused(value: t.Any) -> None:
    with pytest.raises(bandwidth.GpuBandwidthError):
        bandwidth.parse_gpus(value)


def test_plan_joins_topology_and_nvidia_smi() -> None:
    got = bandwidth.plan(None, from_facts(FACTS), LISTED)
    assert [(gpu.index, gpu.uuid, gpu.numa_node, gpu.cpus, gpu.problem) for gpu in got] == [
        (0, "GPU-0", 1, "24-47", ""),
        (1, "GPU-1", 1, "24-47", ""),
        (2, "GPU-2", 0, "0-23", ""),
    ]
    assert [gpu.visible for gpu in got] == ["GPU-0", "GPU-1", "GPU-2"]


def test_plan_without_nvidia_smi_or_topology() -> None:
    assert bandwidth.plan([0, 5], None, None) == [MeasuredGpu(0), MeasuredGpu(5)]
    assert MeasuredGpu(5).visible == "5"
    assert [gpu.uuid for gpu in bandwidth.plan(None, None, LISTED)] == ["GPU-0", "GPU-1", "GPU-2"]
    assert bandwidth.plan(None, None, None) == []


def test_a_planned_gpu_that_is_not_there_is_named_and_no_other_takes_its_place() -> None:
    # The second of three is lost: nvidia-smi then gives its index to the third.
    left = [LISTED[0], Listed(1, "GPU-2", "00000003:00:00.0")]
    got = bandwidth.plan([0, 1, 2], from_facts(FACTS), left)
    assert [(gpu.uuid, gpu.problem) for gpu in got] == [
        ("GPU-0", ""),
        (None, "nvidia-smi does not list GPU 1 at 00000002:00:00.0; it lists 2"),
        ("GPU-2", ""),
    ]
    gone = "; which one is gone says gpu_count of gpu_info"
    told = f"nvidia-smi does not list GPU 7; it lists 2{gone}"
    assert [gpu.problem for gpu in bandwidth.plan([0, 7], None, left)] == ["", told]
    assert [gpu.surplus for gpu in bandwidth.plan([0, 7], None, left)] == [False, True]
    gap = [LISTED[0], Listed(2, "GPU-2", "00000003:00:00.0")]
    assert [(gpu.problem, gpu.surplus) for gpu in bandwidth.plan([1], None, gap)] == [
        ("nvidia-smi does not list GPU 1; it lists 2", False)
    ]
    told = f"the topology has 3 GPUs and no GPU 7{gone}"
    assert [gpu.problem for gpu in bandwidth.plan([0, 7], from_facts(FACTS), None)] == ["", told]


@pytest.mark.parametrize(
    "change",
    [
        {"directions": []},
        {"directions": ["h2d", "h2d"]},
        {"size": 1000},
        {"timeout": 0},
        {"timeout": float("inf")},
        {"timeout": float("nan")},
        {"cpu_masks": ["ff"]},
        {"visible_devices": [0]},
        {"expect": [{"check": "gpu_bandwidth"}]},
        {
            "expect": [
                {"check": "gpu_bandwidth", "metric": "h2d", "op": ">=", "value": 1, "unit": "GiB/s", "source": "test"}
            ]
        },
    ],
)
def test_nonsense_is_refused(change: dict[str, t.Any]) -> None:
    blank = {name: option.get("default") for name, option in {**_launch.SPEC, **bandwidth.SPEC}.items()}
    bandwidth.with_launch(bandwidth.read_request(blank), Launch())
    with pytest.raises(ValueError):
        bandwidth.with_launch(bandwidth.read_request({**blank, **change}), Launch())
    with pytest.raises(ValueError, match="8 ranks"):
        bandwidth.with_launch(bandwidth.read_request(blank), Launch(kind="srun", ranks_per_node=8))


def finder(*there: str) -> t.Callable[..., str]:
    def find(name: str, path: str | None, places: t.Sequence[str]) -> str:
        for folder in [path] if path else [place.replace("*", "-1") for place in places]:
            for one in (folder, f"{folder}/{name}"):
                if one in there:
                    return str(one)
        raise NotFound(f"{name} not in {path or ' '.join(places)}")

    return find


BANDWIDTH_TEST = "/usr/local/cuda-1/extras/demo_suite/bandwidthTest"
NVBANDWIDTH = "/opt/gpu_test_tools/bin/nvbandwidth"
SRUN, INSIDE = Launch(kind="srun"), Launch(kind="srun", container_image="x")


@pytest.mark.parametrize(
    "tool, path, launch, there, want",
    [
        ("auto", None, Launch(), [BANDWIDTH_TEST, NVBANDWIDTH], ("bandwidthTest", BANDWIDTH_TEST)),
        ("auto", None, Launch(), [NVBANDWIDTH], ("nvbandwidth", NVBANDWIDTH)),
        ("nvbandwidth", None, Launch(), [BANDWIDTH_TEST, NVBANDWIDTH], ("nvbandwidth", NVBANDWIDTH)),
        ("auto", NVBANDWIDTH, Launch(), [NVBANDWIDTH], ("nvbandwidth", NVBANDWIDTH)),
        ("auto", "/opt/gpu_test_tools/bin", Launch(), [NVBANDWIDTH], ("nvbandwidth", NVBANDWIDTH)),
        ("auto", "/x/bandwidthTest", SRUN, [], ("bandwidthTest", "/x/bandwidthTest")),
        ("auto", "/x/bin/", SRUN, [], ("nvbandwidth", "/x/bin/nvbandwidth")),
        ("bandwidthTest", "/x/bin", INSIDE, [], ("bandwidthTest", "/x/bin/bandwidthTest")),
        ("auto", None, INSIDE, [BANDWIDTH_TEST], ("nvbandwidth", "nvbandwidth")),
        ("auto", None, SRUN, [NVBANDWIDTH], ("nvbandwidth", NVBANDWIDTH)),
    ],
)
def test_bandwidthtest_where_it_exists_and_nvbandwidth_where_not(
    tool: str, path: str | None, launch: Launch, there: list[str], want: tuple[str, str]
) -> None:
    request = BandwidthRequest(node="n1", tool=tool, path=path, launch=launch)
    assert tuple(bandwidth.choose(request, finder(*there), lambda _words: "")) == want


@pytest.mark.parametrize("launch, where", [(INSIDE, "PATH"), (INSIDE, "path"), (SRUN, "path")])
@pytest.mark.parametrize(
    "tool, there, want",
    [
        ("auto", ["bandwidthTest", "nvbandwidth"], "bandwidthTest"),
        ("auto", ["bandwidthTest"], "bandwidthTest"),
        ("auto", ["nvbandwidth"], "nvbandwidth"),
        ("auto", [], "nvbandwidth"),
        ("nvbandwidth", ["bandwidthTest"], "nvbandwidth"),
    ],
)
def test_a_container_and_another_node_say_what_they_have(
    tmp_path: Path, launch: Launch, where: str, tool: str, there: list[str], want: str
) -> None:
    for name in there:
        (tmp_path / name).touch(0o755)
    asked: list[t.Sequence[str]] = []

    def probe(words: t.Sequence[str]) -> str:
        asked.append(words)
        variables = {"PATH": f"{tmp_path}:/usr/bin:/bin" if where == "PATH" else "/usr/bin:/bin"}
        done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
        return f"starting\n{done.stdout}"

    folder = str(tmp_path) if where == "path" else None
    request = BandwidthRequest(node="n1", tool=tool, path=folder, launch=launch)
    program = bandwidth.choose(request, finder(), probe)
    assert (program.tool, program.path) == (want, f"{tmp_path}/{want}" if folder else want)
    assert len(asked) == (tool == "auto")


@pytest.mark.parametrize(
    "tool, path, launch", [("auto", None, Launch()), ("auto", None, SRUN), ("auto", "/x", Launch())]
)
def test_a_missing_program_names_both_and_all_places(tool: str, path: str | None, launch: Launch) -> None:
    with pytest.raises(NotFound, match=r"bandwidthTest not in .*; nvbandwidth not in ") as caught:
        bandwidth.choose(BandwidthRequest(node="n1", tool=tool, path=path, launch=launch), finder(), pytest.fail)
    assert path or "/opt/gpu_test_tools/bin" in str(caught.value)


def test_arguments() -> None:
    request = BandwidthRequest(node="n1", directions=["h2d", "d2h"], arguments=["--wc"])
    assert " ".join(bandwidth.arguments("bandwidthTest", request)) == (
        "--device=0 --memory=pinned --mode=range --start=256000000 --end=256000000 --increment=256000000"
        " --htod --dtoh --wc"
    )
    request = BandwidthRequest(node="n1", directions=["d2d", "h2d"], size=1 << 30, arguments=["-m"])
    assert " ".join(bandwidth.arguments("nvbandwidth", request)) == (
        "--bufferSize 1024 -m -t host_to_device_memcpy_ce device_local_copy"
    )


def test_a_local_process_sees_one_gpu_and_runs_on_its_numa_node() -> None:
    got = bandwidth.command(Launch(environment={"A": "1"}), ["/x/nvbandwidth", "-t", "y"], GPU2, NUMACTL)
    assert " ".join(got.argv) == "/usr/bin/numactl --physcpubind=0-23 --membind=0 /x/nvbandwidth -t y"
    assert got.environment == {"A": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "GPU-aa"}
    assert bandwidth.command(Launch(), ["/x"], GPU2, None).argv == ["/x"]


def test_a_step_sets_the_variables_inside_where_slurm_cannot_replace_them() -> None:
    srun = Launch(kind="srun", path="/usr/bin/srun", hosts=["n1"], environment={"A": "1"})
    got = bandwidth.command(srun, ["/x/nvbandwidth"], MeasuredGpu(4, numa_node=3, cpus="72-95"), NUMACTL)
    assert got.argv[-4:] == ["env", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=4", "/x/nvbandwidth"]
    assert "--cpu-bind=mask_cpu:0xffffff000000000000000000" in got.argv
    assert got.environment == {"A": "1"}
    assert not any("cpu-bind" in word for word in bandwidth.command(srun, ["/x"], MeasuredGpu(4), NUMACTL).argv)


def test_mpirun_starts_what_binds_itself() -> None:
    mpirun = Launch(kind="mpirun", path="/usr/bin/mpirun", hosts=["n1"])
    got = bandwidth.command(mpirun, ["/x"], GPU2, NUMACTL)
    front = ["/usr/bin/numactl", "--physcpubind=0-23", "--membind=0", "env", "CUDA_DEVICE_ORDER=PCI_BUS_ID"]
    assert got.argv[-7:] == [*front, "CUDA_VISIBLE_DEVICES=GPU-aa", "/x"]


@pytest.mark.parametrize(
    "launch, gpu, how, want",
    [
        (Launch(), GPU2, NUMACTL, "numactl"),
        (Launch(), MeasuredGpu(0, numa_node=1), NUMACTL, "numactl"),
        (Launch(), MeasuredGpu(0, numa_node=1), BindMethod("taskset", "x"), "none"),
        (Launch(), MeasuredGpu(0), NUMACTL, "none"),
        (Launch(), GPU2, None, "none"),
        (SRUN, GPU2, NUMACTL, "srun"),
    ],
)
def test_binding_is_told(launch: Launch, gpu: MeasuredGpu, how: BindMethod | None, want: str) -> None:
    assert bandwidth.command(launch, ["/x"], gpu, how).binding == want


def outcome(out: str = "", rc: int | None = 0, err: str = "") -> Outcome:
    return Outcome(rc, out, err, 2.0)


def test_both_programs_are_read_the_same() -> None:
    got = read_output("bandwidthTest", outcome(fixture("bandwidth_test", "quick-12.8.txt")), GPU2, ALL)
    assert (got.values, got.problem, got.name) == (
        {"h2d": 24.6, "d2h": 26.2, "d2d": 571.35},  # half of what it prints: it counts reading and writing
        "",
        "NVIDIA A100-SXM4-40GB",
    )
    text = fixture("nvbandwidth", "text-v0.8-one-gpu.txt")
    got = read_output("nvbandwidth", outcome(text), MeasuredGpu(0, bus_id="00000001:00:00.0"), ALL)
    assert (got.values, got.problem, got.version) == ({"h2d": 26.14, "d2h": 26.31, "d2d": 1174.92}, "", "v0.8")


def test_both_programs_mean_the_same_by_a_copy_inside_the_gpu() -> None:
    """As the module runs it, with 256 MB and not with 32, bandwidthTest printed 4201.9 GB/s on it: twice as many."""
    gpu = MeasuredGpu(0, bus_id="00000000:00:06.0")
    old = read_output("bandwidthTest", outcome(fixture("bandwidth_test", "captured-h200-text.txt")), gpu, ALL)
    new = read_output("nvbandwidth", outcome(fixture("nvbandwidth", "captured-h200-copies-text.txt")), gpu, ALL)
    assert (old.problem, new.problem) == ("", "")
    assert old.values["d2d"] == pytest.approx(3169.4 / 2)
    assert new.values["d2d"] == pytest.approx(2092, abs=1)


@pytest.mark.parametrize(
    "tool, file, rc, err, problem, kind",
    [
        ("bandwidthTest", "all-devices.txt", 0, "", "bandwidthTest printed the sum over 8 GPUs", "infra"),
        ("bandwidthTest", "concatenated.txt", 0, "", "bandwidthTest printed 8 results instead of one", "infra"),
        ("bandwidthTest", "invalid-device.txt", 0, "", "bandwidthTest measured device 0", "infra"),
        ("bandwidthTest", "pageable-range.txt", 0, "", "bandwidthTest measured device 2", "infra"),
        ("bandwidthTest", "captured-no-driver.txt", 1, "", "cudaGetDeviceCount returned 35 -> CUDA driver", "software"),
        ("bandwidthTest", "captured-help.txt", 0, "", "bandwidthTest printed no number for h2d, d2h, d2d", "infra"),
        (
            "bandwidthTest",
            "",
            127,
            "sh: bandwidthTest: not found",
            "exit status 127: sh: bandwidthTest: not found",
            "infra",
        ),
        (
            "bandwidthTest",
            "",
            None,
            "bandwidthTest did not end within 9 s",
            "bandwidthTest did not end within 9",
            "infra",
        ),
        ("nvbandwidth", "text-v0.8-verbose-perf.txt", 0, "", "nvbandwidth saw 2 GPUs instead of one", "infra"),
        ("nvbandwidth", "json-v0.8-two-documents.txt", 0, "", "[CUDA_ERROR_LAUNCH_FAILED]", "software"),
        ("nvbandwidth", "text-v0.8-ecc.txt", 1, "", "[CUDA_ERROR_ECC_UNCORRECTABLE]", "hardware"),
        ("nvbandwidth", "text-v0.8-data-check.txt", 1, "", "Invalid value when checking the pattern", "hardware"),
        ("nvbandwidth", "captured-bad-option.txt", 1, "", "ERROR: Invalid Arguments", "config"),
        ("nvbandwidth", "captured-help.txt", 0, "", "nvbandwidth printed no number for h2d, d2h, d2d", "infra"),
        ("nvbandwidth", "", 0, "", "nvbandwidth printed no number for h2d, d2h, d2d", "infra"),
        (
            "nvbandwidth",
            "text-v0.8-one-gpu.txt",
            0,
            "",
            "nvbandwidth measured the GPU at 00000001:00:00, not that at",
            "infra",
        ),
    ],
)
def test_what_is_not_believed(tool: str, file: str, rc: int | None, err: str, problem: str, kind: str) -> None:
    gpu = GPU2 if "not that at" in problem else MeasuredGpu(0, bus_id="00000001:00:00.0")
    folder = "nvbandwidth" if tool == "nvbandwidth" else "bandwidth_test"
    got = read_output(tool, outcome(fixture(folder, file) if file else "", rc, err), gpu, ALL)
    assert got.problem.startswith(problem)
    assert got.kind == kind
    assert got.values.get("d2d") is None


def test_what_was_measured_before_a_failure_is_kept() -> None:
    text = fixture("bandwidth_test", "quick-12.8.txt")
    got = read_output(
        "bandwidthTest", outcome(text[: text.index(" Device to Device")], None, "x did not end within 60 s"), GPU2, ALL
    )
    assert got.values == {"h2d": 24.6, "d2h": 26.2, "d2d": None}
    assert (got.problem, got.kind) == ("x did not end within 60 s", "infra")
    got = read_output(
        "nvbandwidth", outcome(fixture("nvbandwidth", "text-v0.8-data-check.txt"), 1), MeasuredGpu(0), ALL
    )
    assert got.values == {"h2d": 26.12, "d2h": None, "d2d": None}


def test_a_complete_table_with_a_bad_exit_status_has_a_problem() -> None:
    got = read_output(
        "bandwidthTest", outcome(fixture("bandwidth_test", "quick-12.8.txt"), 139, "core dumped"), GPU2, ALL
    )
    assert (got.problem, got.values["h2d"]) == ("exit status 139: core dumped", 24.6)


def test_an_old_nvbandwidth_that_lacks_a_test_is_no_fault_of_the_gpu() -> None:
    text = fixture("nvbandwidth", "text-v0.4-waived.txt")
    got = read_output("nvbandwidth", outcome(text), MeasuredGpu(0), ["h2d", "d2d"])
    assert (got.values, got.problem, got.lacks) == ({"h2d": 24.59, "d2d": None}, "", ["d2d"])
    record = judge([measured(0, got)], directions=["h2d", "d2d"])
    assert (record["verdict"], [m["name"] for m in record["metrics"]]) == ("unjudged", ["h2d"])
    wants = {**LIMIT, "metric": "d2d"}
    assert judge([measured(0, got)], [wants], ["h2d", "d2d"])["verdict"] == "error"


def measured(index: int, reading: BandwidthReading) -> MeasuredBandwidth:
    return MeasuredBandwidth(MeasuredGpu(index), reading, outcome("said"), ["x"], {})


def good(value: float) -> BandwidthReading:
    return BandwidthReading({"h2d": value, "d2h": 26.0})


def judge(
    found: t.Sequence[MeasuredBandwidth],
    expect: t.Sequence[t.Any] = (),
    directions: t.Sequence[str] = ("h2d", "d2h"),
) -> dict[str, t.Any]:
    return judged(found, directions, expect, {"node": "n1", "time": 1.0, "seconds": 3.0, "context": {}})


def test_one_record_with_metrics_of_every_gpu() -> None:
    record = judge([measured(n, good(25.0 + n)) for n in range(3)], [LIMIT])
    assert (record["verdict"], record["class"], record["scope"], record["reason"]) == ("pass", None, {}, "")
    assert [(m["name"], m["gpu"], m["value"], m["verdict"]) for m in record["metrics"]] == [
        (name, n, value, verdict)
        for n in range(3)
        for name, value, verdict in (("h2d", 25.0 + n, "pass"), ("d2h", 26.0, "unjudged"))
    ]
    assert record["samples"][1] == {
        "gpu": 1,
        "h2d": 26.0,
        "d2h": 26.0,
        "numa_node": None,
        "binding": "none",
        "problem": None,
    }


def test_a_slow_gpu_fails_and_is_named() -> None:
    record = judge([measured(0, good(25.0)), measured(5, good(11.9))], [LIMIT])
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "hardware", {"gpu": [5]})
    assert record["reason"] == "h2d (gpu=5): 11.9 GB/s, expected > 20"


@pytest.mark.parametrize("expect", [[], [LIMIT]])
def test_a_gpu_without_a_number_is_an_error_whether_expected_or_not(expect: list[t.Any]) -> None:
    found = [measured(0, good(25.0)), measured(3, BandwidthReading({}, "x did not end within 60 s"))]
    record = judge(found, expect)
    assert (record["verdict"], record["class"], record["scope"]) == ("error", "infra", {"gpu": [3]})
    assert record["reason"] == "GPU 3: x did not end within 60 s"
    assert [m["verdict"] for m in record["metrics"] if m["gpu"] == 3] == ["error", "error"]
    assert record["evidence"] == "GPU 3:\nsaid"


def test_a_slow_gpu_outranks_one_that_was_not_measured_and_both_are_named() -> None:
    record = judge([measured(1, good(9.0)), measured(2, BandwidthReading({}, "gone"))], [LIMIT])
    assert (record["verdict"], record["scope"]) == ("fail", {"gpu": [1, 2]})
    assert record["reason"] == "GPU 2: gone; h2d (gpu=1): 9 GB/s, expected > 20"


def test_what_all_gpus_suffer_from_is_said_once() -> None:
    record = judge([measured(n, BandwidthReading({}, "no driver")) for n in range(3)])
    assert (record["reason"], record["scope"]) == ("GPU 0, 1, 2: no driver", {"gpu": [0, 1, 2]})


def test_a_hardware_failure_is_a_fail_without_any_number() -> None:
    record = judge(
        [measured(0, good(25.0)), measured(6, BandwidthReading({}, "uncorrectable ECC error", "hardware"))], [LIMIT]
    )
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "hardware", {"gpu": [6]})


def test_numbers_of_a_program_that_failed_do_not_pass() -> None:
    record = judge([measured(0, good(25.0)._replace(problem="exit status 139: core dumped"))], [LIMIT])
    assert (record["verdict"], record["reason"]) == ("error", "GPU 0: exit status 139: core dumped")


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_side_by_side_all_start_at_once_and_one_by_one_none_does(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together, running, most = threading.Barrier(4), [], []

    def run(words: t.Sequence[str], *dummy: t.Any) -> Outcome:
        running.append(words)
        most.append(len(running))
        if mode == "parallel":
            together.wait(patience(10))
        running.pop()
        return outcome(fixture("bandwidth_test", "quick-12.8.txt"))

    monkeypatch.setattr(bandwidth, "run", run)
    monkeypatch.setattr(bandwidth, "choose", lambda *dummy: bandwidth.Program("bandwidthTest", "/x/bandwidthTest"))
    request = BandwidthRequest(node="n1", mode=mode, bind=False, timeout=5)
    dummy, got = bandwidth._measure(request, [MeasuredGpu(n) for n in range(4)])
    assert [one.reading.values["h2d"] for one in got] == [24.6] * 4
    assert max(most) == (4 if mode == "parallel" else 1)


@pytest.mark.parametrize(
    "text, want",
    [
        ("srun: error: Unable to allocate resources: Requested nodes are busy\n", True),
        ("srun: Unable to allocate resources: Immediate execution impossible, x\n", True),
        ("srun: error: Unable to allocate resources: Invalid partition\n", False),
        ("", False),
    ],
)
def test_busy_nodes_are_told_from_errors(text: str, want: bool) -> None:
    assert bool(busy(text)) is want
