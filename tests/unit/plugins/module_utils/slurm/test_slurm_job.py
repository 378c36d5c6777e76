# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import job
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SEPARATOR, SlurmError

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm"
DOWN_OR_RESERVED = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
SPEC = job.JobSpec("train", "#!/bin/bash\nsrun hostname\n", [], {}, {}, None, None, None)


def live(release: str) -> list[job.JobState]:
    lines = (FIXTURES / f"scontrol-jobs-{release}.txt").read_text(encoding="utf-8").splitlines()
    return [job.from_scontrol(line) for line in lines if line.strip()]


def accounted(release: str, job_id: int) -> job.JobState | None:
    return job.from_sacct((FIXTURES / f"sacct-{release}.txt").read_text(encoding="utf-8"), job_id)


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_the_controller_and_accounting_agree_on_jobs_that_ended(release: str) -> None:
    ended = [found for found in live(release) if found.final]
    assert [(found.name, found.state, found.exit_code, found.nodes) for found in ended] == [
        ("ok job|x", "COMPLETED", 0, ("c1",)),
        ("bad", "FAILED", 3, ("c1",)),
    ]
    assert [(found.output, found.comment) for found in ended] == [
        ("/home/trainer/slurm-1.out", None),
        ("/home/trainer/slurm-2.out", "a b=c"),
    ]
    for found in ended:
        kept_by_the_controller_alone = {"output": None, "comment": None, "reason": None}
        assert accounted(release, found.job_id) == found._replace(**kept_by_the_controller_alone)


@pytest.mark.parametrize(
    ("release", "states", "reasons"),
    [
        ("22.05", ["PENDING", "PENDING"], [None, "ReqNodeNotAvail, UnavailableNodes:c[2-3]"]),
        ("24.11", ["RUNNING", "PENDING"], [None, DOWN_OR_RESERVED]),
        ("26.05", ["RUNNING", "PENDING"], [None, DOWN_OR_RESERVED]),
    ],
)
def test_jobs_that_wait_or_run(release: str, states: list[str], reasons: list[str | None]) -> None:
    waiting = [found for found in live(release) if not found.final]
    assert [found.state for found in waiting] == states
    assert [found.reason for found in waiting] == reasons
    assert waiting[1].nodes == ()


@pytest.mark.parametrize(
    ("shown", "expected", "code"),
    [
        ("CANCELLED by 2001", "CANCELLED", "0:15"),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY", "0:125"),
        ("NODE_FAIL", "NODE_FAIL", "1:0"),
    ],
)
def test_accounting_writes_states_in_its_own_way(shown: str, expected: str, code: str) -> None:
    row = SEPARATOR.join(["9", shown, code, "c[1-2]", "61", "Unknown", "Unknown", "Unknown", "None", f"a{SEPARATOR}b"])
    found = job.from_sacct(f"{row}\n", 9)
    assert found is not None
    assert (found.state, found.final, found.nodes, found.elapsed) == (expected, True, ("c1", "c2"), 61)
    assert f"{found.exit_code}:{found.signal}" == code
    assert found.name == f"a{SEPARATOR}b"
    assert job.from_sacct(f"{row}\n", 8) is None


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/s/slurm-%j.out", "/s/slurm-7.out"),
        ("/s/%x/%u-%4j-%N", "/s/train/anna-0007-c1"),
        ("/s/100%%", "/s/100%"),
        ("/s/%q", "/s/%q"),
        ("(null)", None),
        (None, None),
    ],
)
def test_output_path(pattern: str | None, path: str | None) -> None:
    assert job.output_path(pattern, 7, "train", "anna", ["c1", "c2"]) == path


@pytest.mark.parametrize(
    "text", ["", "slurm_load_jobs error: x", "JobId=1 JobName=x UserId=a(1) GroupId=a(1) ExitCode=0:0"]
)
def test_what_is_no_job_is_refused(text: str) -> None:
    with pytest.raises(SlurmError):
        job.from_scontrol(text)


@pytest.mark.parametrize(
    ("change", "arguments"),
    [
        ({}, []),
        ({"chdir": "/s", "output": "/s/%j"}, ["--chdir=/s", "--output=/s/%j"]),
        ({"options": {"ntasks_per_node": 2, "exclusive": True}}, ["--exclusive", "--ntasks-per-node=2"]),
        ({"options": {"requeue": False, "qos": None, "gres": ["gpu:1", "nic"]}}, ["--gres=gpu:1,nic"]),
        ({"options": {"comment": "mine"}}, ["--comment=mine"]),
    ],
)
def test_arguments(change: dict[str, t.Any], arguments: list[str]) -> None:
    spec = SPEC._replace(**change)
    own = [] if "comment" in spec.options else [f"--comment={job.tag(spec)}"]
    assert sorted(job.arguments(spec)) == sorted(["--parsable", "--job-name=train", *own, *arguments])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"script": "srun hostname"}, "start with '#!'"),
        ({"script": "#!/bin/sh\n#SBATCH --time=1 --array=1-4\n"}, "job array"),
        ({"script": "#!/bin/sh\n#SBATCH -a 1-4\n"}, "job array"),
        ({"options": {"n": 2}}, "long sbatch option"),
        ({"options": {"--nodes": 2}}, "long sbatch option"),
        *[
            ({"options": {name: "x"}}, "cannot be set here")
            for name in ("array", "job_name", "wrap", "clusters", "output")
        ],
    ],
)
def test_what_would_be_misread_is_refused(change: dict[str, t.Any], said: str) -> None:
    with pytest.raises(SlurmError, match=said):
        job.check(SPEC._replace(**change))


def test_a_usual_script_is_accepted() -> None:
    job.check(
        SPEC._replace(script="#!/bin/sh\n#SBATCH --job-name=not-an-array\n#SBATCH -A lab\n", options={"time": "1:0"})
    )


def test_every_input_makes_another_job() -> None:
    changes: list[dict[str, t.Any]] = [{"name": "x"}, {"script": "#!x"}, {"args": ["1"]}, {"options": {"nodes": 1}}]
    changes += [{"environment": {"A": "1"}}, {"chdir": "/x"}, {"output": "x"}, {"record": "x"}]
    digests = {job.digest(SPEC._replace(**change)) for change in [{}, *changes]}
    assert len(digests) == len(changes) + 1


@pytest.mark.parametrize(("printed", "job_id"), [("12\n", 12), ("12;cluster\n", 12), ("sbatch: note\n12\n", 12)])
def test_submitted_id(printed: str, job_id: int) -> None:
    assert job.submitted_id(printed) == job_id


def test_records_round_trip_and_refuse_anything_else() -> None:
    found = live("24.11")[0]
    assert job.load_record(job.dump_record(SPEC, found), "r") == (job.digest(SPEC), found)
    for text in ["", "[]", "{}", '{"schema": 2, "digest": "x", "job": {}}', '{"schema": 1, "digest": "x", "job": {}}']:
        with pytest.raises(SlurmError, match="not a job record"):
            job.load_record(text, "r")
