# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpcai-agent certificate: the same certificate from the raw records, the plan, and why a node was judged."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import typing as t
from pathlib import Path

import pytest
from simulated import EXPECT, Fault, Fleet

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import judge, metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import campaign, command, evidence
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.campaign import CampaignPlan


def _written(folder: Path, fleet: Fleet) -> dict[str, t.Any]:
    """Leave what a run leaves in its directory, the records in no order, and return the certificate."""
    request = {"fleet": fleet.facts(), "options": {"seed": fleet.seed, "run": "r1"}, "digests": {"agent_sha256": "a"}}
    campaign = CampaignPlan(request["fleet"], request["options"])
    records: list[dict[str, t.Any]] = []
    while True:
        batch = campaign.next()
        if batch is None:
            break
        for test in batch["tests"]:
            found = evidence.stamp(test["id"], fleet.answer(test))
            records += found
            campaign.take(test["id"], found)
    random.Random(1).shuffle(records)
    text = "".join(f"{json.dumps(one)}\n" for one in records)
    digests = {"agent_sha256": "a", "records_sha256": hashlib.sha256(text.encode()).hexdigest()}
    certificate = campaign.certificate(**digests)
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "records.jsonl").write_text(text)
    (folder / "certificate.json").write_text(json.dumps(certificate, indent=1, sort_keys=True))
    return certificate


@pytest.fixture
def run(tmp_path: Path) -> Path:
    faults = {"n00005": Fault("slow"), "n00009": Fault("dead"), "n00020": Fault("flaky", 0.5)}
    _written(tmp_path, Fleet(48, 3, leaf=8, pod=16, noise=0.02, faults=faults))
    return tmp_path


def test_a_certificate_is_made_again_bit_by_bit(run, capsys):
    assert command.main(["rejudge", str(run)]) == 0
    assert capsys.readouterr().out == (run / "certificate.json").read_text() + "\n"


def test_a_certificate_that_was_touched_is_told(run, capsys):
    found = json.loads((run / "certificate.json").read_text())
    found["nodes"]["n00005"]["status"] = "cleared"
    (run / "certificate.json").write_text(json.dumps(found))
    assert command.main(["rejudge", str(run)]) == 1
    assert "something else in: nodes" in capsys.readouterr().err


def test_records_that_were_touched_are_told(run, capsys):
    text = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text(text.replace('"verdict": "fail"', '"verdict": "pass"'))
    assert command.main(["rejudge", str(run)]) == 1
    assert "records_sha256" in capsys.readouterr().err


def test_explain_and_plan(run, capsys):
    assert command.main(["explain", str(run), "n00005"]) == 0
    assert capsys.readouterr().out.startswith("n00005: drained, at fault with ")
    assert command.main(["plan", str(run)]) == 0
    assert "in all: 48 nodes" in capsys.readouterr().out


def test_another_profile_has_its_own_opinion(run, capsys, tmp_path):
    higher = [{**one, "value": 500.0} if one.get("min_nodes") else one for one in EXPECT]
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"profile": "stricter", "expect": higher}))
    assert command.main(["rejudge", str(run), "--profile", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["profile"] == "stricter"
    assert "population" in [one["kind"] for one in found["findings"]]
    assert {node["status"] for node in found["nodes"].values()} <= {"watched", "untested", "drained"}


@pytest.mark.parametrize("what", [["explain", "n9"], ["rejudge"]])
def test_what_cannot_be_read_is_said(what, run, capsys):
    assert command.main([what[0], str(run / "nowhere"), *what[1:]]) == 2
    assert "request.json is missing" in capsys.readouterr().err


def test_an_unknown_node_and_a_damaged_file_are_said(run, capsys):
    assert command.main(["explain", str(run), "n99999"]) == 2
    assert "n99999 is not in this certification" in capsys.readouterr().err
    (run / "records.jsonl").write_text("{")
    assert command.main(["rejudge", str(run)]) == 2
    assert "records.jsonl is damaged" in capsys.readouterr().err


FLOOR = {"check": "gpu", "metric": "speed", "op": ">=", "value": 100, "unit": "GB/s", "source": "a profile"}
OWN = {"check": "gpu", "metric": "errors", "op": "==", "value": 0, "unit": "errors", "source": "the check"}


def _record(speed: float, errors: int) -> dict[str, t.Any]:
    metrics = [metric("speed", speed, "GB/s"), metric("errors", errors, "errors")]
    return record("gpu", "n1", time=1.0, metrics=judge("gpu", metrics, [FLOOR, OWN]))


def test_a_limit_of_the_check_itself_outlives_its_profile():
    free = campaign.rejudged(_record(90.0, 3), [], [FLOOR])
    assert (free["verdict"], free["reason"]) == ("fail", "errors: 3 errors, expected == 0")
    assert campaign.rejudged(_record(90.0, 0), [], [FLOOR])["verdict"] == "unjudged"
    assert campaign.rejudged(_record(90.0, 0), [{**FLOOR, "value": 80}], [FLOOR])["verdict"] == "pass"
    assert campaign.rejudged(_record(120.0, 0), [{**FLOOR, "value": 200}], [FLOOR])["verdict"] == "fail"


def test_what_no_number_decided_stays():
    fact = record("xid", "n1", time=1.0, verdict="fail", reason="XID 79")
    assert campaign.rejudged(copy.deepcopy(fact), [FLOOR], []) == fact
