# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where every node stands, as far as all that came back lets anyone believe. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.blame import Causes, Kind, Sight, solve
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import Options
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.kinds import kinds_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import PAIRS, Ledger

_MOST = 64
_SHOWS = (0.8, 0.98)  # besides q0: a constant fault shows in nearly every test
_FABRIC = (0.001, 0.9)  # share of leaves at fault before anything is known, and how often one shows
_LEAF = 4  # nodes; of a smaller leaf the switch cannot be told from its nodes
SUSPECT = 0.5  # a cause that is more likely than not
_WEIGHT = 100.0  # causes and tests that the prior is worth


class Standing(t.NamedTuple):
    """What is believed after some round."""

    kinds: dict[str, str]
    ratios: dict[str, float]
    posterior: dict[str, float]
    lost: dict[str, float]
    fabric: dict[str, float]
    findings: list[Json]
    noise: float
    share: float
    unfit: frozenset[str]
    good: dict[str, int]
    weak: dict[str, str]


def stand(ledger: Ledger, before: Standing | None = None) -> Standing:
    """Return where everything stands; ``before`` knows already what every test came to."""
    kinds, ratios, findings, weak = (before.kinds, before.ratios, [], before.weak) if before else kinds_of(ledger)
    posterior, fabric, noise, share = _blame(ledger, _sights(ledger, kinds))
    own = (_unfit(ledger, kinds), _good(ledger, kinds))
    return Standing(kinds, ratios, posterior, _lost(ledger, kinds), fabric, findings, noise, share, *own, weak)


def _good(ledger: Ledger, kinds: t.Mapping[str, str]) -> dict[str, int]:
    """Return how many meetings of each node ended well."""
    found = {node.name: 0 for node in ledger.taking_part()}
    for test, dummy in [*ledger.results(*PAIRS), *ledger.again()]:
        for name in test.nodes if kinds[test.id] == "ok" else ():
            found[name] = found.get(name, 0) + 1
    return found


def enough(options: Options) -> int:
    """Return after how many good tests a fault that shows with q0 is unlikely, whatever is learnt of the fleet."""
    odds, tests = options.prior / (1 - options.prior), 0
    while odds > options.clear_at / (1 - options.clear_at) and tests < _MOST:
        odds *= 1 - options.q0
        tests += 1
    return tests


def _unfit(ledger: Ledger, kinds: t.Mapping[str, str]) -> frozenset[str]:
    """Return the nodes that were found wrong by themselves, twice: no meeting with others can clear them."""
    odd = {test.nodes[0] for test, outcome in ledger.results("reach") if outcome.kind == "bad"}
    return frozenset(odd | {test.nodes[0] for test, dummy in ledger.own() if kinds[test.id] == "bad"})


def _sights(ledger: Ledger, kinds: t.Mapping[str, str]) -> list[tuple[tuple[str, ...], bool]]:
    """Return what speaks of nodes: pairs always, a node's own suite once it failed (else it is about other parts)."""
    linked = _links(ledger, kinds)
    met = [*ledger.results(*PAIRS), *ledger.again()]
    found = [
        (test.nodes, kinds[test.id] == "bad")
        for test, dummy in met
        if kinds[test.id] in ("ok", "bad") and test.nodes not in linked
    ]
    own = [(test.nodes, kinds[test.id]) for test, dummy in ledger.alone()]
    failed = {nodes for nodes, kind in own if kind == "bad"}
    return found + [(nodes, kind == "bad") for nodes, kind in own if nodes in failed and kind != "infra"]


def _links(ledger: Ledger, kinds: t.Mapping[str, str]) -> set[tuple[str, ...]]:
    """Return the pairs that failed again when both were believed to be well: it is what lies between them."""
    return {test.nodes for test, dummy in ledger.again() if kinds[test.id] == "bad"}


def links(ledger: Ledger, standing: Standing) -> list[tuple[str, ...]]:
    """Return the pairs whose connection is to blame."""
    well = {name for name, posterior in standing.posterior.items() if posterior < SUSPECT}
    return sorted(nodes for nodes in _links(ledger, standing.kinds) if well.issuperset(nodes))


def _blame(
    ledger: Ledger, sights: t.Sequence[tuple[tuple[str, ...], bool]]
) -> tuple[dict[str, float], dict[str, float], float, float]:
    options = ledger.options
    names = [node.name for node in ledger.taking_part()]
    number = {name: n for n, name in enumerate(names)}
    node = _node(options)
    fabric = _fabric(ledger)
    place = {name: len(names) + n for n, name in enumerate(fabric)}
    causes = Causes(
        [node] * len(names) + [Kind(name.split()[0], (_FABRIC,)) for name in fabric],
        [ledger.nodes[name].suspicion for name in names] + [0.0] * len(fabric),
    )
    seen = []
    for nodes, bad in sights:
        members = [number[name] for name in nodes if name in number]
        over = [place[name] for name in _above(ledger, nodes) if name in place]
        if members:
            seen.append(Sight((*members, *over), bad))
    beliefs = solve(causes, seen, options.e0, _WEIGHT)
    posterior = dict(zip(names, beliefs.posterior))
    above = {name: beliefs.posterior[n] for name, n in place.items()}
    return posterior, above, beliefs.noise, sum(beliefs.shares.get("node", (0.0,)))


def _node(options: Options) -> Kind:
    """Return how a node may be at fault: seldom seen, mostly, always."""
    shows = (options.q0, *_SHOWS)
    return Kind("node", tuple((options.prior / len(shows), q) for q in shows))


def _fabric(ledger: Ledger) -> list[str]:
    """Return the switches and uplinks that can be told from the nodes below them."""
    counts: dict[str, int] = {}
    for node in ledger.taking_part():
        counts[node.leaf] = counts.get(node.leaf, 0) + 1
    leaves = sorted(leaf for leaf, count in counts.items() if leaf and count >= _LEAF)
    return [f"{kind} {leaf}" for kind in ("leaf", "uplink") for leaf in leaves] if len(counts) > 1 else []


def explained(ledger: Ledger, standing: Standing, nodes: t.Sequence[str]) -> bool:
    """Say whether something that these nodes hang on is suspect."""
    return any(standing.fabric.get(name, 0.0) >= SUSPECT for name in _above(ledger, nodes))


def _above(ledger: Ledger, nodes: t.Sequence[str]) -> list[str]:
    """Return what a test goes through; of one node nothing."""
    leaves = sorted({ledger.nodes[name].leaf for name in nodes})
    if len(nodes) == 1:
        return []
    ups = [f"uplink {leaf}" for leaf in leaves] if len(leaves) > 1 else []
    return [f"leaf {leaf}" for leaf in leaves] + ups


def _lost(ledger: Ledger, kinds: t.Mapping[str, str]) -> dict[str, float]:
    """Return who makes tests end without a result: blamed the same way, but never as hardware."""
    names = [node.name for node in ledger.taking_part()]
    number = {name: n for n, name in enumerate(names)}
    kind = _node(ledger.options)
    seen = []
    for test, dummy in ledger.results(*PAIRS):
        members = tuple(number[name] for name in test.nodes if name in number)
        seen.append(Sight(members, kinds[test.id] == "infra"))
    beliefs = solve(Causes([kind] * len(names), [0.0] * len(names)), seen, ledger.options.e0, _WEIGHT)
    return dict(zip(names, beliefs.posterior))
