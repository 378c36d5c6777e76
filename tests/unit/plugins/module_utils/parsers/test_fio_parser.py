# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import fio

FIXTURES = Path(__file__).parents[3] / "fixtures" / "fio"


def read(name: str) -> str:
    return (FIXTURES / name).read_text()


def one(text: str) -> fio.FioRun:
    (run,) = fio.parse(text).runs
    return run


def way(**values: t.Any) -> dict[str, t.Any]:
    return {"io_bytes": 1 << 30, "io_kbytes": 1 << 20, "bw": 1000000, "bw_bytes": 1024000000, "iops": 976.5, **values}


def document(*jobs: dict[str, t.Any], version: str = "fio-3.36") -> str:
    return json.dumps(
        {"fio version": version, "jobs": [{"jobname": "j", "groupid": 0, "error": 0, **job} for job in jobs]}, indent=2
    )


def test_jobs_side_by_side_are_added() -> None:
    log = fio.parse(read("captured-3.33-write.json"))
    (run,) = log.runs
    assert (log.ok, log.cause, run.version, run.complete, run.ok) == (True, None, "fio-3.33", True, True)
    assert run.bandwidth("write") == 1543068969 + 1741347768
    assert run.iops("write") == pytest.approx(1471.585244 + 1660.678643)
    assert run.bandwidth("read") is None
    first = run.jobs[0].direction("write")
    assert first is not None
    assert (first.seconds, first.bytes, first.percentiles_of) == (1.003, 1547698176, "clat")
    assert first.latency_us == pytest.approx(2714.84, abs=0.01)
    assert (first.percentiles_us["50"], first.percentiles_us["99.99"]) == (1138.688, 11993.088)
    assert run.jobs[0].options["iodepth"] == "4"


def test_version_2_counts_in_other_units() -> None:
    run = one(read("captured-2.16-write.txt"))
    first = run.jobs[0].direction("write")
    assert first is not None
    assert (run.ok, run.version, first.bytes) == (True, "fio-2.16", 16 << 20)  # printed as 16384
    assert first.bandwidth == 2048000 * 1024
    assert (first.latency_us, first.percentiles_us["95"], first.percentiles_us["1"]) == (455.75, 4256.0, 131.0)
    assert "0" not in first.percentiles_us


def test_groups_follow_each_other_and_are_never_added() -> None:
    run = one(read("captured-3.33-groups.txt"))
    assert [(job.name, job.group) for job in run.jobs] == [("layout", 0), ("back", 1)]
    assert (run.bandwidth("write"), run.bandwidth("read", 1), run.bandwidth("read", 0)) == (
        4194304000,
        4194304000,
        None,
    )
    back = run.jobs[1].direction("read")
    assert back is not None
    assert (back.percentiles_of, back.percentiles_us["50"]) == ("lat", 5.344)
    assert run.notes == [
        "note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1"
    ]
    twice = one(document({"read": way()}, {"read": way(), "groupid": 1}))
    assert (twice.bandwidth("read"), twice.bandwidth("read", 1)) == (None, 1024000000)


def test_client_and_server_mode_has_a_sum_that_is_no_job() -> None:
    text = read("captured-3.42-client-server.txt")
    assert '"All clients"' in text
    run = one(text)
    assert (run.ok, [job.name for job in run.jobs]) == (True, ["hpcai", "hpcai"])
    assert run.bandwidth("read") == 986895058 + 578524689


def test_json_plus() -> None:
    run = one(read("captured-3.42-read-plus.json"))
    assert (run.ok, run.version, run.bandwidth("read")) == (True, "fio-3.42", 466033777 + 409200390)


@pytest.mark.parametrize(
    "name, kind, cause, documents",
    [
        (
            "captured-3.33-no-direct.txt",
            "config",
            "fio: looks like your file system does not support direct=1/buffered=0",
            1,
        ),
        ("captured-3.33-no-direct.json", "config", "job w: error 22 (Invalid argument)", 1),
        ("captured-3.33-no-space.json", "config", "job w: error 28 (No space left on device)", 1),
        (
            "captured-3.33-no-space.stderr.txt",
            "config",
            "fio: io_u error on file /tmp/small/w.1.0: No space left on device: write offset=1200128, buflen=897024",
            0,
        ),
        ("captured-3.33-no-engine.txt", "software", "fio: engine nosuch not loadable", 0),
        ("captured-3.33-bad-option.txt", "config", "fio: unrecognized option '--zork=1'", 0),
    ],
)
def test_captured_failures(name: str, kind: str, cause: str, documents: int) -> None:
    log = fio.parse(read(name))
    assert log.cause is not None
    assert (log.ok, log.cause.kind, log.cause.text, len(log.runs)) == (False, kind, cause, documents)
    assert not any(run.ok for run in log.runs)


@pytest.mark.parametrize(
    "text, kind",
    [
        ("fio: io_u error on file /d/w.0.0: Input/output error: read offset=0, buflen=4096", "hardware"),
        ("fio: pid=7, err=5/file:io_u.c:1756, func=io_u error, error=Input/output error", "hardware"),
        ("fio: io engine rdma init failed.", "software"),
        ("fio: /nonexistent is not a directory", "config"),
        ("fio: terminating on signal 15", "infra"),
        ("verify: bad header rand_seed 1, wanted 2 at file /d/w.0.0 offset 0", "hardware"),
    ],
)
def test_messages(text: str, kind: str) -> None:
    log = fio.parse(f"{text}\n{read('captured-3.33-write.json')}")
    assert log.cause is not None
    assert (log.cause.kind, log.ok, log.runs[0].ok, log.runs[0].complete) == (kind, False, False, True)


def test_an_error_outweighs_any_number() -> None:
    run = one(document({"write": way()}, {"write": way(), "error": 5}))
    assert run.bandwidth("write") == 2048000000
    assert run.cause is not None
    assert (run.ok, run.cause.kind, run.cause.text) == (False, "hardware", "job j: error 5 (Input/output error)")


def test_text_around_and_inside_a_document() -> None:
    lines = read("captured-3.33-write.json").splitlines()
    noise = ["Jobs: 2 (f=2): [W(2)][100.0%][w=3012MiB/s][eta 00m:00s]", "slurmstepd: a line of another program"]
    log = fio.parse(
        "\r\n".join(["fio: this platform does not support something", *lines[:40], *noise, *lines[40:], "", *noise])
    )
    assert (log.ok, log.runs[0].bandwidth("write")) == (True, 3284416737)


def test_keys_that_occur_twice() -> None:
    text = document({"write": way()}).replace('"bw_bytes": 1024000000', '"bw_bytes": 1, "bw_bytes": 2000000000')
    assert one(text).bandwidth("write") == 2000000000


def test_several_documents() -> None:
    log = fio.parse("\n".join([document({"read": way()}), document({"read": way(bw_bytes=7)})]))
    assert [run.bandwidth("read") for run in log.runs] == [1024000000, 7]
    assert log.ok


def test_a_document_that_breaks_off_is_partial() -> None:
    text = read("captured-3.33-write.json")
    log = fio.parse(text[: int(len(text) * 0.75)])
    (run,) = log.runs
    assert (run.version, run.complete, run.ok, log.ok) == ("fio-3.33", False, False, False)
    assert run.jobs[0].direction("write") is not None


@pytest.mark.parametrize(
    "text", ["", "{}", "{", '{\n"jobs": []\n}', '{"fio version": "fio-3.1"}', '{"fio version": "fio-3.1", "jobs": 7}']
)
def test_nothing_to_read(text: str) -> None:
    log = fio.parse(text)
    assert not log.ok
    assert not any(run.jobs for run in log.runs)


@pytest.mark.parametrize("value", ['"x"', "null", "true", "1e999", "NaN", "[]", "9" * 400])
def test_not_a_number(value: str) -> None:
    run = one(document({"read": way()}).replace("1024000000", value).replace('"bw": 1000000', f'"bw": {value}'))
    assert run.bandwidth("read") is None
    json.dumps(dataclasses.asdict(run), allow_nan=False)


def test_nothing_moved_is_not_ok() -> None:
    assert not one(document({"read": way(io_bytes=0, bw_bytes=0)})).ok


@pytest.mark.parametrize(
    "job, kind, text",
    [
        # Of a group the first error is that of its last job, and error is 0 unless it was taken over.
        ({"total_err": 3, "first_error": 5}, "hardware", "3 errors that continue_on_error passed over, error 5 ("),
        ({"total_err": 3, "first_error": 0}, "software", "3 errors that continue_on_error passed over"),
        ({"total_err": 0, "first_error": 5}, "hardware", "error 5 ("),
        (
            {"error": 84, "total_err": 1, "first_error": 84},
            "hardware",
            "1 errors that continue_on_error passed over, err",
        ),
        (
            {"error": 28, "total_err": 1, "first_error": 5},
            "config",
            "1 errors that continue_on_error passed over, error 28",
        ),
    ],
)
def test_errors_that_were_passed_over_are_errors(job: dict[str, t.Any], kind: str, text: str) -> None:
    log = fio.parse(document({"read": way(), **job}))
    assert log.cause is not None
    assert (log.ok, log.runs[0].complete, log.cause.kind) == (False, True, kind)
    assert log.cause.text.startswith(f"job j: {text}")


def test_a_job_that_could_have_gone_on_after_errors_and_had_none_is_ok() -> None:
    log = fio.parse(document({"read": way(), "total_err": 0, "first_error": 0}))
    assert (log.ok, log.runs[0].jobs[0].errors) == (True, 0)
    assert fio.parse(document({"read": way()})).runs[0].jobs[0].errors is None
