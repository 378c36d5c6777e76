# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A certificate again, from the request and raw records of its run, or as another profile would have it. Private."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import judge, overall, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.campaign import Campaign
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import RATES, believable

METRIC = ("name", "value", "unit", "expected", "source", "ratio", "verdict")  # of a metric; all others are labels

_NOT_RUN = "no record of this test was kept"


def replay(request: t.Mapping[str, t.Any], records: t.Iterable[Json], profile: Json | None = None) -> Campaign:
    """Return the campaign as it ended; tests that were never run, as another profile would have asked, are infra."""
    tests: dict[str, list[Json]] = {}
    expect = (profile or {}).get("expect") or []
    before = (request["fleet"].get("profile") or {}).get("expect") or []
    for one in records:
        test = str((one.get("context") or {}).get("test") or "")
        tests.setdefault(test, []).append(one if profile is None else _anew(one, expect, before))
    fleet = request["fleet"] if profile is None else {**request["fleet"], "profile": profile}
    campaign = Campaign(fleet, request["options"])
    while True:
        batch = campaign.next()
        if batch is None:
            return campaign
        for test in batch["tests"]:
            campaign.take(test["id"], tests.get(test["id"], []), "" if test["id"] in tests else _NOT_RUN)


def _anew(one: Json, expect: t.Sequence[Json], before: t.Sequence[Json]) -> Json:
    """One record that no limit can be applied to must not take the others with it, and is no pass."""
    try:
        return rejudged(one, expect, before)
    except (ValueError, TypeError) as exc:
        return {**one, "verdict": "error", "class": "infra", "reason": f"cannot be judged anew: {exc}"}


def rejudged(one: Json, expect: t.Sequence[Json], before: t.Sequence[Json]) -> Json:
    """Return a record as other expectations would have it; what the former ones did not decide stays as it is."""
    if not _whole(one) or one["verdict"] not in ("pass", "warn", "fail", "unjudged") or not one["metrics"]:
        return one
    missed = any(item["verdict"] in ("fail", "warn") for item in one["metrics"])
    if one["verdict"] in ("fail", "warn") and not missed:
        return one
    group = one["scope"].get("group") or [one["node"]]
    kept = [_limit(one["check"], item) for item in one["metrics"] if _own(one["check"], item, before)]
    metrics = judge(one["check"], one["metrics"], [*kept, *expect], nodes=len(group))
    verdict = overall(metrics)
    # Right values at a speed that nobody compared with anything are no pass.
    if verdict == "pass" and all(item["verdict"] == "unjudged" for item in metrics if item["unit"] in RATES):
        verdict = one["verdict"] if not any(item["unit"] in RATES for item in metrics) else "unjudged"
    names = ("run", "seconds", "scope", "samples", "evidence", "context")
    rest = {name: one[name] for name in names if name in one}
    blame = one["class"] or ("fabric" if len(group) > 1 else "hardware")
    return record(one["check"], one["node"], time=one["time"], verdict=verdict, metrics=metrics, blame=blame, **rest)


def _whole(one: Json) -> bool:
    """What lacks something is an error as it is, and stays one."""
    if not believable(one) or not {"node", "time", "class"} <= set(one):
        return False
    return all(set(METRIC) <= set(item) and isinstance(item["expected"] or "", str) for item in one["metrics"])


def _own(check: str, item: Json, before: t.Sequence[Json]) -> bool:
    """Say whether a check judged this by a limit of its own, which is no matter of a profile."""
    if not item.get("expected"):
        return False
    told = {(e["check"], e["metric"], f"{e['op']} {e['value']}") for e in before}
    return (check, item["name"], item["expected"]) not in told


def _limit(check: str, item: Json) -> Json:
    """Return the limit that a metric says it was judged by."""
    op, dummy, value = item["expected"].partition(" ")
    mark = {"verdict": "warn"} if item["verdict"] == "warn" else {}
    more = {key: item[key] for key in item if key not in METRIC and item[key] is not None}
    base = {"check": check, "metric": item["name"], "op": op, "value": json.loads(value), "unit": item["unit"]}
    return {**base, "source": item["source"] or "the check itself", **mark, **more}
