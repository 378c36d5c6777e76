# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cluster templates: sections by brackets, parameters, inheritance; expressions as far as Slurm templates use them."""

from __future__ import annotations

import json
import re
import typing as t

from .store import Json, UserError

_SECTION = re.compile(r"^(\[{1,4})\s*([^\[\]]+?)\s*(\]{1,4})\s*(?:#.*)?$")
_VALUE = re.compile(r"^([\w.\-]+)\s*(:?=)\s*(.*)$")
KINDS = {
    1: {"cluster", "parameters", "environment"},
    2: {"node", "nodearray", "parameters", "volume"},
    3: {"configuration", "cluster-init", "volume", "network-interface", "parameter", "input-endpoint", "mount"},
    4: {"configuration", "mount"},
}


class Section(t.NamedTuple):
    kind: str
    name: str
    values: Json
    children: list[Section]


def parse(text: str) -> list[Section]:
    """Read the file into trees of sections; what cannot be read is named by its line."""
    top = Section("", "", {}, [])
    stack = [top]
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", ";")):
            continue
        match = _SECTION.match(stripped)
        if match and len(match[1]) == len(match[3]):
            _open(stack, len(match[1]), match[2], number)
            continue
        match = _VALUE.match(stripped)
        if not match or len(stack) < 2:
            raise UserError(f"Error parsing cluster template: line {number}: {stripped[:60]!r}")
        value = match[3]
        if value.startswith("'''"):
            value = _long(value, lines)
        stack[-1].values[match[1]] = value
    return top.children


def _long(value: str, lines: t.Iterator[tuple[int, str]]) -> str:
    value = value[3:]
    while not value.rstrip().endswith("'''"):
        try:
            value += "\n" + next(lines)[1]
        except StopIteration:
            raise UserError("Error parsing cluster template: ''' without an end") from None
    return value.rstrip()[:-3]


def _open(stack: list[Section], depth: int, title: str, number: int) -> None:
    kind, dummy, name = title.partition(" ")
    if depth > len(stack):
        raise UserError(f"Error parsing cluster template: line {number}: [{title}] has too many brackets")
    if kind not in KINDS[depth]:
        raise UserError(f"Error parsing cluster template: line {number}: unknown section {kind!r}")
    del stack[depth:]
    made = Section(kind, name.strip(), {}, [])
    stack[-1].children.append(made)
    stack.append(made)


def walk(sections: list[Section], kind: str) -> t.Iterator[Section]:
    for one in sections:
        if one.kind == kind:
            yield one
        yield from walk(one.children, kind)


def cluster(sections: list[Section], name: str | None) -> Section:
    found = [one for one in sections if one.kind == "cluster" and (name is None or one.name == name)]
    if len(found) != 1:
        there = [one.name for one in sections if one.kind == "cluster"]
        raise UserError(f"Could not find cluster {name!r} in the template; it has {there}")
    return found[0]


# The kinds of parameters that templates of CycleCloud and its documentation name; without one it is a text.
PARAMETER_TYPES = set(
    """String Text Password Integer Float Boolean StringList Record Cloud.Region Cloud.MachineType Cloud.Image
    Cloud.Credentials Cloud.ClusterInitSpecs Azure.Subnet Azure.ManagedIdentity""".split()
)


def declared(sections: list[Section]) -> dict[str, Json]:
    """Every parameter by its name; one of an unknown kind is refused."""
    found = {one.name: one.values for one in walk(sections, "parameter")}
    for name, values in found.items():
        if values.get("ParameterType", "String") not in PARAMETER_TYPES:
            raise UserError(f"Parameter {name!r}: unknown ParameterType {values['ParameterType']!r}")
    return found


def parameters(sections: list[Section], given: Json) -> tuple[Json, list[str]]:
    """Return the values with defaults, and the names that no section declares (CycleCloud takes them silently)."""
    known = declared(sections)
    values: Json = {}
    for name, one in known.items():
        if name in given:
            values[name] = given[name]
        elif "DefaultValue" in one:
            values[name] = plain(one["DefaultValue"])
    missing = [
        name
        for name, one in known.items()
        if plain(one.get("Required", "false")) is True and values.get(name) in (None, "")
    ]
    if missing:
        raise UserError(f"The following parameters must be specified: {', '.join(missing)}")
    return values, sorted(set(given) - set(known))


def plain(text: t.Any) -> t.Any:
    """A literal of the template as a value."""
    if not isinstance(text, str):
        return text
    bare = text.strip()
    if bare.lower() in {"true", "false"}:
        return bare.lower() == "true"
    if bare.lower() == "undefined":
        return None
    if re.fullmatch(r"-?\d+", bare):
        return int(bare)
    if re.fullmatch(r"-?\d+\.\d+", bare):
        return float(bare)
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'":
        return bare[1:-1]
    return bare


def evaluate(text: t.Any, values: Json) -> t.Any:
    """Resolve $Name, ${expression} and text around them; an expression that is not known stays as it is."""
    if not isinstance(text, str):
        return text
    bare = text.strip()
    if re.fullmatch(r"\$\w+", bare):
        return values.get(bare[1:])
    whole = re.fullmatch(r"\$\{(.*)\}", bare, re.S)
    if whole:
        return _expression(whole[1].strip(), values)
    if "$" in bare and not bare.startswith("{"):
        bare = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda m: str(values.get(m[1] or m[2], "")), bare)
    return plain(bare)


def _expression(text: str, values: Json) -> t.Any:
    call = re.fullmatch(r"ifThenElse\((.*)\)", text, re.S | re.I)
    if call:
        parts = _arguments(call[1])
        if len(parts) == 3:
            chosen = parts[1] if _expression(parts[0], values) is True else parts[2]
            return _expression(chosen, values)
    joined = re.fullmatch(r"strcat\((.*)\)", text, re.S | re.I)
    if joined and "(" not in joined[1]:
        return "".join(str(_expression(part, values) or "") for part in _arguments(joined[1]))
    for sign in ("||", "&&"):
        if sign in text and "(" not in text:
            found = [_expression(part.strip(), values) is True for part in text.split(sign)]
            return any(found) if sign == "||" else all(found)
    compared = _comparison(text, values)
    if compared is not None:
        return compared
    if text.startswith("!") and "(" not in text:
        return _expression(text[1:].strip(), values) is not True
    if re.fullmatch(r"[A-Za-z_]\w*", text) and text.lower() not in {"true", "false", "undefined"}:
        return values.get(text)
    return plain(text) if "(" not in text else None


def _comparison(text: str, values: Json) -> bool | None:
    """Return what a comparison says, None for what is none."""
    for sign in ("=!=", "=?=", "==", "!=", " isnt ", " is "):
        left, middle, right = text.partition(sign)
        if middle and "(" not in text:
            same = _expression(left.strip(), values) == _expression(right.strip(), values)
            return same if sign in {"==", "=?=", " is "} else not same
    left, middle, right = text.partition(">")
    if middle and "(" not in text:
        sides = [_expression(side.strip(), values) for side in (left, right)]
        return all(isinstance(side, (int, float)) for side in sides) and bool(sides[0] > sides[1])
    return None


def _arguments(text: str) -> list[str]:
    parts, depth, quote, now = [], 0, "", ""
    for sign in text:
        quote = "" if sign == quote else (sign if not quote and sign in "\"'" else quote)
        depth += (sign in "([") - (sign in ")]") if not quote else 0
        if sign == "," and not depth and not quote:
            parts.append(now.strip())
            now = ""
        else:
            now += sign
    return [*parts, now.strip()]


def nodes(top: Section, values: Json) -> dict[str, Json]:
    """Every node and node array that is not abstract, with what it inherits."""
    sections = {one.name: one for one in top.children if one.kind in {"node", "nodearray"}}
    result = {}
    for name, one in sections.items():
        if name == "defaults" or plain(one.values.get("Abstract", "false")) is True:
            continue
        chain = [sections["defaults"]] if "defaults" in sections else []
        for link in _chain(one, sections, ()):
            if link not in chain:
                chain.append(link)
        result[name] = _resolve(one.kind, chain, values)
    return result


def _chain(one: Section, sections: dict[str, Section], seen: tuple[str, ...]) -> list[Section]:
    found: list[Section] = []
    for base in filter(None, (part.strip() for part in str(one.values.get("Extends", "")).split(","))):
        if base not in sections or base in seen:
            raise UserError(f"Node {one.name!r} extends {base!r}, which is not there")
        found += _chain(sections[base], sections, (*seen, one.name))
    return [*found, one]


def _resolve(kind: str, chain: list[Section], values: Json) -> Json:
    attributes: Json = {}
    configuration: Json = {}
    specs: list[str] = []
    volumes: Json = {}
    for link in chain:
        for key, value in link.values.items():
            if key not in {"Extends", "Abstract"}:
                attributes[key] = evaluate(value, values)
        for child in link.children:
            if child.kind == "configuration":
                prefix = f"{child.name}." if child.name else ""
                for key, value in child.values.items():
                    configuration[prefix + key] = evaluate(value, values)
            elif child.kind == "cluster-init":
                specs.append(child.name)
            elif child.kind == "volume":
                found = {key: evaluate(value, values) for key, value in child.values.items()}
                volumes[child.name] = {**volumes.get(child.name, {}), **found}
    return {
        "kind": kind,
        "attributes": attributes,
        "configuration": nested(configuration),
        "specs": specs,
        "volumes": volumes,
    }


def nested(flat: Json) -> Json:
    """slurm.role = x  ->  {"slurm": {"role": "x"}}"""
    made: Json = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        place = made
        for step in path:
            following = place.setdefault(step, {})
            if not isinstance(following, dict):
                following = place[step] = {"": following}
            place = following
        place[last] = value
    return made


def read_parameters(text: str) -> Json:
    try:
        found = json.loads(text)
    except ValueError as exc:
        raise UserError(f"Parameters are no JSON: {exc}") from None
    if not isinstance(found, dict):
        raise UserError("Parameters are no JSON object")
    return found
