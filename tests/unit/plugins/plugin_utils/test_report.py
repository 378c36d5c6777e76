# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import html.parser
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report import curves, model, nodes, plot, stages, text
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import VOID, Html, el, esc, json_block
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.page import page

FIXTURES = Path(__file__).parents[3] / "unit" / "fixtures" / "report"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x00\ud800"


def record(name: str) -> dict:
    return json.loads((FIXTURES / f"{name}.json").read_text())


class Reader(html.parser.HTMLParser):
    """Read a page and insist that every element is closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for key, value in attrs if key == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def poison(value: object) -> object:
    """Put a hostile text in the place of every text."""
    if isinstance(value, dict):
        return {key: poison(item) for key, item in value.items()}
    if isinstance(value, list):
        return [poison(item) for item in value]
    return f"{value}{HOSTILE}" if isinstance(value, str) else value


@pytest.mark.parametrize("name", ["passed", "broken"])
def test_page_is_well_formed_and_loads_nothing(name: str) -> None:
    drawn = page(record(name))
    read = Reader(drawn)
    assert len(read.ids) == len(set(read.ids))
    anchors = {attrs["href"][1:] for tag, attrs in read.tags if tag == "a"}
    assert anchors <= set(read.ids)
    for tag, attrs in read.tags:
        assert "src" not in attrs
        assert tag not in ("img", "link", "iframe", "object")
        assert tag != "script" or attrs["type"] == "application/json"
    assert not re.search(r"url\(|@import|https?://", drawn)


@pytest.mark.parametrize("name", ["passed", "broken"])
def test_page_carries_its_record(name: str) -> None:
    found = re.search(r'<script type="application/json" id="run">(.*?)</script>', page(record(name)))
    assert found and json.loads(found[1]) == record(name)


@pytest.mark.parametrize("name", ["passed", "broken"])
def test_hostile_text_stays_text(name: str) -> None:
    drawn = page(poison(record(name)))  # type: ignore[arg-type]
    read = Reader(drawn)
    assert "img" not in {tag for tag, attrs in read.tags}
    assert [tag for tag, attrs in read.tags].count("script") == 1
    assert not [key for tag, attrs in read.tags for key in attrs if key.startswith("on")]
    drawn.encode("utf-8")


@pytest.mark.parametrize(
    "strange",
    [
        {},
        {"stages": None, "checks": "x", "training": 3, "nodes": []},
        {"stages": [{}], "checks": [{}], "training": [{}]},
        {"stages": [{"run": "a", "stage": "configure", "seconds": "long", "failures": [], "hosts": None}]},
        {"checks": [{"run": "a", "check": "x", "node": "c1", "verdict": "splendid", "metrics": [{}], "samples": [{}]}]},
        {"checks": [{"run": "a", "check": "x", "samples": [{"size": 8, "busbw": 0}], "metrics": "x", "scope": []}]},
        {"training": [{"run": "a", "loss": [1.0, 1.0], "ranks": [{}], "state": "COMPLETED"}]},
        {"training": [{"run": "a", "loss": [None, "x", -1, -2], "ranks": "x", "exit_code": 1}]},
    ],
)
def test_page_bears_what_is_missing_or_strange(strange: dict) -> None:
    Reader(page(strange))


def test_latest_run_is_shown_and_earlier_ones_are_history() -> None:
    found = model.runs(record("passed"))
    assert [run.name for run in found] == ["20261120T150401Z", "20261119T114240Z", "20261118T090312Z"]
    assert [run.verdict for run in found] == ["pass", "pass", "fail"]
    assert [stage["stage"] for stage in found[0].stages] == ["lab_up", "configure", "certify", "train"]
    assert found[0].headline == "All 15 checks passed"
    assert found[2].headline == "Stage configure failed on c2"


def test_broken_run_says_what_is_wrong() -> None:
    run = model.runs(record("broken"))[0]
    assert run.verdict == "fail"
    assert run.headline == "Stage certify failed on c3, c4"
    missing = model.untested(run)
    assert [row[:3] for row in missing if row[2] == "error"] == [
        ("slurmd", "c4", "error"),
        ("collective test: all_to_all", "the cluster", "error"),
        ("gpu count", "c4", "error"),
    ]
    assert ("stage provision", "all hosts", "skipped", "no host of the inventory belongs to it") in missing


def test_matrix_holds_single_nodes_only() -> None:
    table = model.matrix(model.runs(record("broken"))[0])
    assert table.nodes == ["c1", "c2", "c3", "c4"]
    assert "collective_test" not in table.checks
    assert table.cell_verdict("c3", "munge") == "fail"
    assert [table.node_verdict(node) for node in table.nodes] == ["warn", "fail", "fail", "error"]


def test_large_cluster_folds_the_nodes_without_a_finding() -> None:
    checks = [{"run": "a", "node": f"n{i}", "check": "munge", "verdict": "pass"} for i in range(2000)]
    checks[1500]["verdict"] = "fail"
    drawn = page({"checks": checks})
    read = Reader(drawn.partition("<script")[0].replace("</body>", "") + "</body></html>")
    assert [tag for tag, attrs in read.tags if attrs.get("scope") == "row"] == ["th"]
    assert "1999 more nodes without a finding" in "".join(read.text).replace("\u202f", "")


@pytest.mark.parametrize(
    "check, group",
    [
        ({"node": "c1", "scope": {}}, False),
        ({"node": "c1", "scope": {"gpu": 3}}, False),
        ({"node": None, "scope": {"group": ["c1", "c2"]}}, True),
        ({"node": "c1", "scope": {"partners": ["c2"]}}, True),
        ({"node": "c[1-2]"}, True),
        ({"node": None}, True),
    ],
)
def test_is_group(check: dict, group: bool) -> None:
    assert model.is_group(check) is group


def test_series_are_sorted_and_numbers_only() -> None:
    samples = [{"collective": "a", "size": s, "busbw": b} for s, b in ((64, 2.0), (8, 1.0), (0, 1.0), (16, None))]
    assert [row["size"] for row in curves.series([{"samples": samples}])["a"]] == [8, 64]


def test_limits_come_from_the_expectations() -> None:
    metrics = [
        {"name": "busbw", "unit": "GB/s", "expected": ">= 1.5", "collective": "b", "size": 1024, "source": "profile"},
        {"name": "busbw", "unit": "GB/s", "expected": None, "collective": "b"},
        {"name": "wrong", "unit": "values", "expected": "== 0", "collective": "b"},
    ]
    found = curves.limits([{"metrics": metrics}], ["a", "b"])
    assert [(limit.value, limit.at, limit.series) for limit in found] == [(1.5, 1024, 1)]
    assert found[0].words == "busbw (1\u00a0KiB) of b: ≥ 1.5\u00a0GB/s expected (profile)"


@pytest.mark.parametrize(
    "value, log, place", [(8, True, 100), (64, True, 200), (512, True, 300), (260, False, 200), (512, False, 300)]
)
def test_axis_places_values(value: float, log: bool, place: float) -> None:
    assert plot.Axis(8, 512, 100, 300, log=log).place(value) == place


def test_chart_draws_every_point_where_it_belongs() -> None:
    points = [(8.0, 0.0), (64.0, 1.0), (512.0, 2.0)]
    line = plot.Line("a", points, ["first", "second", "third"])
    drawn = ET.fromstring(
        plot.chart([line], [plot.Limit(1.0, None, "at least 1", 0)], title="t", x="x", y="y", sizes=True)
    )
    path = next(p.get("d") for p in drawn.iter("path") if p.get("class") == "line")
    numbers = [float(n) for n in re.findall(r"[\d.]+", path or "")]
    assert numbers[0::2] == [plot.LEFT, (plot.LEFT + plot.WIDTH - plot.RIGHT) / 2, plot.WIDTH - plot.RIGHT]
    assert numbers[1] == plot.HEIGHT - plot.BOTTOM
    assert numbers[1] - numbers[3] == pytest.approx(numbers[3] - numbers[5], abs=0.02)
    limit = next(one for one in drawn.iter("line") if one.get("class") == "limit")
    assert limit.get("y1") == limit.get("y2") == f"{numbers[3]:g}"
    assert [one.text for one in drawn.iter("title")][-3:] == ["first", "second", "third"]


@pytest.mark.parametrize(
    "low, high, marks",
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0, 0, [0]), (0, 130, [0, 50, 100]), (-1, 1, [-1, -0.5, 0, 0.5, 1])],
)
def test_ticks_are_round(low: float, high: float, marks: list) -> None:
    assert plot.ticks(low, high) == pytest.approx(marks)


def test_powers_and_thin_keep_the_ends() -> None:
    assert plot.powers(8, 2**26)[:3] == [8, 64, 512]
    assert plot.powers(8, 8) == [8]
    thinned = plot.thin(list(range(10_000)), 100)
    assert (len(thinned), thinned[0], thinned[-1]) == (100, 0, 9999)


def test_timeline_bars_fill_the_line() -> None:
    drawn = str(stages.timeline(model.runs(record("passed"))[0]))
    widths = [float(width) for width in re.findall(r"class=\"bar[^>]*width:([\d.]+)%", drawn)]
    assert len(widths) == 4
    assert sum(widths) == pytest.approx(100, abs=0.05)


def test_each_stage_is_repeated_by_a_playbook_that_there_is() -> None:
    playbooks = Path(__file__).parents[4] / "playbooks"
    named = {
        name for path in playbooks.rglob("*.yml") for name in re.findall(r"run_stage: ([a-z_]+)", path.read_text())
    }
    assert {"join", "repair", "certify"} <= named
    for name in named | {"measure"}:
        (run,) = model.runs({"stages": [{"run": "r1", "stage": name, "state": "done"}]})
        commands = re.findall(r"hpcai\.gpu_cluster\.(\w+)", str(stages.again(run)))
        assert all((playbooks / f"{command}.yml").is_file() for command in commands), commands
        assert ("site" in commands) is (name in stages._SITE)


def test_a_stage_whose_plays_alternate_with_another_s_is_one_and_a_failure_before_it_stays() -> None:
    """As train.yml ran on an H100: nodes for the training, then the stack, then the training."""
    asked = {"run": "r", "stage": "train", "start": "a", "seconds": 0.1, "state": "done", "hosts": ["l"], "tasks": 3}
    stack = {"run": "r", "stage": "stack", "seconds": 0.6, "state": "done", "tasks": 18}
    trained = {**asked, "start": "b", "seconds": 27.1, "hosts": ["l", "m"], "tasks": 17, "changes": {"l": 2}}
    trained["verdicts"] = {"pass": 1}
    (run,) = model.runs({"stages": [asked, stack, trained]})
    assert [stage["stage"] for stage in run.stages] == ["train", "stack"]
    train = run.stages[0]
    assert (train["start"], train["seconds"], train["tasks"], train["hosts"]) == (
        "a",
        pytest.approx(27.2),
        20,
        ["l", "m"],
    )
    assert (train["changes"], train["verdicts"], train["skipped"]) == ({"l": 2}, {"pass": 1}, None)
    assert "2 stages in 28\N{NO-BREAK SPACE}s" in str(stages.timeline(run))
    failed = {**asked, "state": "failed", "failures": {"l": "no"}}
    (run,) = model.runs({"stages": [failed, asked, trained]})
    assert [model.state(stage) for stage in run.stages] == ["failed", "done"]


def test_steps_that_playbooks_share_count_as_the_stage_that_was_called() -> None:
    playbooks = Path(__file__).parents[4] / "playbooks"
    borrowed = 0
    for path in playbooks.glob("*.yml"):
        for play in yaml.safe_load(path.read_text()):
            steps = str(play.get("ansible.builtin.import_playbook", "")).split("_steps/")
            # The steps of a playbook's own have its stage; those of results_steps and site.yml are of no one stage.
            if len(steps) == 2 and steps[0] not in (path.stem, "results") and path.stem != "site":
                borrowed += 1
                stages_of = {str(play.get("vars", {}).get("run_stage"))}
                assert stages_of <= {path.stem} or steps[0] == path.stem.split("_")[0], f"{path.name}: {steps}"
    assert borrowed > 3


def test_measurements_show_value_expectation_and_source() -> None:
    run = model.runs(record("broken"))[0]
    drawn = "".join(nodes.measurements([check for check in run.checks if check["check"] == "clock_skew"]))
    assert "7.31\u00a0s" in drawn and "≤ 2\u00a0s" in drawn and "profile lab" in drawn


@pytest.mark.parametrize(
    "function, value, shown",
    [
        (text.short, 1234567, "1\u202f234\u202f567"),
        (text.short, 0.012345, "0.0123"),
        (text.short, float("nan"), "nan"),
        (text.short, None, "\u2013"),
        (text.size, 67108864, "64\u00a0MiB"),
        (text.size, 8, "8\u00a0B"),
        (text.duration, 0.42, "0.4\u00a0s"),
        (text.duration, 59.7, "1\u00a0min 00\u00a0s"),
        (text.duration, 3725, "1\u00a0h 02\u00a0min"),
        (text.duration, None, "\u2013"),
        (text.clock, 90, "1:30\u00a0min"),
        (text.clock, 7200, "2\u00a0h"),
        (text.when, "2026-11-20T15:04:01Z", "20 Nov 2026, 15:04 UTC"),
        (text.when, 0, "1 Jan 1970, 00:00 UTC"),
        (text.when, "yesterday", "yesterday"),
        (text.when, 1e30, "1e+30"),
    ],
)
def test_numbers_and_times_as_people_read_them(function: object, value: object, shown: str) -> None:
    assert function(value) == shown  # type: ignore[operator]


def test_markup_escapes_what_is_not_markup() -> None:
    assert el("p", "<b>", Html("<i></i>"), None, ["&", 1], title='"', hidden_=None) == (
        '<p title="&quot;">&lt;b&gt;<i></i>&amp;1</p>'
    )
    assert esc("a\x00b\ud800") == "a\ufffdb\ufffd"
    assert "</script>" not in json_block({"x": "</script><!--"}, "n")[:-9]


@pytest.mark.parametrize(
    "reason, shown",
    [
        (None, ""),
        ("h2d (gpu=3): 39.7 GB/s, expected >= 48", "h2d (GPU 3): 39.7 GB/s, expected ≥ 48"),
        (
            "busbw (collective=all_reduce size=17179869184): 243.248 GB/s, expected >= 310.0; next",
            "busbw (all_reduce 16\u00a0GiB): 243.2 GB/s, expected ≥ 310; next",
        ),
        ("10.0.0.12 does not answer, version 2.17.6", "10.0.0.12 does not answer, version 2.17.6"),
    ],
)
def test_reasons_are_shown_as_people_write(reason: object, shown: str) -> None:
    assert text.readable(reason) == shown
