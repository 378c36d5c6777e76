# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a certificate stands on: plan, limits and digests; and the certificates before it. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import STATUSES, Fleet
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import (
    Row,
    mapping,
    natural,
    rows,
    strings,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import chip, section, table, tile
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import (
    NONE,
    duration,
    listing,
    number,
    short,
    when,
)

MAX_RUNS = 12
NAMED = 6
_GENUINE = {
    True: chip("pass", "the records here are those it was made from"),
    False: chip("fail", "the records here are not those it was made from"),
    None: None,
}


def basis(fleet: Fleet, genuine: bool | None = None) -> Html:
    """Show the plan, the options and the digests."""
    certificate = fleet.certificate
    plan = mapping(certificate.get("plan"))
    facts = [
        tile(
            "Rounds",
            short(plan.get("rounds")),
            "round robin" if plan.get("round_robin") else f"{short(plan.get('tests'))} tests",
        ),
        tile("Took", duration(certificate.get("seconds")), f"planned {duration(plan.get('wall_seconds'))}"),
        tile("GPU-hours", short(plan.get("gpu_hours")), "by the plan"),
        tile("Cost", short(plan.get("cost")), "by the plan") if plan.get("cost") else None,
    ]
    body = [
        el("tr", el("td", el("b", name)), el("td", version or NONE), el("td", el("code", digest) if digest else NONE))
        for name, version, digest in _digests(certificate)
    ]
    return section(
        "basis",
        "What it stands on",
        _GENUINE[genuine],
        el("div", facts, class_="tiles small"),
        el("p", _options(certificate), class_="faint"),
        el("details", el("summary", "The plan"), [el("p", words) for words in strings(plan.get("text"))])
        if plan
        else None,
        table(["What", "Version", "SHA-256"], body) if body else None,
    )


def _options(certificate: Row) -> str:
    """Return what was asked for; lists are in the plan."""
    known = sorted(mapping(certificate.get("options")).items())
    words = ", ".join(f"{key.replace('_', ' ')} {_option(value)}" for key, value in known if _simple(value))
    return f"Options: {words}" if words else ""


def _digests(certificate: Row) -> t.Iterator[tuple[t.Any, ...]]:
    """Yield (what, version, digest)."""
    for name in sorted(certificate):
        if name.endswith("_sha256") and certificate[name]:
            yield name.partition("_sha256")[0], "", certificate[name]
    for name, tool in sorted(mapping(certificate.get("tools")).items()):
        yield name, mapping(tool).get("version"), mapping(tool).get("sha256")


def _simple(value: t.Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != ""


def _option(value: t.Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def statuses(certificate: Row) -> dict[str, str]:
    """Return each node's status."""
    return {str(name): str(mapping(about).get("status")) for name, about in mapping(certificate.get("nodes")).items()}


def earlier(fleet: Fleet, certificates: t.Sequence[Row]) -> Html | None:
    """Show this certificate and those before it, and what changed from one to the next."""
    if not certificates:
        return None
    line = [*sorted(certificates, key=lambda row: number(row.get("time")) or 0.0)[-MAX_RUNS:], fleet.certificate]
    body = [
        _run(row, line[index - 1] if index else None, last=row is fleet.certificate) for index, row in enumerate(line)
    ]
    again = _again(line)
    return section(
        "certificates",
        "Certificates over time",
        None,
        table(["Ended", "Nodes", "Cleared>", "Took>", "Since the row before"], list(reversed(body))),
        el("p", el("b", "Out more than once: "), listing(again, NAMED)) if again else None,
    )


def _run(certificate: Row, before: Row | None, last: bool) -> Html:
    now = statuses(certificate)
    total = max(1, len(now))
    counts = {status: sum(given == status for given in now.values()) for status in STATUSES}
    shares = [
        el("i", class_=f"v-{STATUSES[status]}", style=f"width:{100 * counts[status] / total:.3f}%")
        for status in reversed(list(STATUSES))
        if counts[status]
    ]
    chips = [
        chip(STATUSES[status], f"{short(counts[status])} {status}")
        for status in STATUSES
        if counts[status] and status != "cleared"
    ]
    return el(
        "tr",
        el(
            "td",
            el("b", when(certificate.get("time"))),
            el("span", " this one" if last else f" {certificate.get('run') or ''}", class_="faint"),
        ),
        el(
            "td",
            el("div", shares, class_="bar-of", aria_hidden="true"),
            el("div", chips or "all cleared", class_="note"),
        ),
        el("td", f"{short(counts['cleared'])} / {short(len(now))}", class_="number"),
        el("td", duration(certificate.get("seconds")), class_="number"),
        el("td", _changes(now, statuses(before)) if before is not None else NONE),
    )


def _changes(now: dict[str, str], before: dict[str, str]) -> str:
    out = ("drained", "watched", "untested")
    newly = sorted((n for n in now if now[n] in out and before.get(n) == "cleared"), key=natural)
    back = sorted((n for n in now if now[n] == "cleared" and before.get(n) in out), key=natural)
    added, gone = len(set(now) - set(before)), len(set(before) - set(now))
    parts = [f"newly out: {listing(newly, NAMED)}" if newly else "", f"back: {listing(back, NAMED)}" if back else ""]
    parts += [f"{added} added" if added else "", f"{gone} gone" if gone else ""]
    return "; ".join(part for part in parts if part) or "no change"


def _again(line: t.Sequence[Row]) -> list[str]:
    """Name machines that were drained or watched in several runs: by physical host, where it is known."""
    seen: dict[str, int] = {}
    for certificate in line:
        nodes = mapping(certificate.get("nodes")).items()
        bad = {
            str(mapping(a).get("physical_host") or name)
            for name, a in nodes
            if mapping(a).get("status") in ("drained", "watched")
        }
        for machine in bad:
            seen[machine] = seen.get(machine, 0) + 1
    return [
        f"{machine} ({times} times)" for machine, times in sorted(seen.items(), key=lambda item: -item[1]) if times > 1
    ]


def untested(fleet: Fleet) -> Html | None:
    """Show who was planned and not tested, and why."""
    nodes = [node for node in fleet.nodes if node.status == "untested"]
    if not nodes:
        return None
    reasons: dict[str, list[str]] = {}
    for node in nodes:
        reasons.setdefault(node.reason or "no reason given", []).append(node.name)
    body = [
        el("tr", el("td", short(len(names)), class_="number"), el("td", why), el("td", listing(names, 40)))
        for why, names in reasons.items()
    ]
    certificate = fleet.certificate
    planned, missing = (
        int(number(certificate.get("planned")) or len(fleet.nodes)),
        len(rows(certificate.get("untested"))) or len(nodes),
    )
    note = f"{short(planned)} planned = {short(planned - missing)} reached + {short(missing)} untested"
    return section("not-tested", "Not tested", note, table(["Nodes>", "Why", "Which"], body))
