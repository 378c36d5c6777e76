# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
import random
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import perftest

FIXTURES = Path(__file__).parents[3] / "fixtures" / "perftest"
AUTHORED = dict(
    re.findall(r"^# ([^\n]+)\n\n```\n(.*?)^```", (FIXTURES / "authored.md").read_text(), re.MULTILINE | re.DOTALL)
)
RULE = "-" * 87
MIB = 0.008388608


def read(name: str) -> str:
    return (FIXTURES / f"captured-{name}").read_text()


def one(text: str, unit: str | None = None) -> perftest.PerftestRun:
    (run,) = perftest.parse(text, unit).runs
    return run


def table(*rows: str, unit: str = "Gb/sec", end: bool = True) -> str:
    head = f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"
    return "\n".join([RULE, head, *rows, *([RULE] if end else [])]) + "\n"


@pytest.mark.parametrize(
    "name, test, size, gbps",
    [
        ("write-mib-client.txt", "RDMA_Write BW Test", 4096, 24.71 * MIB),
        ("write-mib-server.txt", "RDMA_Write BW Test", 4096, 24.71 * MIB),
        ("new-mib-client.txt", "RDMA_Write BW Test", 4096, 19.30 * MIB),
        ("write-gbits-client.txt", "RDMA_Write BW Test", 65536, 0.40),
        ("new-gbits-server.txt", "RDMA_Write BW Test", 65536, 0.33),
        ("read-client.txt", "RDMA_Read BW Test", 65536, 0.37),
        ("send-client.txt", "Send BW Test", 65536, 0.39),
        ("send-server.txt", "Send BW Test", 65536, 0.40),
        ("small-client.txt", "RDMA_Write BW Test", 2, 0.000565),
        ("duration-client.txt", "RDMA_Write BW Test", 65536, 0.40),
    ],
)
def test_captured_tables(name: str, test: str, size: int, gbps: float) -> None:
    log = perftest.parse(read(name))
    (run,) = log.runs
    assert (log.ok, log.cause, run.complete, run.test, run.device) == (True, None, True, test, "rxe0")
    assert (run.link_layer, run.connection, run.qps, run.mtu, run.sides) == ("Ethernet", "RC", 1, 1024, 1)
    assert [row.size for row in run.rows] == [size]
    assert run.bandwidth() == run.bandwidth(size) == pytest.approx(gbps)


@pytest.mark.parametrize("unit, factor", [("MB/sec", MIB), ("MiB/sec", MIB), ("Gb/sec", 1.0)])
def test_units_and_the_printed_numbers(unit: str, factor: float) -> None:
    run = one(table(" 65536      5000             11720.11           11699.48		   0.187192", unit=unit))
    (row,) = run.rows
    assert (run.unit, row.peak, row.average) == (unit, 11720.11, 11699.48)
    assert row.peak_gbps == pytest.approx(11720.11 * factor)
    assert row.average_gbps == pytest.approx(11699.48 * factor)
    assert (row.size, row.iterations, row.message_rate_mpps) == (65536, 5000, 0.187192)


def test_infiniband_with_noise_between_header_and_row() -> None:
    run = one(AUTHORED["HDR"])
    assert (run.ok, run.link_layer, run.device, run.qps, run.mtu) == (True, "InfiniBand", "mlx5_ib0", 4, 4096)
    assert run.bandwidth() == 196.58
    assert [note[:26] for note in run.notes] == ["Conflicting CPU frequency "]


def test_all_sizes() -> None:
    run = one(read("all-client.txt"))
    assert [row.size for row in run.rows] == [1 << power for power in range(1, 24)]
    assert (run.bandwidth(), run.bandwidth(512), run.bandwidth(3)) == (0.41, 0.12, None)
    # Six decimals below 0.1 Gb/s, two above.
    assert [row.average for row in run.rows[7:9]] == [0.060157, 0.12]


@pytest.mark.parametrize(
    "name, cpu", [("duration-client.txt", None), ("cpu-client.txt", 0.99), ("new-send-client.txt", None)]
)
def test_by_duration_there_is_no_peak(name: str, cpu: float | None) -> None:
    (row,) = one(read(name)).rows
    assert (row.peak, row.peak_gbps, row.cpu_percent) == (0.0, None, cpu)
    assert row.average_gbps


def test_report_both_does_not_replace_the_sum_of_both_directions() -> None:
    run = one(read("both-client.txt"))
    assert run.bidirectional
    assert [row.average_gbps for row in run.rows] == [run.bandwidth()] == [0.79]


def test_ports_and_service_levels_have_columns_of_their_own() -> None:
    (row,) = one(AUTHORED["per port"]).rows
    assert row.ports_gbps == [pytest.approx(100.0, abs=0.01)] * 2
    assert row.average_gbps == pytest.approx(200.0, abs=0.01)
    assert one(AUTHORED["per port"]).notes == ["WARNING: BW peak won't be measured in this run."]
    (row,) = one(AUTHORED["service level"]).rows
    assert (row.size, row.iterations, row.average_gbps, row.message_rate_mpps) == (1024, 5000, 97.10, 11.852539)


def test_gpu() -> None:
    run = one(AUTHORED["GPU"])
    assert (run.ok, run.gpu, run.test) == (True, "NVIDIA A100-SXM4-40GB", "RDMA_Read BW Test")


def test_server_and_client_in_one_log_are_one_run() -> None:
    run = one(read("together.txt"))
    assert (run.ok, run.sides, len(run.rows), run.bandwidth()) == (True, 2, 1, 0.40)


def test_rows_that_share_a_line() -> None:
    text = read("together-all-bidirectional.txt")
    assert re.search(r"0\.000022 4194304", text)
    run = one(text)
    assert (run.ok, run.sides, [row.size for row in run.rows]) == (True, 2, [1 << power for power in range(1, 24)])


def test_two_rows_of_different_sizes_in_one_line() -> None:
    run = one(table(" 2    5    1.00    1.00    1.000000 4    5    2.00    2.00    1.000000"))
    assert [(row.size, row.average_gbps) for row in run.rows] == [(2, 1.0), (4, 2.0)]


def test_the_header_of_one_side_behind_the_row_of_the_other() -> None:
    title = f"{RULE}\n                    RDMA_Write BW Test\n"
    log = perftest.parse(title * 2 + table(" 2  5  1.00 1.00 1.0", end=False) + table(" 2  5  1.00 1.00 1.0"))
    assert [(run.sides, len(run.rows), run.ok) for run in log.runs] == [(2, 1, True)]


def test_the_rule_above_the_other_side_does_not_end_a_table() -> None:
    begun = read("together.txt").split("RDMA_Write", 2)
    log = perftest.parse("RDMA_Write".join(begun[:2]))
    assert "Waiting for client" in begun[1]
    assert [(len(run.rows), run.complete) for run in log.runs] == [(1, False)]


def test_a_rule_that_is_cut_off_does_not_end_a_table() -> None:
    text = read("write-gbits-client.txt").rstrip()
    assert [perftest.parse(text[:-cut] if cut else text).ok for cut in (0, 1, 50)] == [True, False, False]


def test_server_and_client_written_apart_are_one_run() -> None:
    server, client = read("write-mib-server.txt"), read("write-mib-client.txt")
    assert one(server + client).sides == one(client + server).sides == 2


def test_different_tests_stay_apart() -> None:
    log = perftest.parse(read("write-gbits-client.txt") + read("read-client.txt"))
    assert [(run.test, run.bandwidth(), run.ok) for run in log.runs] == [
        ("RDMA_Write BW Test", 0.40, True),
        ("RDMA_Read BW Test", 0.37, True),
    ]


def test_tables_without_banner() -> None:
    log = perftest.parse(table(" 2  5  1.00 1.00 1.0") + table(" 4  5  2.00 2.00 1.0"))
    assert [run.bandwidth() for run in log.runs] == [1.0, 2.0]


def test_a_broken_run_is_not_mended_by_the_next() -> None:
    begun = read("all-client.txt").split(" 1024 ")[0]
    log = perftest.parse(begun + "\n" + read("write-gbits-client.txt"))
    assert [(len(run.rows), run.complete, run.ok) for run in log.runs] == [(9, False, False), (1, True, True)]
    assert not log.ok


def test_mixed_units_of_one_run_cannot_be_told_apart() -> None:
    server = read("write-mib-server.txt").replace("MB/sec", "Gb/sec")
    log = perftest.parse(server + read("write-mib-client.txt"))
    assert not log.ok
    assert log.cause is not None
    assert (log.cause.kind, "Gb/sec and MB/sec" in log.cause.text) == ("config", True)


def test_repeated_reports_never_end() -> None:
    run = one(read("inf-client.txt"))
    assert (len(run.rows), run.rows[0].iterations, run.complete, run.ok) == (1, 1488, False, False)


def test_a_missed_limit_leaves_the_number() -> None:
    text = read("limit-client.txt")
    assert "0.000657Error: BW result" in text
    run = one(text)
    assert (run.ok, run.limit_missed, run.bandwidth(), run.cause) == (True, True, 0.34, None)


@pytest.mark.parametrize(
    "unit, ok, gbps", [("Gb/sec", True, 0.412427), ("MiB/sec", True, 0.412427 * MIB), (None, False, None)]
)
def test_a_bare_number_has_no_unit(unit: str | None, ok: bool, gbps: float | None) -> None:
    run = one(read("bare-client.txt"), unit)
    assert (run.complete, run.ok, run.rows[0].size, run.rows[0].average) == (True, ok, None, 0.412427)
    assert run.bandwidth() == (gbps if gbps is None else pytest.approx(gbps))


@pytest.mark.parametrize(
    "name, size, average",
    [
        ("out-json.json", 65536, 0.40),
        ("new-out-json.json", 65536, 0.33),
        ("new-out-json-bandwidth.json", None, 0.337247),
    ],
)
def test_json_of_all_ages(name: str, size: int | None, average: float) -> None:
    run = one(read(name), "Gb/sec")
    assert (run.ok, run.test, run.device, run.link_layer) == (True, "RDMA_Write BW Test", "rxe0", "Ethernet")
    assert (run.rows[0].size, run.bandwidth(), run.qps, run.mtu) == (size, average, 1, 1024)
    assert not one(read(name)).ok  # the unit is not in the document


def test_the_two_kinds_of_json_are_what_they_are_meant_to_be() -> None:
    with pytest.raises(ValueError, match="Expecting property name"):
        json.loads(read("out-json.json"))
    assert json.loads(read("new-out-json.json"))["results"]["MsgSize"] == 65536


def test_json_that_breaks_off() -> None:
    run = one(read("new-out-json.json").rsplit("}", 2)[0], "Gb/sec")
    assert (run.complete, run.ok, run.bandwidth()) == (False, False, 0.33)


@pytest.mark.parametrize(
    "text, kind, cause",
    [
        (read("noserver.txt"), "infra", "Couldn't connect to 10.0.0.1:18515"),
        (read("portinuse.txt"), "infra", "Couldn't listen to port 18515"),
        (read("nodevice.txt"), "config", "IB device mlx5_9 not found"),
        (read("no-device.txt"), "config", "Did not detect devices"),
        (read("no-device-read.txt"), "config", "Did not detect devices"),
        (read("bad-option.txt"), "config", "ib_write_bw: unrecognized option '--badoption'"),
        (
            read("new-no-cuda.txt"),
            "software",
            "dlerror: libcuda.so: cannot open shared object file: No such file or directory",
        ),
        (read("killed-client.txt"), "infra", "ethernet_read_keys: Couldn't read remote address"),
        (AUTHORED["no peer memory"], "config", "Couldn't allocate MR"),
        (" Unable to find the Infiniband/RoCE device\n", "infra", "Unable to find the Infiniband/RoCE device"),
        (
            "Failed to modify QP 43 to RTR\n Unable to Connect the HCA's through the link\n",
            "fabric",
            "Failed to modify QP 43 to RTR",
        ),
        (
            " Port number 1 state is Down\n Couldn't get context for the device\n",
            "fabric",
            "Port number 1 state is Down",
        ),
        (" Unable to init the socket connection\n", "infra", "Unable to init the socket connection"),
        ("Completion with error at client\n", "fabric", "Completion with error at client"),
        (
            "ib_write_bw: error while loading shared libraries: libibverbs.so.1: x\n",
            "software",
            "ib_write_bw: error while loading shared libraries: libibverbs.so.1: x",
        ),
    ],
)
def test_failures(text: str, kind: str, cause: str) -> None:
    log = perftest.parse(text)
    assert log.cause is not None
    assert (log.ok, log.cause.kind, log.cause.text) == (False, kind, cause)
    assert not any(run.ok for run in log.runs)


def test_a_broken_link_names_what_broke() -> None:
    log = perftest.parse(AUTHORED["broken link"])
    assert [(run.device, run.rows, run.complete) for run in log.runs] == [("mlx5_ib5", [], False)]
    assert log.cause is not None
    assert (log.cause.kind, log.cause.text) == (
        "fabric",
        "Completion with error at client: Failed status 12: wr_id 0 syndrom 0x81"
        " (transport retries exceeded, the other port does not answer)",
    )


def test_nothing_got_through() -> None:
    log = perftest.parse(table(" 65536      0           0.000000            0.000000            0.000000"))
    (row,) = log.runs[0].rows
    assert (row.average, row.average_gbps, row.message_rate_mpps, log.ok) == (0.0, None, None, False)
    assert log.cause is not None
    assert log.cause.kind == "fabric"


def test_a_retry_before_does_not_spoil_the_run() -> None:
    log = perftest.parse(read("noserver.txt") + read("write-gbits-client.txt"))
    assert [run.ok for run in log.runs] == [True]
    assert not log.ok
    assert log.cause is not None


def test_latencies_are_no_bandwidth() -> None:
    run = one(read("lat-client.txt"))
    assert (run.test, run.rows, run.ok, run.bandwidth()) == ("RDMA_Write Latency Test", [], False, None)


@pytest.mark.parametrize("bad", ["nan", "inf", "-nan", "N/A"])
def test_not_a_number(bad: str) -> None:
    log = perftest.parse(table(f" 65536      5000             {bad}              {bad} 		   0.000763"))
    (row,) = log.runs[0].rows
    assert (row.size, row.peak_gbps, row.average_gbps, log.ok) == (65536, None, None, False)


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "0: ", "[0] ", "\x1b[4m"])
def test_tags(tag: str) -> None:
    text = "".join(f"{tag}{line}\r\n" for line in read("write-gbits-client.txt").splitlines())
    assert one(text).bandwidth() == 0.40


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("captured-*")), ids=lambda path: path.name)
def test_any_part_of_any_output_is_read_and_can_be_written_as_json(path: Path) -> None:
    text, chance = path.read_text(), random.Random(path.name)
    parts: list[t.Any] = [text[: chance.randrange(len(text) + 1)] for dummy in range(10)]
    for part in [text, *parts, text.splitlines(), "", "\0" * 9]:
        json.dumps(dataclasses.asdict(perftest.parse(part, "Gb/sec")), allow_nan=False)


def levels(*rows: str) -> str:
    head = " #bytes    #sl      #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
    return "\n".join([RULE, head, *rows, RULE]) + "\n"


def test_rows_of_several_service_levels_are_not_one_measurement() -> None:
    first, second = (
        f" 1024    {level}           5000           {speed}            {speed}                  5.900000"
        for level, speed in ((0, 48.10), (3, 47.90))
    )
    log = perftest.parse(levels(first, second))
    (run,) = log.runs
    assert log.cause is not None
    assert (log.ok, log.cause.kind, log.cause.text[:33]) == (False, "config", "2 service levels at 1024 bytes: r")
    assert ([row.average for row in run.rows], run.bandwidth()) == ([48.10, 47.90], None)
    assert perftest.parse(levels(second)).ok


def test_intervals_are_not_the_result_although_the_program_came_to_its_end() -> None:
    log = perftest.parse(read("inf-client.txt") + RULE + "\n")
    assert log.cause is not None
    assert (log.ok, log.cause.kind, log.cause.text[:33]) == (False, "config", "3 rows of 65536 bytes: intervals ")


def test_several_bare_numbers_are_intervals_or_sizes() -> None:
    log = perftest.parse("0.412427\n0.398811\n", "Gb/sec")
    assert (log.ok, log.cause and log.cause.text[:17]) == (False, "2 rows: intervals")
    assert perftest.parse("0.412427\n0.412427\n", "Gb/sec").ok


@pytest.mark.parametrize(
    "row",
    [
        " 65536      5000             0.4",
        " 65536      5000             ####             0.40 		   0.000759",
        " 65536      5000             0.41             0.4node-1:7:9 [0] NCCL WARN x",
        " 65536      5000",
    ],
)
def test_a_row_that_cannot_be_read_is_missed(row: str) -> None:
    good = " 32768      5000             0.41             0.40 		   0.000759"
    log = perftest.parse(table(good, row))
    assert (log.ok, log.runs[0].complete) == (False, False)
    assert perftest.parse(table(good)).ok
