# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import signal
import stat
import typing as t
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import CheckError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage import bandwidth

FIXTURES = Path(__file__).parents[3] / "fixtures" / "fio"
WRITTEN = (FIXTURES / "captured-3.33-write.json").read_text()
LIMIT = {"check": "storage_bandwidth", "metric": "write", "op": ">=", "value": 8, "unit": "GB/s", "source": "test"}
ABOUT: dict[str, t.Any] = {"node": "n", "time": 1.0, "run": "r"}


def params(**changes: t.Any) -> dict[str, t.Any]:
    return {**{name: spec.get("default") for name, spec in bandwidth.SPEC.items()}, "paths": ["/scratch"], **changes}


def request(**changes: t.Any) -> bandwidth.FioRequest:
    return bandwidth.read(params(**changes))


def measured(
    out: str = WRITTEN, rc: int | None = 0, err: str = "", operation: str = "write"
) -> bandwidth.MeasuredStorage:
    return bandwidth.measure("/scratch", operation, ["fio"], Outcome(rc, out, err, 1.0))


def judged(
    one: bandwidth.MeasuredStorage, *expect: dict[str, t.Any], problems: t.Sequence[str] = ()
) -> dict[str, t.Any]:
    places = {"/scratch": {"type": "xfs", "device": "/dev/md0", "problems": list(problems)}}
    return bandwidth.result([one], places, expect, {"tool": "fio"}, ABOUT)["checks"][0]


@pytest.mark.parametrize(
    "text, want",
    [("4G", 4 << 30), ("512k", 512 << 10), ("1MiB", 1 << 20), ("4096", 4096), (" 2t ", 2 << 40), ("1KB", 1024)],
)
def test_sizes(text: str, want: int) -> None:
    assert bandwidth.size("size", text) == want


@pytest.mark.parametrize("text", ["", "0", "4 G", "-1", "1.5G", "many", "0x10", "4X"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(bandwidth.StorageError, match="size is"):
        bandwidth.size("size", text)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"jobs": 0}, "jobs is 0"),
        ({"iodepth": 0}, "iodepth is 0"),
        ({"runtime": 0}, "runtime is 0"),
        ({"runtime": 600}, "leaves fio no time"),
        ({"size": "512K"}, "multiple of block_size"),
        ({"size": "1025K", "block_size": "4K"}, "multiple of block_size"),
        ({"block_size": "100", "size": "1000"}, "512 bytes"),
        ({"paths": []}, "must not be empty"),
        ({"operations": []}, "must not be empty"),
        ({"paths": ["scratch"]}, "must be absolute"),
        ({"paths": ["/a", "/a"]}, "differ"),
        ({"ioengine": "external:/tmp/x.so"}, "ioengine is"),
    ],
)
def test_nonsense_is_refused(change: dict[str, t.Any], says: str) -> None:
    with pytest.raises(bandwidth.StorageError, match=says):
        request(**change)


def test_a_bad_expectation_is_refused() -> None:
    with pytest.raises(CheckError, match="lacks"):
        request(expect=[{"check": "storage_bandwidth"}])


def test_command_line() -> None:
    got = bandwidth.fio_argv("/usr/bin/fio", request(), "read", "/scratch/x", 1 << 20)
    assert " ".join(got) == (
        "/usr/bin/fio --name=hpcai --directory=/scratch/x --rw=read --bs=1048576 --size=1048576 --numjobs=4"
        " --iodepth=255 --direct=1 --ioengine=libaio --runtime=30 --time_based=1 --fallocate=none --eta=never"
        " --output-format=json"
    )
    buffered = request(direct=False)
    assert "--end_fsync=1" in bandwidth.fio_argv("fio", buffered, "write", "/x", 1)
    assert "--end_fsync=1" not in bandwidth.fio_argv("fio", buffered, "read", "/x", 1)


@pytest.mark.parametrize(
    "operations, runs",
    [
        (["write", "read"], ["write", "read"]),
        (["read"], ["write", "read"]),
        (["randread", "write"], ["write", "randread"]),
        (["randwrite"], ["write", "randwrite"]),
    ],
)
def test_what_is_read_was_written_before(operations: list[str], runs: list[str]) -> None:
    assert request(operations=operations).runs == runs


@pytest.mark.parametrize(
    "total, available, needed, refused",
    [
        (1000, 1000, 900, False),
        (1000, 1000, 901, True),
        (1000, 150, 50, False),
        (1000, 150, 51, True),
        (1000, 20, 2, False),
        (1000, 20, 3, True),
        (0, 0, 1, True),
    ],
)
def test_a_tenth_of_the_file_system_stays_free_or_nine_tenths_of_what_was(
    total: int, available: int, needed: int, refused: bool
) -> None:
    said = bandwidth.refusal("/scratch", needed, bandwidth.Space(total, available))
    assert bool(said) is refused
    assert not said or "less than 10%" in said


def test_only_directories_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bandwidth.check_kind(str(tmp_path))
    bandwidth.check_kind(str(tmp_path / "missing"))  # found out later, and then an error of this machine
    (tmp_path / "file").write_text("")
    with pytest.raises(bandwidth.StorageError, match="no directory"):
        bandwidth.check_kind(str(tmp_path / "file"))
    monkeypatch.setattr(Path, "stat", lambda self: SimpleNamespace(st_mode=stat.S_IFBLK | 0o660))
    with pytest.raises(bandwidth.StorageError, match="/dev/nvme0n1 is a block device"):
        bandwidth.check_kind("/dev/nvme0n1")


def test_the_folder_is_ours_and_always_removed(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("precious")
    with pytest.raises(RuntimeError), bandwidth.test_folder(str(tmp_path)) as own:
        assert (Path(own).parent, stat.S_IMODE(Path(own).stat().st_mode)) == (tmp_path, 0o700)
        (Path(own) / "hpcai.0.0").write_text("x")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_folder_is_removed_when_the_module_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit), bandwidth.test_folder(str(tmp_path)):
        os.kill(os.getpid(), number)
    assert (list(tmp_path.iterdir()), signal.getsignal(number)) == ([], before)


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
/dev/md0 /scratch xfs rw 0 0
10.0.0.4:/home /shared\\040home nfs4 rw 0 0
tmpfs /scratchy tmpfs rw 0 0
overlay / overlay rw 0 0
"""


@pytest.mark.parametrize(
    "path, kind, device",
    [
        ("/scratch", "xfs", "/dev/md0"),
        ("/scratch/a/b", "xfs", "/dev/md0"),
        ("/scratchy", "tmpfs", "tmpfs"),
        ("/scratches", "overlay", "overlay"),
        ("/shared home/anna", "nfs4", "10.0.0.4:/home"),
    ],
)
def test_mounts(path: str, kind: str, device: str) -> None:
    assert bandwidth.mount(path, MOUNTS) == {"type": kind, "device": device}


def test_mounts_of_nothing() -> None:
    assert bandwidth.mount("/scratch", "") == {"type": None, "device": None}


def test_all_jobs_together() -> None:
    one = measured()
    assert (one.problem, one.gbs) == ("", pytest.approx(3.284416737))
    row = bandwidth.sample(one)
    assert (row["jobs"], row["bytes"], row["seconds"], row["problem"]) == (2, 1547698176 + 1744830464, 1.003, None)
    assert row["percentiles_us"] == {"50": 1351.68, "99": 8224.768, "99.9": 11862.016}
    assert row["latency_us"] == pytest.approx(2714.84, abs=0.01)


@pytest.mark.parametrize(
    "out, rc, err, says",
    [
        ((FIXTURES / "captured-3.33-no-direct.txt").read_text(), 1, "", "direct=false measures with it"),
        ("", 1, (FIXTURES / "captured-3.33-no-engine.txt").read_text(), "another ioengine, such as psync"),
        (WRITTEN, 1, "", "exit status 1"),
        (WRITTEN, None, "fio did not end within 60 s", "did not end within 60 s"),
        ("", 0, "", "no complete result"),
        (WRITTEN[:3000], 0, "", "no complete result"),
        ("Segmentation fault (core dumped)", 139, "", "Segmentation fault"),
    ],
)
def test_what_cannot_be_trusted_is_an_error(out: str, rc: int | None, err: str, says: str) -> None:
    one = measured(out, rc, err)
    found = judged(one, LIMIT)
    assert (found["verdict"], found["class"], one.gbs) == ("error", "infra", None)
    assert says in found["reason"]
    assert found["scope"] == {"path": ["/scratch"]}


def test_a_write_is_no_read() -> None:
    assert "no complete result" in measured(operation="read").problem


def test_a_disk_that_fails_is_a_fail_of_hardware() -> None:
    err = "fio: io_u error on file /scratch/x/hpcai.0.0: Input/output error: write offset=0, buflen=1048576\n"
    found = judged(measured(rc=1, err=err))
    assert (found["verdict"], found["class"]) == ("fail", "hardware")


@pytest.mark.parametrize("limit, verdict, blame", [(3.0, "pass", None), (3.3, "fail", "hardware")])
def test_judged_in_decimal_gigabytes(limit: float, verdict: str, blame: str | None) -> None:
    found = judged(measured(), {**LIMIT, "value": limit})
    assert (found["verdict"], found["class"], found["metrics"][0]["path"]) == (verdict, blame, "/scratch")


def test_a_degraded_array_explains_a_slow_disk_and_nothing_else() -> None:
    slow = judged(measured(), LIMIT, problems=["degraded"])
    assert slow["reason"].endswith("/scratch: /dev/md0 is degraded")
    assert judged(measured(), problems=["degraded"])["verdict"] == "unjudged"


@pytest.mark.parametrize(
    "moved, want",
    [
        ([8 << 20, 9 << 20], 8 << 20),  # the whole file, perhaps more than once
        ([7 << 20, 9 << 20], 5 << 20),  # the two blocks in flight may be missing anywhere in what was written
        ([1 << 20, 9 << 20], 0),
        ([9 << 20], 0),  # a job is missing
    ],
)
def test_only_what_was_written_is_read(moved: list[int], want: int) -> None:
    jobs = [
        {"jobname": "hpcai", "groupid": 0, "error": 0, "write": {"io_bytes": n, "io_kbytes": 1, "bw_bytes": 9}}
        for n in moved
    ]
    out = '{\n"fio version" : "fio-3.33",\n"jobs" : ' + str(jobs).replace("'", '"') + "\n}"
    assert bandwidth.written(measured(out), request(size="8M", jobs=2, iodepth=2)) == want
