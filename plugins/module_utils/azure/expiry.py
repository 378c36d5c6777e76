# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a cluster is to be taken down: the tag of its resource groups. No I/O. Private."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import ownership, teardown

TAG = "expires-on"
# Who wrote that, and what: where the two differ, somebody changed the day by hand.
BY_TAG = "expires-on-by"
PROVISION, EXPIRE, NEVER = "provision.yml", "expire.yml", "never"
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_FORMATS = ("%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z", "%Y-%m-%d %H:%M:%S%z")
UTC = datetime.timezone.utc


class Due(t.NamedTuple):
    """A cluster with an expiry; `problem` says why its tag says nothing."""

    cluster: str
    expires: str
    due: bool
    problem: str = ""


def read(text: str) -> datetime.datetime:
    """Read a time with its offset; a mere date is its midnight in UTC."""
    said = text.strip()
    for form in _FORMATS:
        try:
            return datetime.datetime.strptime(said, form).astimezone(UTC)
        except ValueError:
            continue
    try:
        return datetime.datetime.strptime(said, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise teardown.TeardownError(
            f"{text!r} is no time: write 2026-12-01, 2026-12-01T18:00:00Z or 2026-12-01T18:00:00+01:00"
        ) from None


def write(moment: datetime.datetime) -> str:
    """Write a time as the tag has it."""
    return moment.astimezone(UTC).strftime(_FORMAT)


def wanted(before: str, now: datetime.datetime, expires_on: str, days: float) -> str:
    """Return the tag's new value: a time, or so many days from now. What is past already is refused."""
    moment = read(expires_on) if expires_on else now + datetime.timedelta(days=days)
    if moment <= now and expires_on != before:
        raise teardown.TeardownError(f"{write(moment)} is past already (it is {write(now)}): use destroy.yml at once")
    return write(moment)


def clusters(groups: t.Iterable[ownership.Thing], now: datetime.datetime) -> list[Due]:
    """Return every cluster of ours that has an expiry; the earliest of its groups counts."""
    found: dict[str, list[str]] = {}
    for group in groups:
        name = group.tags.get(ownership.CLUSTER_TAG, "")
        if name and ownership.ours(group, name) and TAG in group.tags:
            found.setdefault(name, []).append(group.tags[TAG])
    return [_due(name, texts, now) for name, texts in sorted(found.items())]


def _due(name: str, texts: t.Iterable[str], now: datetime.datetime) -> Due:
    try:
        first = min(read(text) for text in texts)
    except teardown.TeardownError as exc:
        return Due(name, "", False, f"{TAG} of {name}: {exc}; nothing is deleted")
    return Due(name, write(first), first <= now)


def tags(known: t.Mapping[str, str], expires: str, who: str = EXPIRE) -> dict[str, str]:
    """Return all tags of a group with a new expiry: writing tags replaces those that are not named."""
    kept = {name: value for name, value in known.items() if name.lower() not in (TAG, BY_TAG)}
    return {**kept, **({TAG: expires} if expires else {}), BY_TAG: by(who, expires)}


def by(who: str, expires: str) -> str:
    """Return what says who chose a day."""
    return f"{who} {expires or NEVER}"


class Provisioned(t.NamedTuple):
    """What provision.yml does with its day: the tags to set, what to tell of another day that stays, why it cannot."""

    tags: dict[str, str]
    told: str = ""
    refused: str = ""


def provisioned(known: t.Mapping[str, str], wanted: str, again: bool, now: datetime.datetime) -> Provisioned:
    """Change only a day that provision.yml set itself: any other was chosen later, by expire.yml or by hand."""
    if not wanted:
        return Provisioned({})
    lower = {name.lower(): value for name, value in known.items()}
    there, mark = lower.get(TAG, ""), lower.get(BY_TAG, "")
    if again or mark == by(PROVISION, there) or (not mark and (not there or _same(there, wanted))):
        passed = read(wanted) <= now
        refused = f"azure_infra_expires_on {wanted} has passed: write a later day, or use expire.yml" if passed else ""
        return Provisioned({TAG: wanted, BY_TAG: by(PROVISION, wanted)}, "", refused)
    if _same(there, wanted):
        return Provisioned({})
    chooser = mark.partition(" ")[0]
    who = chooser if mark == by(chooser, there) else "somebody"
    return Provisioned(
        {},
        f"{TAG} stays {there or NEVER}, which {who} chose. azure_infra_expires_on ({wanted}) is not written;"
        " azure_infra_expires_on_again=true writes it.",
    )


def _same(one: str, other: str) -> bool:
    try:
        return read(one) == read(other)
    except teardown.TeardownError:
        return one == other
