# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import copy
import hashlib
import math
import random
import re

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet import (
    bands,
    certificate,
    compose,
    data,
    distributions,
    front,
    ladder,
    read,
    squares,
    strips,
    suspicion,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.columns import (
    ABSENT,
    CODES,
    NO_RESULT,
    Columns,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import Fleet, fleet
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.rounds import read_rounds
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.page import page
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.plugin_utils.report_fleet import CHECKS, Json, invented
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.plugin_utils.test_report import Reader, poison

SIZES = [1, 4, 65, 300]


def drawn(nodes: int, **changes: object) -> str:
    made = invented(nodes)
    told = {**made.certificate, **changes}
    return page({}, read.certified(told, made.records()))


def small(checks: list[tuple[str, str, str]], told: Json | None = None) -> Fleet:
    """Return a fleet of (node, check, verdict)."""
    columns = Columns()
    for node, check, verdict in checks:
        columns.add({"node": node, "check": check, "verdict": verdict, "reason": f"{check} is {verdict}"})
    return fleet(told or {}, columns)


@pytest.mark.parametrize("nodes", SIZES)
def test_page_is_well_formed_and_only_its_own_script_may_run(nodes: int) -> None:
    text = drawn(nodes)
    read_ = Reader(text)
    assert len(read_.ids) == len(set(read_.ids))
    assert {attrs["href"][1:] for tag, attrs in read_.tags if tag == "a"} <= set(read_.ids)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    policy = next(a["content"] for t, a in read_.tags if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert len(scripts) == 1 and f"script-src 'sha256-{digest}'" in policy and "unsafe-inline'" in policy
    assert "script-src 'unsafe-inline'" not in policy and policy.startswith("default-src 'none'")
    assert not [attrs for tag, attrs in read_.tags if "src" in attrs or tag in ("img", "link", "iframe")]
    outside = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert not re.search(r"url\(|@import|https?://", outside.replace("http://www.w3.org/2000/svg", ""))


@pytest.mark.parametrize("nodes", [4, 300])
def test_hostile_text_stays_text(nodes: int) -> None:
    made = invented(nodes)
    records = [poison(record) for record in made.records()]
    told = poison(made.certificate)
    told["nodes"] = {f"{name}<b>": about for name, about in made.certificate["nodes"].items()}  # type: ignore[index]
    read_ = Reader(page({}, read.certified(told, records)))  # type: ignore[arg-type]
    assert [tag for tag, attrs in read_.tags].count("script") == 3
    assert "img" not in {tag for tag, attrs in read_.tags} and "b>" not in {tag for tag, attrs in read_.tags}
    assert not [key for tag, attrs in read_.tags for key in attrs if key.startswith("on")]


STRANGE = [None, "x", -1, 1e400, math.nan, [], {}, True, ["x"], {"x": []}]


@pytest.mark.parametrize("seed", range(60))
def test_page_bears_whatever_a_certificate_or_record_holds(seed: int) -> None:
    dice = random.Random(seed)
    made = invented(dice.choice([3, 5, 70]), checks=8)
    told, records = copy.deepcopy(made.certificate), list(made.records())
    for part in [told, *told["nodes"].values(), *told["rounds"], *told["ladder"], *told["findings"]]:
        for key in list(part):
            if part is not told or key != "nodes":
                part[key] = dice.choice(STRANGE) if dice.random() < 0.25 else part[key]
    for record in records:
        for key in list(record):
            record[key] = dice.choice(STRANGE) if dice.random() < 0.1 else record[key]
        for metric in record["metrics"] if isinstance(record["metrics"], list) else ():
            if isinstance(metric, dict):
                metric.update({key: dice.choice(STRANGE) for key in metric if dice.random() < 0.1})
    text = page({}, read.certified(told, records))
    Reader(text)
    assert "NaN" not in (re.search(r'id="fleet">(.*?)</script>', text) or ("", ""))[1]


@pytest.mark.parametrize("nodes", SIZES)
def test_every_node_is_in_the_page_once_and_numbers_add_up(nodes: int) -> None:
    made = invented(nodes)
    certified = read.certified(made.certificate, made.records())
    packed = data.data(certified.fleet)
    assert sorted(packed["nodes"]) == sorted(made.certificate["nodes"])
    assert len(packed["status"]) == nodes and sum(amount for dummy, dummy, amount in packed["leaves"]) == nodes
    assert sum(certified.fleet.amount(status) for status in ("drained", "untested", "watched", "cleared")) == nodes
    text = str(front.tiles(certified.fleet)).replace("\u202f", "")
    untested = len(made.certificate["untested"])
    assert f"{nodes} planned = {nodes - untested} reached + {untested} untested" in text


def unpack(packed: list, nodes: int) -> list[int]:
    codes = [packed[0]] * nodes
    for first, amount, code in packed[1:]:
        codes[first : first + amount] = [code] * amount
    return codes


def test_data_for_the_script_says_the_same_as_the_records() -> None:
    made = invented(200)
    found = read.certified(made.certificate, made.records()).fleet
    packed, places = data.data(found), found.places
    for record in made.records():
        code = unpack(packed["checks"][record["check"]], 200)[places[record["node"]]]
        assert code == CODES[record["verdict"]]
    column = next(c for c in packed["metrics"] if c["check"] == "gpu_bandwidth.h2d")
    for record in made.records():
        if record["check"] == "gpu_bandwidth.h2d":
            worst = min(record["metrics"], key=lambda metric: metric["value"])
            place = places[record["node"]]
            assert column["values"][place] == pytest.approx(worst["value"], rel=1e-3)
            assert column["devices"][1][place] == str(worst["gpu"])


def test_constant_columns_are_said_once() -> None:
    found = read.certified(invented(300).certificate, invented(300).records()).fleet
    column = next(c for c in data.data(found)["metrics"] if c["check"] == "gpu_count")
    assert (column["common"], set(column["other"].values())) == (0, {None})


def test_a_node_that_never_answered_is_no_finding_of_each_check() -> None:
    told = {"nodes": {"a": {"status": "cleared"}, "b": {"status": "untested", "reason": "down"}}, "untested": []}
    found = small([("a", "munge", "pass")], told)
    assert list(found.verdicts["munge"]) == [CODES["pass"], ABSENT]
    assert strips.tally(found.verdicts["munge"]) == {"pass": 1}


def test_a_missing_result_of_a_node_that_answered_is_an_error() -> None:
    found = small([("a", "munge", "pass"), ("b", "clock", "pass")])
    assert list(found.verdicts["munge"]) == [CODES["pass"], NO_RESULT]
    assert strips.tally(found.verdicts["munge"]) == {"error": 1, "pass": 1}
    drawn_ = str(strips.heat_map(found))
    assert "1 error" in drawn_ and "v-error" in drawn_


@pytest.mark.parametrize(
    "verdicts, status",
    [
        (["pass", "pass"], "cleared"),
        (["pass", "warn"], "watched"),
        (["pass", "fail"], "drained"),
        (["error"], "untested"),
        (["skipped"], "untested"),
        (["unjudged"], "untested"),
        (["marvellous"], "untested"),
    ],
)
def test_without_a_certificate_the_checks_speak_and_silence_is_no_pass(verdicts: list, status: str) -> None:
    found = small([("a", f"check{index}", verdict) for index, verdict in enumerate(verdicts)])
    assert [node.status for node in found.nodes] == [status]


def test_an_unknown_status_is_untested() -> None:
    assert small([("a", "x", "pass")], {"nodes": {"a": {"status": "splendid"}}}).nodes[0].status == "untested"


@pytest.mark.parametrize("amount", [1, 7, 420, 421, 4000, 16000])
def test_one_bad_node_is_visible_among_any_number(amount: int) -> None:
    codes = bytearray([CODES["pass"]]) * amount
    codes[amount // 2] = CODES["fail"]
    width = float(re.search(r"h([\d.]+)v10", str(strips.strip(bytes(codes))))[1])  # type: ignore[index]
    assert width / amount >= min(1, 1 / strips.VISIBLE) * 0.999


def test_runs_join_neighbours() -> None:
    assert strips.runs(bytes([0, 0, 4, 0, 4]), {0}) == [(0, 2), (3, 1)]


@pytest.mark.parametrize("leaves", [[1], [4, 4], [32] * 31 + [8], [16] * 250, [4000], [40] * 400, [200, 3, 1]])
def test_squares_do_not_overlap_nor_leave_the_map(leaves: list) -> None:
    begin = [sum(leaves[:index]) for index in range(len(leaves))]
    made = squares.layout([(f"leaf-{i}", first, amount) for i, (first, amount) in enumerate(zip(begin, leaves))])
    places = [made.place(block, i) for block in made.blocks for i in range(block.first, block.first + block.amount)]
    assert len(places) == len(set(places)) == sum(leaves)
    assert max(x for x, dummy in places) + made.side <= squares.WIDTH + 0.1 and min(x for x, dummy in places) >= 0
    ordered = sorted(places, key=lambda place: (place[1], place[0]))
    for (x, y), (right, below) in zip(ordered, ordered[1:]):
        assert y != below or right - x >= made.side


def test_outliers_are_named_and_the_healthy_are_not() -> None:
    made = invented(1000)
    found = read.certified(made.certificate, made.records()).fleet
    names = {series.column.check: series for series in found.series}
    one = distributions.spread(names["gpu_bandwidth.h2d"])
    assert one is not None
    slow = {row["node"] for row in made.records() if row["check"] == "gpu_bandwidth.h2d" and row["verdict"] == "fail"}
    assert {found.nodes[index].name for index, dummy in one.outliers} == slow
    temperature = distributions.spread(names["gpu_temperature"])
    assert temperature is not None and temperature.outliers == []


def test_bins_hold_every_value_in_the_window() -> None:
    assert sum(distributions.bins([0, 1, 2, 10], 0, 2)) == 3


def test_the_band_holds_nine_in_ten_and_the_slowest_have_names() -> None:
    curve = {8.0: [float(v) for v in range(100, 120)] + [50.0, None]}
    assert bands.slowest(curve, [8.0])[0] == 20
    made = invented(400)
    text = str(bands.curves(read.certified(made.certificate, made.records()).fleet))
    assert text.count('class="area band"') == 2
    slow = [name for name, about in made.certificate["nodes"].items() if "h2d" in about["reason"]]
    assert slow and all(name in text for name in slow)


def test_rounds_are_counted_in_their_stage_and_the_ladder_is_one() -> None:
    stages = ["reach", "pair", "pair", "confirm", "ladder", "ladder"]
    rows = [{"stage": stage, "round": 9, "tests": [{"nodes": ["a"], "verdict": "ok"}]} for stage in stages]
    found = read_rounds({"rounds": rows})
    assert [(one.stage, one.number, len(one.tests)) for one in found] == [
        ("reach", 1, 1),
        ("pair", 1, 1),
        ("pair", 2, 1),
        ("confirm", 1, 1),
        ("ladder", 1, 2),
    ]


@pytest.mark.parametrize(
    "verdict, outcome", [("pass", "pass"), ("bad", "fail"), ("infra", "error"), (None, "error"), ("fine", "error")]
)
def test_a_test_without_a_known_verdict_is_an_error(verdict: object, outcome: str) -> None:
    assert read_rounds({"rounds": [{"tests": [{"verdict": verdict}]}]})[0].tests[0].outcome == outcome


def test_suspicion_begins_low_and_ends_where_the_certificate_says() -> None:
    rows = [{"stage": "pair", "suspects": suspects} for suspects in ({}, {"a": 0.4}, {"a": 0.97}, {})]
    assert suspicion.paths(read_rounds({"rounds": rows}), {"a": 0.01}) == {
        "a": [(0, suspicion.LOW), (1, 0.4), (2, 0.97), (3, 0.01)]
    }
    assert suspicion.height(0.95) < suspicion.height(0.5) < suspicion.height(0.004)


def test_a_rung_shows_its_slowest_group_and_names_what_is_wrong() -> None:
    rows = [
        {"nodes": 32, "hostlist": f"n[{i}]", "collective": "all_reduce", "value": value, "verdict": verdict}
        for i, (value, verdict) in enumerate([(380.0, "pass"), (243.2, "fail"), (381.0, "pass")])
    ]
    text = str(ladder.ladder(fleet({"ladder": rows}, Columns())))
    assert "243" in text and "3 groups, the slowest shown; 1 not as expected: n[1]" in text


def test_certificates_over_time_tell_what_changed_and_who_came_back() -> None:
    def told(run: str, time: float, **statuses: str) -> Json:
        nodes = {name: {"status": status, "physical_host": f"host-{name}"} for name, status in statuses.items()}
        return {"run": run, "time": time, "nodes": nodes}

    now = told("c", 3, a="cleared", b="drained")
    before = [told("b", 2, a="drained", b="cleared"), told("a", 1, a="drained", b="cleared")]
    text = str(certificate.earlier(fleet(now, Columns()), before))
    assert "newly out: b; back: a" in text and "host-a (2 times)" in text


@pytest.mark.parametrize(
    "changes, title",
    [
        ({}, "Certified with exceptions"),
        ({"findings": [{"kind": "population", "text": "all are slow"}]}, "Not certified"),
    ],
)
def test_a_fleet_that_is_off_as_a_whole_is_not_certified(changes: Json, title: str) -> None:
    assert title in drawn(70, **changes)


def test_a_fleet_without_exception_is_certified() -> None:
    nodes = {name: {"status": "cleared"} for name in ("a", "b")}
    assert front.verdict(fleet({"nodes": nodes}, Columns())) == "pass"
    assert front.verdict(fleet({"nodes": {}}, Columns())) == "fail"


def test_records_of_another_run_are_told() -> None:
    made = invented(70)
    certified = read.certified(made.certificate, made.records())
    assert certified.genuine is None and compose.FOREIGN not in page({}, certified)
    wrong = read.Gather()
    wrong.sha256 = "0" * 64
    assert compose.FOREIGN in page({}, wrong.certified(made.certificate))


def test_few_nodes_have_a_matrix_and_many_checks_strips() -> None:
    for checks, wanted in ((20, "Nodes"), (len(CHECKS), "Checks by nodes")):
        made = invented(6, checks=checks)
        assert f"<h2>{wanted}</h2>" in page({}, read.certified(made.certificate, made.records()))


def test_page_stays_small() -> None:
    assert len(drawn(1000)) < 500_000
