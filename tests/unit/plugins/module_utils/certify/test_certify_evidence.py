# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What records come to, honest ones and 5,000 that are not."""

from __future__ import annotations

import copy
import json
import math
import random
import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import judge, metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import evidence
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.campaign import CampaignPlan

FLOOR = {"check": "nccl_tests", "metric": "busbw", "op": ">=", "value": 100, "unit": "GB/s", "source": "a test"}
WRONG = {"check": "nccl_tests", "metric": "wrong", "op": "==", "value": 0, "unit": "checks", "source": "a test"}


def _record(speed: t.Any = 120.0, wrong: t.Any = 0, expect: t.Any = (FLOOR, WRONG), **more: t.Any) -> dict[str, t.Any]:
    metrics = [metric("busbw", speed, "GB/s", size=8), metric("wrong", wrong, "checks")]
    return record("nccl_tests", "n1", time=5.0, seconds=2.0, metrics=judge("nccl_tests", metrics, expect), **more)


PASS = _record()
SKIP = record("gpu", "n1", time=1.0, verdict="skipped", reason="no GPU is expected")
ERROR = record("gpu", "n1", time=1.0, verdict="error", reason="no nvidia-smi")
XID = record("xid", "n1", time=1.0, verdict="fail", blame="hardware", reason="XID 79")
CONFIG = record("swap", "n1", time=1.0, verdict="fail", blame="config", reason="swap is on")

CASES = [
    ("good", [PASS], "ok", None, False),
    ("good with a skip", [PASS, SKIP], "ok", None, False),
    ("below its floor", [_record(90.0)], "bad", "hardware", False),
    ("wrong values at full speed", [_record(wrong=3)], "bad", "hardware", True),
    ("a fact without numbers", [PASS, XID], "bad", "hardware", True),
    ("hardware before configuration", [CONFIG, XID], "bad", "hardware", True),
    ("configuration", [CONFIG, PASS], "bad", "config", True),
    ("a checker that broke", [PASS, ERROR], "infra", "infra", False),
    ("a checker that broke beside a fault", [ERROR, XID], "bad", "hardware", True),
    ("nothing", [], "infra", "infra", False),
    ("skips alone", [SKIP], "infra", "infra", False),
    ("nothing measured", [_record(None, None)], "infra", "infra", False),
    ("no expectation", [_record(expect=())], "ok", None, False),
    ("an infra fail", [{**XID, "class": "infra"}], "infra", "infra", False),
    ("a pass that hides a miss", [{**_record(90.0), "verdict": "pass", "class": None}], "infra", "infra", False),
    ("no record", ["pass"], "infra", "infra", False),
    ("one broken line of two", [PASS, {"verdict": "pass"}], "infra", "infra", False),
]


@pytest.mark.parametrize(("name", "records", "kind", "blame", "hard"), CASES, ids=[case[0] for case in CASES])
def test_what_records_come_to(name, records, kind, blame, hard):
    found = evidence.read(records)
    assert (found.kind, found.blame, found.hard) == (kind, blame, hard)
    assert found.reason or kind == "ok"


def test_a_warning_is_kept_beside_the_pass():
    found = evidence.read([_record(90.0, expect=({**FLOOR, "verdict": "warn"}, WRONG))])
    assert (found.kind, found.warned) == ("ok", "nccl_tests: busbw (size=8): 90 GB/s, expected >= 100")


def test_a_hole_is_told_from_silence():
    assert evidence.read([PASS, ERROR]).partial is True
    assert evidence.read([ERROR]).partial is False


def test_the_largest_size_stands_for_a_collective_and_rails_for_themselves():
    sizes = [metric("busbw", speed, "GB/s", size=size) for size, speed in ((8, 1.0), (1 << 30, 99.0), (1 << 20, 50.0))]
    whole = record("nccl_pair", None, time=1.0, metrics=sizes, verdict="unjudged")
    rail = record("nccl_rail", None, time=1.0, metrics=sizes[:1], verdict="unjudged", scope={"rail": 3})
    found = evidence.read([rail, whole])
    assert (found.value, found.unit, dict(found.rails)) == (99.0, "GB/s", {"3": 1.0})


def test_the_order_of_records_does_not_matter():
    records = [PASS, SKIP, XID, CONFIG, ERROR]
    assert evidence.read(records) == evidence.read(records[::-1])


def test_stamped_records_name_their_test():
    assert evidence.stamp("t1", [PASS])[0]["context"] == {"test": "t1"}
    assert PASS["context"] == {}


JUNK: list[t.Any] = [
    None,
    True,
    -1,
    2**70,
    math.nan,
    math.inf,
    "",
    "pass",
    "PASS",
    "x" * 5000,
    "\x00\udcff",
    [],
    {},
    [[]],
    {"a": {}},
    ["pass"],
    "1e999",
    "ok",
]


def hostile(dice: random.Random) -> t.Any:
    """Return a record that something happened to: a field gone, replaced, or one of its metrics'."""
    one: t.Any = copy.deepcopy(dice.choice([PASS, XID, ERROR, SKIP, _record(90.0), _record(wrong=3)]))
    for dummy in range(dice.randint(1, 4)):
        place = one
        if dice.random() < 0.4 and isinstance(one.get("metrics"), list) and one["metrics"]:
            place = dice.choice(one["metrics"])
        if not isinstance(place, dict) or not place:
            continue
        field = dice.choice(sorted(place))
        if dice.random() < 0.3:
            del place[field]
        else:
            place[field] = dice.choice(JUNK)
    return dice.choice([one] * 9 + JUNK)


def _may_pass(records: list[t.Any]) -> bool:
    """Say, by other means than the code, whether these records may count as good at all."""
    for one in records:
        if not isinstance(one, dict) or one.get("verdict") not in ("pass", "warn", "unjudged", "skipped"):
            return False
        metrics = one.get("metrics")
        if not isinstance(metrics, list) or not isinstance(one.get("check"), str):
            return False
        for item in metrics:
            if item.get("verdict") == "pass":
                value = item.get("value")
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                    return False
                if item["name"] == "busbw" and item["expected"] and value < 100:
                    return False
    return any(one["verdict"] != "skipped" for one in records)


def test_5000_hostile_records_never_crash_and_never_pass():
    dice = random.Random(6)
    passed = 0
    for dummy in range(5000):
        records = [hostile(dice) for dummy in range(dice.randint(1, 3))]
        found = evidence.read(records)
        assert found.kind in ("ok", "bad", "infra")
        passed += found.kind == "ok"
        if found.kind == "ok":
            assert _may_pass(records), records
    assert 0 < passed < 2500


def test_a_campaign_of_hostile_records_ends_and_clears_nobody_on_them():
    dice = random.Random(7)
    nodes = [{"name": f"n{n}", "leaf": f"l{n // 4}"} for n in range(24)]
    for seed in range(8):
        campaign = CampaignPlan({"nodes": nodes}, {"seed": seed})
        good: dict[str, int] = {}
        while True:
            batch = campaign.next()
            if batch is None:
                break
            for test in batch["tests"]:
                records = [hostile(dice) for dummy in range(dice.randint(0, 2))]
                for name in test["nodes"]:
                    good[name] = good.get(name, 0) + (bool(records) and _may_pass(records))
                campaign.take(test["id"], records)
        found = campaign.certificate()
        json.dumps(found)
        assert found["planned"] == 24 == found["reached"] + len(found["untested"])
        for name, node in found["nodes"].items():
            assert node["status"] != "cleared" or good[name] >= 3
