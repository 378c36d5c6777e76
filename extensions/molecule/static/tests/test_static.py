# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came of bare machines: a certified cluster, with what the machine type says of it and nobody has typed."""

from __future__ import annotations

import json

from cluster_lab import recap
from conftest import STATE, Site


def test_check_mode_on_bare_machines_went_to_its_end_and_said_what_it_cannot_know() -> None:
    text = (STATE / "check.txt").read_text()
    counts = recap(text)
    assert set(counts) >= {"ctl", "c1", "c2"}
    assert all(host["failed"] == host["unreachable"] == 0 for host in counts.values()), counts
    assert all(counts[name]["changed"] > 5 for name in ("ctl", "c1", "c2")), counts
    for words in ("has no Slurm yet", "+NodeName=c[1-2] ", "Gres=gpu:h100:8", "File=/dev/nvidia[0-7]"):
        assert words in text, words


def test_the_user_was_made_with_one_number(lab: Site) -> None:
    assert {lab.root("id -u trainer; id -g trainer", name) for name in ("ctl", "c1", "c2")} == {"2000\n2000"}


def test_gpus_are_slurm_s_as_the_machine_type_says(lab: Site) -> None:
    assert lab.root("sinfo -N -h -o '%N %G'").splitlines() == ["c1 gpu:h100:8", "c2 gpu:h100:8"]
    result = lab.run("srun --gpus=2 sh -c 'nvidia-smi -L | wc -l'")
    assert result.stdout.strip() == "2", result.stderr


def test_pmix_is_there_although_no_image_brought_it(lab: Site) -> None:
    result = lab.run("srun -N2 --ntasks-per-node=8 --gpus-per-node=8 --mpi=pmix all_reduce_perf -b 8G -e 8G")
    assert result.rc == 0, result.stderr
    assert result.stdout.count("#  Rank ") == 16


def test_every_node_is_certified_through_nccl() -> None:
    certificate = json.loads((STATE / "report/certification/converge/certificate.json").read_text())
    assert {node["status"] for node in certificate["nodes"].values()} <= {"cleared", "watched"}
    assert certificate["planned"] == certificate["reached"] == 2
    records = [
        json.loads(line) for line in (STATE / "report/certification/converge/records.jsonl").read_text().splitlines()
    ]
    assert any(record["check"] == "nccl_tests" and record["verdict"] == "pass" for record in records)


def test_training_had_all_gpus(lab: Site) -> None:
    jobs = lab.run("sacct -X -n -P --name=ddp_smoke -o State,AllocTRES").stdout.split()
    assert any(job.startswith("COMPLETED|") and "gres/gpu=16" in job for job in jobs), jobs


def test_the_report_shows_it() -> None:
    html = (STATE / "report/report.html").read_text()
    for words in ("dgx_h100", "gpu_bandwidth", "all_reduce", "H100 80GB HBM3"):
        assert words in html, words
