# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gzip
import hashlib
import json
import math
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._exports import write
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._exports.junit import Junit
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._exports.prometheus import Prometheus
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._exports.write import json_line
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet import read
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import VERDICTS
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.plugin_utils.report_fleet import Json, invented, store

HOSTILE = "</testsuite>]]>&\"'\\\n\x00\x0b\ud800\ufffe{}"
SAMPLE = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_]\w*="(\\.|[^"\\\n])*",?)+\})? [-+.\deE]+\Z')


SCHEMA = Path(__file__).parents[2] / "fixtures/junit/junit.xsd"


def junit_text(records: list[Json]) -> str:
    made = Junit("lab")
    for record in records:
        made.add(record)
    return "".join(made.text())


def junit(records: list[Json]) -> ET.Element:
    return ET.fromstring(junit_text(records).encode())


def samples(records: list[Json], told: Json | None = None, values: bool = False) -> list[str]:
    made = Prometheus(values)
    for record in records:
        made.add(record)
    text = "".join(made.text(told))
    text.encode("utf-8")
    assert text.endswith("\n") or not text
    found = [row for row in text.splitlines() if not row.startswith("#")]
    assert not [row for row in found if not SAMPLE.match(row)]
    keys = [row.rpartition(" ")[0] for row in found]
    assert len(keys) == len(set(keys))
    return found


@pytest.mark.parametrize("verdict", [*VERDICTS, "marvellous", None])
def test_junit_lets_only_pass_and_warn_pass(verdict: object) -> None:
    root = junit([{"node": "a", "check": "munge", "verdict": verdict, "reason": "why", "seconds": 1.5}])
    case = root.find("testsuite/testcase")
    assert case is not None
    wanted = {"pass": [], "warn": ["system-out"], "fail": ["failure"], "unjudged": ["skipped"], "skipped": ["skipped"]}
    assert [child.tag for child in case] == wanted.get(str(verdict), ["error"])
    assert (case.get("classname"), case.get("name"), case.get("time")) == ("a", "munge", "1.500")


def test_junit_counts_what_it_lists() -> None:
    made = invented(40)
    root = junit(list(made.records()))
    for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert len(root.findall(f".//{tag}")) == sum(int(suite.get(kind, "")) for suite in root)
        assert kind == "skipped" or int(root.get(kind, "")) == len(root.findall(f".//{tag}"))
    assert int(root.get("tests", "")) == len(root.findall(".//testcase")) == len(list(made.records()))
    assert len(root.findall("testsuite")) == len({record["node"] for record in made.records()})


def hostile(dice: random.Random) -> list[Json]:
    """Records of which values are anything."""
    values = [HOSTILE, None, math.nan, math.inf, -1, [], {}, True, ["x"], {HOSTILE: HOSTILE}]
    records = list(invented(4, checks=10).records())
    for record in records:
        for part in [record, *record["metrics"]]:
            part.update({key: dice.choice(values) for key in list(part) if dice.random() < 0.3})
    return [
        *records,
        {},
        {"check": HOSTILE, "verdict": "pass", "node": HOSTILE, "metrics": [{HOSTILE: 1, "value": 1, "expected": 1}]},
    ]


@pytest.mark.parametrize("seed", range(10))
def test_junit_is_valid_by_what_its_readers_validate(seed: int) -> None:
    schema = pytest.importorskip("xmlschema").XMLSchema(SCHEMA)
    for records in ([], list(invented(20).records()), hostile(random.Random(seed))):
        schema.validate(junit_text(records))
    for broken in ('tests="0" skipped="0"', 'tests="many"', 'run="7"'):
        assert not schema.is_valid(f"<testsuites {broken}/>")


def test_junit_tells_two_checks_of_a_name_apart() -> None:
    rows = [
        {"node": "a", "check": "nccl_tests", "verdict": "pass", "context": {"collective": op}, "scope": {"gpu": 3}}
        for op in ("all_reduce", "alltoall")
    ]
    names = [case.get("name") for case in junit(rows).iter("testcase")]
    assert names == ["nccl_tests all_reduce gpu=3", "nccl_tests alltoall gpu=3"]


@pytest.mark.parametrize("seed", range(40))
def test_exports_bear_hostile_records(seed: int) -> None:
    records = hostile(random.Random(seed))
    passed = sum(record.get("verdict") == "pass" for record in records)
    root = junit(records)
    clean = [case for case in root.iter("testcase") if len(case) == 0]
    assert len(clean) == passed
    samples(records, {"nodes": {HOSTILE: {"status": HOSTILE, "posterior": math.nan}}}, values=True)


@pytest.mark.parametrize("seed", range(20))
def test_prometheus_itself_reads_every_series(seed: int) -> None:
    """By the parser of Prometheus's own Python client, with labels and values as they were."""
    parser = pytest.importorskip("prometheus_client.parser")
    draw = random.Random(seed)
    verdicts = ["fail", "error", "pass"]
    names = ["n1", 'a"b\\c', "with\nbreak", "gpu-ü"]
    metrics = [{"name": "h2d", "value": draw.choice([1.5, 1e-9, 2e12, 7]), "unit": "GB/s", "verdict": "fail", "gpu": 3}]
    records = [
        {
            "node": name,
            "check": "gpu_bandwidth",
            "verdict": draw.choice(verdicts),
            "reason": HOSTILE,
            "metrics": metrics,
        }
        for name in names
    ]
    made = Prometheus(values=True)
    for record in records:
        made.add(record)
    text = "".join(made.text(None))
    families = list(parser.text_string_to_metric_families(text))
    series = [sample for family in families for sample in family.samples]
    assert len(series) == len([row for row in text.splitlines() if row and not row.startswith("#")])
    assert {sample.labels["node"] for sample in series if "node" in sample.labels} >= {
        record["node"] for record in records if record["verdict"] != "pass"
    }
    assert all(family.documentation and family.type != "unknown" for family in families)


def test_prometheus_has_sums_and_what_did_not_pass() -> None:
    made = invented(100)
    records = list(made.records())
    found = samples(records, made.certificate)
    bad = [record for record in records if record["verdict"] in ("fail", "error", "warn")]
    assert len([row for row in found if row.startswith("hpcai_check_finding{")]) == len(bad)
    sums = [int(float(row.rpartition(" ")[2])) for row in found if row.startswith("hpcai_checks{")]
    assert sum(sums) == len(records)
    nodes = [row for row in found if row.startswith("hpcai_certificate_nodes{")]
    assert sum(int(row.rpartition(" ")[2]) for row in nodes) == 100
    assert not [row for row in found if row.startswith("hpcai_check_value")]


def test_prometheus_values_are_those_of_judged_metrics() -> None:
    metrics = [
        {"name": "h2d", "value": 55.1, "unit": "GB/s", "expected": ">= 48", "gpu": 3},
        {"name": "d2h", "value": 54.0, "unit": "GB/s", "expected": None, "gpu": 3},
    ]
    found = samples([{"node": "a", "check": "c", "verdict": "pass", "metrics": metrics}], values=True)
    wanted = 'hpcai_check_value{gpu="3",node="a",check="c",metric="h2d",unit="GB/s"} 55.1'
    assert [row for row in found if row.startswith("hpcai_check_value")] == [wanted]


def test_json_lines_are_sorted_and_one_each() -> None:
    assert json_line({"b": 1, "a": "x\ny"}) == '{"a":"x\\ny","b":1}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store(invented(70, run="new"), tmp_path / "certification" / "new")
    older = invented(70, seed=2, run="old")
    older.certificate["time"] -= 1000
    store(older, tmp_path / "certification" / "old")
    return tmp_path


def everything(sources: write.Sources, dest: Path) -> dict[str, str]:
    write.write(sources, dest, "report", list(write.FORMATS))
    return {name: path.read_text() for name, path in write.paths(dest, "report", list(write.FORMATS)).items()}


def test_latest_certificate_counts_and_all_formats_say_the_same(folder: Path) -> None:
    sources = write.find({}, folder / "certification")
    assert sources.certificate and sources.certificate["run"] == "new"
    assert [told["run"] for told in sources.earlier] == ["old"]
    texts = everything(sources, folder)
    records = [json.loads(row) for row in texts["json_lines"].splitlines()]
    assert records == list(invented(70, run="new").records())
    assert ET.fromstring(texts["junit"]).get("tests") == str(len(records))
    assert "Certified with exceptions" in texts["html"] and 'id="certificates"' in texts["html"]
    assert 'run="new"' in texts["prometheus"]
    assert not list(folder.glob(".report*"))


def test_a_certificate_of_another_cluster_is_not_this_one_s(folder: Path) -> None:
    (cluster,) = {row["cluster"] for row in (invented(70, run="new").certificate, invented(70).certificate)}
    assert write.find({"cluster": "another"}, folder / "certification").certificate is None
    assert write.find({}, folder / "certification", "another").certificate is None  # it has no record yet
    assert write.find({"cluster": cluster}, folder / "certification").certificate


def test_a_flat_folder_and_a_gzip_do_as_well(tmp_path: Path) -> None:
    place = store(invented(5), tmp_path)
    plain = (place / "records.jsonl").read_bytes()
    before = everything(write.find({}, tmp_path), tmp_path / "a")
    (place / "records.jsonl.gz").write_bytes(gzip.compress(plain))
    (place / "records.jsonl").unlink()
    assert everything(write.find({}, tmp_path), tmp_path / "b") == before


def test_the_same_input_makes_the_same_files(folder: Path) -> None:
    sources = write.find({}, folder / "certification")
    assert everything(sources, folder / "a") == everything(sources, folder / "b")


def test_a_record_is_not_told_twice_when_the_run_record_has_it_too(tmp_path: Path) -> None:
    place = store(invented(3), tmp_path)
    rows = [json.loads(row) for row in (place / "records.jsonl").read_text().splitlines()]
    extra = {"run": "x", "node": "c9", "check": "munge", "verdict": "fail", "time": 5.0, "scope": {}}
    record = {"checks": [{**row, "run": "x"} for row in rows[:9]] + [extra]}
    texts = everything(write.find(record, tmp_path), tmp_path)
    assert len(texts["json_lines"].splitlines()) == len(rows) + 1


def test_a_cut_off_line_is_an_error_and_never_a_pass(tmp_path: Path) -> None:
    place = store(invented(3, checks=4), tmp_path)
    text = (place / "records.jsonl").read_text()
    (place / "records.jsonl").write_text(text[:-40] + "\n[1]\n\n")
    texts = everything(write.find({}, tmp_path), tmp_path)
    root = ET.fromstring(texts["junit"])
    broken = [case for case in root.iter("testcase") if case.get("name") == "records"]
    assert len(broken) == 2 and all(case[0].tag == "error" for case in broken)


def test_numbers_that_json_does_not_know_become_null(tmp_path: Path) -> None:
    place = store(invented(2, checks=4), tmp_path)
    with (place / "records.jsonl").open("a") as out:
        out.write('{"check": "x", "verdict": "pass", "time": NaN}\n{"check": "x", "verdict": "pass", "y": -Infinity}\n')
    text = everything(write.find({}, tmp_path), tmp_path)["json_lines"]
    rows = [json.loads(row, parse_constant=pytest.fail) for row in text.splitlines()]
    assert [rows[-2]["time"], rows[-1]["y"]] == [None, None]


def test_records_that_were_changed_are_told(tmp_path: Path) -> None:
    made = invented(70)
    place = store(made, tmp_path)
    right = hashlib.sha256((place / "records.jsonl").read_bytes()).hexdigest()
    for digest, words in ((right, "the records here are those it was made from"), ("0" * 64, "their digests differ")):
        told = {**made.certificate, "records_sha256": digest}
        (place / "certificate.json").write_text(json.dumps(told))
        assert words in everything(write.find({}, tmp_path), tmp_path)["html"]


def test_a_broken_certificate_is_refused_by_name(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"nodes": []}'):
        (tmp_path / "certificate.json").write_text(text)
        with pytest.raises(read.ReadError, match=re.escape(str(tmp_path / "certificate.json"))):
            write.find({}, tmp_path)


def test_of_two_copies_the_one_with_records_counts(folder: Path) -> None:
    place = folder / "certification"
    for name in ("certificate.json", "records.jsonl"):
        (place / name).write_bytes((place / "new" / name).read_bytes())
    (place / "new" / "records.jsonl").unlink()
    sources = write.find({}, place)
    assert sources.records == place / "records.jsonl"
    assert [told["run"] for told in sources.earlier] == ["old"]


def test_a_broken_certificate_beside_a_good_one_is_left_out_and_told(folder: Path) -> None:
    (folder / "certification" / "cut").mkdir()
    (folder / "certification" / "cut" / "certificate.json").write_text("{")
    sources = write.find({}, folder / "certification")
    assert sources.certificate and sources.certificate["run"] == "new"
    assert len(sources.broken) == 1 and "cut" in sources.broken[0]


def test_nothing_there_is_a_page_of_the_run_alone(tmp_path: Path) -> None:
    record = {"checks": [{"run": "a", "node": "c1", "check": "munge", "verdict": "pass"}]}
    texts = everything(write.find(record, tmp_path / "missing"), tmp_path)
    assert "<script>" not in texts["html"] and len(texts["json_lines"].splitlines()) == 1
