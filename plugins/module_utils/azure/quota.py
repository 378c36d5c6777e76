# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers of cores: what is asked for, what is free, and what that means. No I/O. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.finding import Finding

REGIONAL, SPOT = "cores", "lowprioritycores"
_ASK = "Ask for at least {need} more in the portal (Subscriptions, Usage + quotas, {what}), or ask for fewer nodes."


class Usage(t.NamedTuple):
    """One line of the usages of a region."""

    name: str
    shown: str
    used: int
    limit: int


class Want(t.NamedTuple):
    """Cores that a group of nodes needs; the family is that of its size."""

    group: str
    family: str
    cores: int
    spot: bool


def key(name: str) -> str:
    """Return what names of families have in common: two interfaces write them with other blanks and cases."""
    return "".join(name.split()).lower()


def number(value: t.Any) -> int:
    """Read a limit; numbers, fractions and texts have been seen."""
    try:
        return int(float(str(value)))
    except (ValueError, OverflowError):
        return 0


def headroom(wants: t.Sequence[Want], usages: t.Iterable[Usage], location: str, block: bool) -> list[Finding]:
    """Compare what is wanted with every limit that applies: the family's, the region's, and that of all Spot."""
    known = {key(usage.name): usage for usage in usages}
    asked: dict[str, tuple[str, int, list[str]]] = {}
    for want in wants:
        limits = [(SPOT, "Total Regional Spot vCPUs")] if want.spot else [(key(want.family), want.family)]
        for limit, shown in limits + ([] if want.spot else [(REGIONAL, "Total Regional vCPUs")]):
            dummy, cores, groups = asked.get(limit, ("", 0, []))
            asked[limit] = (shown, cores + want.cores, [*groups, want.group])
    found = []
    for limit, (shown, cores, groups) in sorted(asked.items()):
        finding = _judge(known.get(limit), shown, cores, groups, location)
        if finding:
            found.append(finding._replace(blocks=finding.blocks and block))
    return found


def _judge(usage: Usage | None, shown: str, cores: int, groups: t.Sequence[str], location: str) -> Finding | None:
    subject = ", ".join(dict.fromkeys(groups))
    if usage is None:
        problem = f"Azure does not say what quota of {shown} there is in {location}; {cores} cores are needed."
        action = (
            "Look it up in the portal (Subscriptions, Usage + quotas); what is not listed there has to be asked for."
        )
        return Finding("quota", subject, problem, action, False)
    free = usage.limit - usage.used
    if cores <= free:
        return None
    what = usage.shown or usage.name
    state = f"{max(free, 0)} are free ({usage.used} of {usage.limit} used)"
    problem = f"{what} in {location}: {cores} cores are needed and {state}."
    return Finding("quota", subject, problem, _ASK.format(need=cores - free, what=what), True)
