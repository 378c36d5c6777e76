# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm hostlist expressions to names and back, and Slurm's nodes as inventory hosts. No I/O."""

from __future__ import annotations

import itertools
import math
import re
import typing as t

DEFAULT_LIMIT = 65536
_MAX_DIGITS = 18  # Slurm stores a number in 64 bits and silently clips what does not fit
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_DIGITS = re.compile(r"[0-9]+")
_NUMBERED = re.compile(rf"(.*?)([0-9]{{1,{_MAX_DIGITS}}})", re.DOTALL)
_FORBIDDEN = re.compile(r"[\[\],\s]")


class HostlistError(ValueError):
    """The expression cannot be read; the text is fit for the user."""


def expand(text: str, limit: int = DEFAULT_LIMIT) -> list[str]:
    """Return the names in their written order; repeated names stay repeated, as in Slurm."""
    if not text.strip():
        return []
    if re.search(r"\[[^\]]*\s", text):
        raise HostlistError(f"blank inside brackets in hostlist {text!r}")
    names: list[str] = []
    for term in _split(re.sub(r"\s*,\s*|\s+", ",", text.strip())):
        if not term:
            raise HostlistError(f"empty item in hostlist {text!r}")
        names.extend(_expand_term(term, text, limit - len(names)))
    return names


def compress(names: t.Iterable[str], sort: bool = False, unique: bool = False) -> str:
    """Return one expression for the names; ``expand(compress(names)) == names`` without the options."""
    hosts = list(names)
    for name in hosts:
        if not name or _FORBIDDEN.search(name):
            raise HostlistError(f"{name!r} is not a host name: it is empty or has a bracket, comma or blank")
    if unique:
        hosts = list(dict.fromkeys(hosts))
    if sort:
        hosts.sort(key=_natural_key)
    parts = [_numbered(name) for name in hosts]
    return ",".join(_fold(prefix, [d for dummy, d in group]) for prefix, group in itertools.groupby(parts, _first))


def _first(pair: tuple[str, str]) -> str:
    return pair[0]


def _numbered(name: str) -> tuple[str, str]:
    match = _NUMBERED.fullmatch(name)
    return (match.group(1), match.group(2)) if match else (name, "")


def _natural_key(name: str) -> list[tuple[int, str, int]]:
    """Order n2 before n10 without turning text into numbers, however long they are."""
    key = []
    for piece in re.findall(r"[0-9]+|[^0-9]+", name):
        digits = piece.lstrip("0") if piece[0] in "0123456789" else ""
        key.append((len(digits), digits, len(piece)) if piece[0] in "0123456789" else (-1, piece, 0))
    return key


def _fold(prefix: str, digits: list[str]) -> str:
    if digits[0] == "":
        return ",".join([prefix] * len(digits))
    if len(digits) == 1:
        return prefix + digits[0]
    runs: list[list[str]] = []
    for text in digits:
        if runs and _format(int(runs[-1][-1]) + 1, len(runs[-1][0])) == text:
            runs[-1].append(text)
        else:
            runs.append([text])
    inner = ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"{prefix}[{inner}]"


def _format(number: int, width: int) -> str:
    return f"{number:0{width}d}"


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets and check that brackets pair up."""
    depth, items, start = 0, [], 0
    for index, char in enumerate(text):
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth < 0:
            raise HostlistError(f"']' without '[' in hostlist {text!r}")
        if char == "," and depth == 0:
            items.append(text[start:index])
            start = index + 1
    if depth:
        raise HostlistError(f"'[' without ']' in hostlist {text!r}")
    return [*items, text[start:]]


def _expand_term(term: str, text: str, limit: int) -> list[str]:
    """Expand one item without top-level commas, for example ``rack[0-1]node[00-03]-ib``."""
    choices: list[list[str]] = []
    for literal, inner in _pieces(term):
        choices.append([literal] if inner is None else _expand_brackets(inner, text, limit))
    if math.prod(len(c) for c in choices) > limit:
        raise _too_many(text)
    return ["".join(parts) for parts in itertools.product(*choices)]


def _pieces(term: str) -> t.Iterator[tuple[str, str | None]]:
    """Yield (literal, None) and ("", bracket content) in turn; brackets are known to pair up."""
    depth, start = 0, 0
    for index, char in enumerate(term):
        if char == "[":
            if depth == 0 and index > start:
                yield term[start:index], None
            start = index + 1 if depth == 0 else start
            depth += 1
        elif char == "]":
            depth -= 1
            if depth == 0:
                yield "", term[start:index]
                start = index + 1
    if start < len(term):
        yield term[start:], None


def _expand_brackets(inner: str, text: str, limit: int) -> list[str]:
    names: list[str] = []
    for term in _split(inner):
        match = _RANGE.fullmatch(term)
        if match:
            names.extend(_expand_range(match.group(1), match.group(2), text, limit - len(names)))
        elif "[" in term and _DIGITS.fullmatch(term.split("[", 1)[0] or "0"):
            names.extend(_expand_term(term, text, limit - len(names)))
        elif _DIGITS.fullmatch(term):
            names.append(term)
        else:
            raise HostlistError(f"{term!r} is neither a number nor a range like 1-8 in hostlist {text!r}")
    if len(names) > limit:
        raise _too_many(text)
    return names


def _expand_range(low: str, high: str, text: str, limit: int) -> list[str]:
    if max(len(low), len(high)) > _MAX_DIGITS:
        raise HostlistError(f"range {low}-{high} has more than {_MAX_DIGITS} digits in hostlist {text!r}")
    if int(low) > int(high):
        raise HostlistError(f"range {low}-{high} runs backwards in hostlist {text!r}")
    if int(high) - int(low) >= limit:
        raise _too_many(text)
    return [_format(number, len(low)) for number in range(int(low), int(high) + 1)]


def _too_many(text: str) -> HostlistError:
    return HostlistError(f"hostlist {text!r} has more names than the limit allows")


# Slurm's nodes as inventory hosts.


_BUSY = {"ALLOCATED", "MIXED"}


class InventoryHost(t.NamedTuple):
    """One host of an inventory; the groups are names before Ansible's own rules for them."""

    name: str
    variables: dict[str, t.Any]
    groups: list[str]


def to_hosts(nodes: list[dict[str, t.Any]], prefix: str) -> list[InventoryHost]:
    """Return inventory hosts for the nodes that ``state.SlurmReader.nodes`` returns."""
    return [
        InventoryHost(node["name"], _variables(node), [f"{prefix}_{name}" for name in _groups(node)]) for node in nodes
    ]


def _variables(node: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return host variables; an address that only repeats the name must not hide that of another inventory source."""
    variables = {f"slurm_node_{key}": value for key, value in node.items() if key not in {"name", "address"}}
    return {**variables, "ansible_host": node["address"]} if node["address"] != node["name"] else variables


def _groups(node: dict[str, t.Any]) -> list[str]:
    states = [_state(node), *(flag.lower() for flag in node["flags"] if flag != "DRAIN")]
    groups = [f"partition_{name}" for name in node["partitions"]]
    groups += [f"state_{name}" for name in dict.fromkeys(states)]
    return groups + [f"feature_{name}" for name in node["features"]]


def _state(node: dict[str, t.Any]) -> str:
    """Return the state as sinfo shows it: a drained node that is idle is not in the group of idle nodes."""
    if not node["drained"]:
        return str(node["state"]).lower()
    return "draining" if node["state"] in _BUSY or "COMPLETING" in node["flags"] else "drained"
