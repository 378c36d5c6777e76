# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster template declares. Pure.

It is no file that configparser reads: brackets nest, and values may span lines.
"""

from __future__ import annotations

import re
import typing as t

_PARAMETER = re.compile(r"\s*\[\[\[\s*parameter\s+(\w+)\s*\]\]\]\s*(?:#.*)?$")
_SECTION = re.compile(r"\s*\[")
_SETTING = re.compile(r"\s*([\w.]+)\s*:?=\s*(.*?)\s*$")
_CLUSTER = re.compile(r"^\s*\[cluster\s+([^\]]+?)\s*\]", re.MULTILINE)
_QUOTES = "'''"
# Words of the expression language that are not parameters, and what every cluster has.
_WORDS = {"true", "false", "undefined", "ClusterName"}


class Declared(t.NamedTuple):
    """One parameter; ``default`` is the text of the template, None without one."""

    kind: str
    default: str | None
    required: bool


def _lines(text: str) -> t.Iterator[str]:
    """Settings and sections without comments; a value in triple quotes counts as one line."""
    inside = False
    for line in text.splitlines():
        if inside:
            inside = _QUOTES not in line
        elif line.strip() and not line.lstrip().startswith("#"):
            inside = line.count(_QUOTES) == 1
            yield line


def declared(text: str) -> dict[str, Declared]:
    """Every ``[[[parameter X]]]`` with what is said about it."""
    found: dict[str, Declared] = {}
    name = ""
    for line in _lines(text):
        match = _PARAMETER.match(line)
        if match:
            name = match.group(1)
            found[name] = Declared("", None, False)
        elif _SECTION.match(line):
            name = ""
        elif name:
            found[name] = _with(found[name], line)
    return found


def _with(one: Declared, line: str) -> Declared:
    match = _SETTING.match(line)
    key, value = match.groups() if match else ("", "")
    if key == "ParameterType":
        return one._replace(kind=value)
    if key == "DefaultValue":
        return one._replace(default=value)
    if key == "Required":
        return one._replace(required=value.lower() == "true")
    return one


def used(text: str) -> set[str]:
    """Every parameter that is read, as ``$Name`` or inside ``${…}``."""
    found: set[str] = set()
    for line in _lines(text):
        dummy, dummy, value = line.partition("=")
        for expression in re.findall(r"\$\{(.*)\}", value):
            bare = re.sub(r'"[^"]*"', "", expression)
            found |= {word for word in re.findall(r"[A-Za-z_]\w*(?!\w|\s*\()", bare) if word not in _WORDS}
        found |= set(re.findall(r"\$([A-Za-z_]\w*)", value))
    return found


def clusters(text: str) -> list[str]:
    """The names of the clusters in the file."""
    return _CLUSTER.findall(text)
