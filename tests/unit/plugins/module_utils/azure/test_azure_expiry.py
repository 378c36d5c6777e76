# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a cluster is due."""

from __future__ import annotations

import datetime

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import teardown
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.ownership import AzureResource
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import TeardownError

NOW = datetime.datetime(2026, 6, 15, 12, 0, tzinfo=datetime.timezone.utc)


@pytest.mark.parametrize(
    "text, written",
    [
        ("2026-12-01", "2026-12-01T00:00:00Z"),
        (" 2026-12-01T18:00:00Z ", "2026-12-01T18:00:00Z"),
        ("2026-12-01T18:00:00+01:00", "2026-12-01T17:00:00Z"),
        ("2026-12-01T18:00Z", "2026-12-01T18:00:00Z"),
        ("2026-12-01 18:00:00+0000", "2026-12-01T18:00:00Z"),
    ],
)
def test_times_as_people_and_yaml_write_them(text: str, written: str) -> None:
    assert teardown.write(teardown.read_time(text)) == written


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01", "2026-12-01T18:00:00", "1796144400"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(TeardownError, match="is no time"):
        teardown.read_time(text)


@pytest.mark.parametrize(
    "before, expires_on, days, after",
    [
        ("", "2026-07-01", 0, "2026-07-01T00:00:00Z"),
        ("", "", 7, "2026-06-22T12:00:00Z"),
        ("2026-06-16T00:00:00Z", "", 0.5, "2026-06-16T00:00:00Z"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 0, "2026-01-01T00:00:00Z"),  # due already, and stays so
    ],
)
def test_the_tag_wanted(before: str, expires_on: str, days: float, after: str) -> None:
    assert teardown.new_expiry(before, NOW, expires_on, days) == after


def test_a_time_that_is_past_is_refused() -> None:
    with pytest.raises(TeardownError, match=r"is past already .* destroy.yml"):
        teardown.new_expiry("", NOW, "2026-06-01", 0)


def group(name: str, cluster: str | None, expires: str | None, creator: str = "hpcai.gpu_cluster") -> AzureResource:
    own = {"hpcai-resource": f"resourceGroups/{name}"}
    tags = {"created-by": creator, "hpcai-cluster": cluster, "expires-on": expires, **own}
    return AzureResource(
        f"/subscriptions/s/resourceGroups/{name}", "", {key: value for key, value in tags.items() if value}
    )


def test_clusters_that_are_due() -> None:
    groups = [
        group("a-rg", "a", "2026-06-15T11:59:59Z"),
        group("b-rg", "b", "2026-06-15T12:00:01Z"),
        group("c-rg", "c", None),
        group("d-rg", "d", "2026-06-01", creator="somebody"),
        group("e-rg", "e", "soon"),
        group("f-rg", "f", "2026-07-01"),
        group("f2-rg", "f", "2026-06-01"),
        group("g-rg", None, "2026-06-01"),
    ]
    found = {due.cluster: due for due in teardown.clusters(groups, NOW)}
    assert {name: due.due for name, due in found.items()} == {"a": True, "b": False, "e": False, "f": True}
    assert "expires-on of e: 'soon' is no time" in found["e"].problem


def test_a_group_that_does_not_prove_that_it_is_ours_is_never_due() -> None:
    """All three tags may be copied from the subscription: unattended it would go with everything in it."""
    copied = group("theirs-rg", "a", "2026-06-01")
    copied = copied._replace(tags={name: value for name, value in copied.tags.items() if name != "hpcai-resource"})
    due = teardown.clusters([copied], NOW)
    assert [(entry.cluster, entry.due) for entry in due] == [("a", False)]
    assert "theirs-rg does not have its own name in hpcai-resource; nothing is deleted" in due[0].problem
    moved = copied._replace(tags={**copied.tags, "hpcai-resource": "resourceGroups/a-rg"})
    assert teardown.clusters([moved], NOW) == []


OURS = {"Expires-On": "2026-07-01", "Expires-On-By": "provision.yml 2026-07-01"}
PUT_OFF = {"expires-on": "2026-08-01T00:00:00Z", "expires-on-by": "expire.yml 2026-08-01T00:00:00Z"}


@pytest.mark.parametrize(
    "there, day, again, writes, told",
    [
        ({}, "2026-07-01", False, True, ""),
        ({}, "", False, False, ""),
        (OURS, "2026-07-01", False, True, ""),
        (OURS, "2026-09-01", False, True, ""),
        (PUT_OFF, "2026-07-01", False, False, "expires-on stays 2026-08-01T00:00:00Z, which expire.yml chose"),
        (PUT_OFF, "2026-01-01", False, False, "which expire.yml chose"),  # the inventory's own day has passed meanwhile
        (PUT_OFF, "2026-07-01", True, True, ""),
        (PUT_OFF, "2026-08-01", False, False, ""),  # nothing to say
        ({"expires-on-by": "expire.yml never"}, "2026-07-01", False, False, "stays never, which expire.yml chose"),
        ({**OURS, "Expires-On": "2026-08-08"}, "2026-07-01", False, False, "stays 2026-08-08, which somebody chose"),
        ({"Expires-On-By": OURS["Expires-On-By"]}, "2026-07-01", False, False, "stays never, which somebody chose"),
        ({"expires-on": "2026-07-01T00:00:00Z"}, "2026-07-01", False, True, ""),  # an earlier version wrote it
        ({"expires-on": "2026-08-01"}, "2026-07-01", False, False, "which somebody chose"),
        ({"expires-on": "soon"}, "2026-07-01", False, False, "stays soon, which somebody chose"),
    ],
)
def test_provision_changes_only_a_day_of_its_own(
    there: dict[str, str], day: str, again: bool, writes: bool, told: str
) -> None:
    found = teardown.provisioned(there, day, again, NOW)
    assert found.tags == ({"expires-on": day, "expires-on-by": f"provision.yml {day}"} if writes else {})
    assert told in found.notice if told else not found.notice
    assert not found.refused
    if writes:
        assert teardown.provisioned({**there, **found.tags}, day, False, NOW).tags == found.tags


def test_a_day_that_has_passed_is_not_set() -> None:
    assert "2026-01-01 has passed" in teardown.provisioned({}, "2026-01-01", False, NOW).refused


def test_expire_says_that_it_chose_the_day() -> None:
    assert teardown.tags({"team": "a", **OURS}, "") == {"team": "a", "expires-on-by": "expire.yml never"}
    assert teardown.tags(OURS, PUT_OFF["expires-on"]) == PUT_OFF
