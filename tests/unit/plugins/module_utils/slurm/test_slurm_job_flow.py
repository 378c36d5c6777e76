# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job import (
    JobClient,
    JobLostError,
    JobRequest,
    JobSpec,
    JobState,
    JobTimeoutError,
    dump_record,
    ensure,
    from_scontrol,
    remove,
    report,
    tag,
    tail,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SEPARATOR, SlurmError

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm"
SHOWN = (FIXTURES / "scontrol-jobs-24.11.txt").read_text(encoding="utf-8").splitlines()[0]
ACCOUNTED = (FIXTURES / "sacct-24.11.txt").read_text(encoding="utf-8")
NAME = "ok job|x"  # of the captured job 1

Answer = t.Tuple[int, str, str]
GONE: Answer = (1, "", "slurm_load_jobs error: Invalid job id specified")
AWAY: Answer = (1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
DISABLED: Answer = (1, "", "Slurm accounting storage is disabled\n")
DENIED: Answer = (1, "", "sbatch: error: Invalid account or account/partition combination specified")
NOTHING: Answer = (0, "", "")


def shown(state: str, exit_code: str = "0:0", name: str = NAME) -> Answer:
    text = SHOWN.replace("JobState=COMPLETED", f"JobState={state}").replace("ExitCode=0:0", f"ExitCode={exit_code}")
    return 0, text.replace(f"JobName={NAME}", f"JobName={name}"), ""


PENDING, RUNNING, DONE, FAILED = shown("PENDING"), shown("RUNNING"), shown("COMPLETED"), shown("FAILED", "3:0")
REQUEUED, CANCELLED = shown("PENDING"), shown("CANCELLED", "0:15")


class Slurm:
    """Answers like Slurm's commands; each look at the job takes the next answer, and the last one stays."""

    def __init__(
        self, *looks: Answer, sacct: Answer = NOTHING, squeue: Answer = NOTHING, sbatch: Answer = (0, "1\n", "")
    ):
        self.looks, self.ran, self.time = list(looks), t.cast("list[str]", []), 0.0
        self.others = {"sacct": sacct, "squeue": squeue, "sbatch": sbatch, "scancel": NOTHING}
        self.looked: list[str] = []
        self.then: dict[str, Answer] = {}  # answers after a job was submitted

    def __call__(self, argv: list[str]) -> Answer:
        self.ran.append(argv[0])
        if argv[0] == "scontrol":
            self.looked.append(argv[-1])
        if argv[0] == "sbatch":
            self.others.update(self.then)
        if argv[0] == "scontrol":
            return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return self.others[argv[0]]

    def pause(self, seconds: float) -> None:
        self.time += seconds

    def client(self) -> JobClient:
        return JobClient(self, clock=lambda: self.time, sleep=self.pause)


def write(text: str, path: str | None) -> str:
    if path:
        Path(path).write_text(text, encoding="utf-8")
    return path or "/tmp/script"


def wanted(record: Path | None = None) -> JobSpec:
    return JobSpec(NAME, "#!/bin/sh\n", [], {}, {}, None, None, str(record) if record else None)


def job_request(state: str = "completed", dry: bool = False, timeout: float = 600) -> JobRequest:
    return JobRequest(state, timeout, 5, dry)


@pytest.mark.parametrize(
    ("looks", "sacct", "state", "exit_code"),
    [
        ([PENDING, RUNNING, DONE], NOTHING, "COMPLETED", 0),
        ([RUNNING, AWAY, AWAY, AWAY, DONE], NOTHING, "COMPLETED", 0),
        ([RUNNING, shown("NODE_FAIL")], NOTHING, "NODE_FAIL", 0),
        ([RUNNING, REQUEUED, RUNNING, DONE], (0, ACCOUNTED.replace("COMPLETED", "NODE_FAIL"), ""), "COMPLETED", 0),
        ([RUNNING, shown("COMPLETING"), FAILED], NOTHING, "FAILED", 3),
        ([RUNNING, CANCELLED], NOTHING, "CANCELLED", 0),
        ([RUNNING, GONE], (0, ACCOUNTED, ""), "COMPLETED", 0),
        ([GONE, GONE, RUNNING, DONE], NOTHING, "COMPLETED", 0),
        ([RUNNING, *[AWAY] * 20, GONE, DONE], NOTHING, "COMPLETED", 0),
    ],
    ids=[
        "usual",
        "controller away",
        "node lost",
        "requeued",
        "failed",
        "cancelled",
        "purged",
        "seen late",
        "denied after an outage",
    ],
)
def test_a_job_is_followed_to_its_end(looks: list[Answer], sacct: Answer, state: str, exit_code: int) -> None:
    slurm = Slurm(*looks, sacct=sacct)
    changed, job = ensure(slurm.client(), wanted(), job_request(), write)
    assert (changed, job and job.state, job and job.exit_code) == (True, state, exit_code)
    assert slurm.ran.count("sbatch") == 1


@pytest.mark.parametrize(
    ("looks", "sacct", "error", "said"),
    [
        ([RUNNING], NOTHING, JobTimeoutError, "not done after 600 s"),
        ([RUNNING, AWAY], NOTHING, JobTimeoutError, "Unable to contact"),
        ([RUNNING, GONE], (1, "", "sacct: error: connection refused"), JobTimeoutError, "connection refused"),
        ([RUNNING, GONE], NOTHING, JobLostError, "no longer knows job 1"),
        ([RUNNING, GONE], DISABLED, JobLostError, "no longer knows job 1"),
    ],
    ids=["too slow", "controller gone", "accounting gone", "forgotten", "no accounting"],
)
def test_a_job_that_cannot_be_followed(looks: list[Answer], sacct: Answer, error: type[SlurmError], said: str) -> None:
    slurm = Slurm(*looks, sacct=sacct)
    with pytest.raises(error, match=re.escape(said)) as caught:
        ensure(slurm.client(), wanted(), job_request(), write)
    assert slurm.time <= 600
    assert "scancel" not in slurm.ran
    if isinstance(caught.value, JobTimeoutError):
        assert caught.value.job and caught.value.job.state == "RUNNING"


def test_submitted_does_not_wait_for_the_end() -> None:
    changed, job = ensure(Slurm(PENDING).client(), wanted(), job_request("submitted"), write)
    assert (changed, job and job.state) == (True, "PENDING")


def test_a_refusal_tells_what_was_tried() -> None:
    with pytest.raises(SlurmError, match=r"Invalid account.*tried: sbatch --parsable"):
        ensure(Slurm(PENDING, sbatch=DENIED).client(), wanted(), job_request(), write)


def left_behind(state: str | None, spec: JobSpec, **change: t.Any) -> None:
    """Write the record that an earlier run of this job left in a state, or of a job with other inputs."""
    if state and spec.record:
        job = from_scontrol(shown(state)[1])._replace(comment=tag(spec))
        Path(spec.record).write_text(dump_record(spec._replace(**change), job), encoding="utf-8")


MINE: Answer = (0, SEPARATOR.join(["1", "{tag}", NAME]) + "\n", "")
OTHERS: Answer = (0, SEPARATOR.join(["1", "hpcai:other", NAME]) + "\n", "")


@pytest.mark.parametrize(
    ("state", "looks", "squeue", "submits"),
    [
        (None, [DONE], NOTHING, True),
        (None, [RUNNING, DONE], MINE, False),
        (None, [DONE], OTHERS, True),
        ("COMPLETED", [AWAY], AWAY, False),
        ("PENDING", [AWAY, RUNNING, DONE], NOTHING, False),
        ("RUNNING", [DONE], NOTHING, False),
        ("RUNNING", [GONE, DONE], NOTHING, True),
        ("RUNNING", [FAILED, DONE], NOTHING, True),
        ("RUNNING", [shown("RUNNING", name="other"), DONE], NOTHING, True),
        ("FAILED", [DONE], NOTHING, True),
        ("CANCELLED", [DONE], NOTHING, True),
    ],
    ids="new|unrecorded but queued|foreign in queue|completed|still going|ended since|lost|failed since|"
    "id reused|failed|cancelled".split("|"),
)
def test_a_record_makes_a_job_happen_once(
    tmp_path: Path, state: str | None, looks: list[Answer], squeue: Answer, submits: bool
) -> None:
    spec = wanted(tmp_path / "job.json")
    left_behind(state, spec)
    slurm = Slurm(*looks, squeue=(squeue[0], squeue[1].replace("{tag}", tag(spec)), squeue[2]))
    changed, job = ensure(slurm.client(), spec, job_request(), write)
    assert (changed, "sbatch" in slurm.ran, job and job.state) == (submits, submits, "COMPLETED")
    if state == "COMPLETED":
        assert slurm.ran == []
    again = Slurm(AWAY)
    assert ensure(again.client(), spec, job_request(), write) == (False, job)
    assert again.ran == []


@pytest.mark.parametrize(
    ("queued", "state", "follows"),
    [((3, 1), None, 1), ((3, 7), None, 3), ((3,), None, 3), ((1, 3), "FAILED", 3)],
    ids=["another run was first", "this one was", "alone", "the one that failed before is leaving"],
)
def test_of_two_runs_that_submit_at_once_the_first_job_stays(
    tmp_path: Path, queued: tuple[int, ...], state: str | None, follows: int
) -> None:
    """A task whose connection was lost may still run when it is begun again: neither saw the job of the other."""
    spec = wanted(tmp_path / "job.json")
    left_behind(state, spec)
    slurm = Slurm(DONE, sbatch=(0, "3\n", ""))
    listed = "".join(SEPARATOR.join([str(job), tag(spec), NAME]) + "\n" for job in queued)
    slurm.then = {"squeue": (0, listed, "")}
    changed, dummy = ensure(slurm.client(), spec, job_request(), write)
    assert (changed, "scancel" in slurm.ran) == (follows == 3, follows != 3)
    assert slurm.looked[-1] == str(follows)


def test_other_inputs_are_another_job(tmp_path: Path) -> None:
    spec = wanted(tmp_path / "job.json")
    left_behind("COMPLETED", spec, script="#!/bin/sh\nolder\n")
    assert ensure(Slurm(DONE).client(), spec, job_request(), write)[0]


def test_a_job_that_runs_is_recorded_before_it_is_awaited(tmp_path: Path) -> None:
    spec = wanted(tmp_path / "job.json")
    with pytest.raises(JobTimeoutError):
        ensure(Slurm(RUNNING).client(), spec, job_request(timeout=1), write)
    slurm = Slurm(RUNNING, DONE)
    assert ensure(slurm.client(), spec, job_request(), write)[0] is False
    assert "sbatch" not in slurm.ran


@pytest.mark.parametrize(
    ("state", "changes"), [(None, True), ("COMPLETED", False), ("RUNNING", False), ("FAILED", True)]
)
def test_check_mode_neither_submits_nor_writes(tmp_path: Path, state: str | None, changes: bool) -> None:
    spec = wanted(tmp_path / "job.json")
    left_behind(state, spec)
    before = [path.read_bytes() for path in tmp_path.iterdir()]
    slurm = Slurm(RUNNING)
    changed, job = ensure(slurm.client(), spec, job_request(dry=True), write)
    assert (changed, job is None, "sbatch" in slurm.ran) == (changes, changes, False)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == before


@pytest.mark.parametrize(
    ("state", "looks", "cancelled", "changes"),
    [
        (None, [GONE], [], False),
        ("COMPLETED", [GONE], [], True),
        ("RUNNING", [RUNNING, CANCELLED], [1], True),
        ("RUNNING", [GONE], [], True),
        ("RUNNING", [shown("RUNNING", name="other")], [], True),
    ],
    ids=["never was", "completed", "running", "lost", "id reused"],
)
@pytest.mark.parametrize("dry", [False, True])
def test_absent(
    tmp_path: Path, state: str | None, looks: list[Answer], cancelled: list[int], changes: bool, dry: bool
) -> None:
    spec = wanted(tmp_path / "job.json")
    left_behind(state, spec)
    slurm = Slurm(*looks)
    assert remove(slurm.client(), spec, job_request("absent", dry=dry)) == (changes, cancelled)
    assert ("scancel" in slurm.ran) is (bool(cancelled) and not dry)
    assert (tmp_path / "job.json").exists() is (dry and state is not None)


def test_absent_without_a_record_goes_by_name() -> None:
    queue = "".join(SEPARATOR.join([str(number), "(null)", name]) + "\n" for number, name in [(4, NAME), (5, "other")])
    assert remove(Slurm(CANCELLED, squeue=(0, queue, "")).client(), wanted(), job_request("absent")) == (True, [4])


@pytest.mark.parametrize(
    ("error", "fails"),
    [("Invalid job id specified", False), ("Job/step already completing or completed", False), ("Access denied", True)],
)
def test_cancelling_what_just_ended_is_no_error(error: str, fails: bool) -> None:
    slurm = Slurm(DONE)
    slurm.others["scancel"] = (1, "", f"scancel: error: Kill job error on job id 1: {error}")
    if fails:
        with pytest.raises(SlurmError, match="Access denied"):
            slurm.client().cancel(1)
    else:
        slurm.client().cancel(1)


def test_report_shows_how_it_ended_and_what_it_printed_last(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    output.write_text("".join(f"line {number}\n" for number in range(100)), encoding="utf-8")
    job = JobState(7, "train", "FAILED", exit_code=3, signal=0, nodes=("c1",), output=str(output))
    assert tail(job.output, lines=2) == "line 98\nline 99"
    assert "is FAILED on c1, exit code 3, signal 0" in report(job, tail(job.output))
    assert report(job, tail(job.output)).endswith("line 99")
    assert "empty or not readable" in report(job._replace(output="/nowhere"), tail("/nowhere"))
