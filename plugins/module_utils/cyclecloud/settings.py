# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings files of CycleCloud, text in and text out: properties, of which the last one counts, and sections. Pure."""

from __future__ import annotations

import re
import typing as t

_PROPERTY = re.compile(r"\s*([\w.]+)\s*=\s*(.*?)\s*$")


def properties(text: str) -> dict[str, str]:
    """Read ``key=value`` lines; the last definition of a key counts."""
    found = (_PROPERTY.match(line) for line in text.splitlines() if not line.lstrip().startswith(("#", "!")))
    return {match.group(1): match.group(2) for match in found if match}


def with_properties(text: str, values: t.Mapping[str, t.Any]) -> str:
    """Set keys in place, at their last definition, and append new ones; everything else stays as it is."""
    wanted = {key: _text(value) for key, value in values.items()}
    lines = text.splitlines()
    places: dict[str, int] = {}
    for number, line in enumerate(lines):
        match = _PROPERTY.match(line)
        if match and not line.lstrip().startswith(("#", "!")):
            places[match.group(1)] = number
    have = properties(text)
    for key, value in wanted.items():
        if key not in places:
            lines.append(f"{key}={value}")
        elif have[key] != value:
            lines[places[key]] = f"{key}={value}"
    return "".join(f"{line}\n" for line in lines)


def shown(text: str) -> str:
    """For a diff: passwords, such as that of the keystore, are only told to be there."""
    return re.sub(r"(?im)^(\s*[\w.]*(?:pass|secret|token)[\w.]*\s*=\s*)\S.*$", r"\1(hidden)", text)


def with_section(text: str, name: str, values: t.Mapping[str, t.Any]) -> str:
    """Set keys of one section of an INI file; other sections, which the command line writes, stay as they are."""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.strip() == f"[{name}]"]
    if not heads:
        body = [f"{key} = {_text(value)}" for key, value in values.items()]
        return "".join(f"{line}\n" for line in [*lines, f"[{name}]", *body])
    start = heads[0] + 1
    end = next((n for n in range(start, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    left = dict(values)
    section = []
    for line in lines[start:end]:
        key = line.partition("=")[0].strip()
        if key in left:
            value = _text(left.pop(key))
            section.append(line if line.partition("=")[2].strip() == value else f"{key} = {value}")
        elif key not in values:
            section.append(line)
    while section and not section[-1].strip():
        section.pop()
    section += [f"{key} = {_text(value)}" for key, value in left.items()]
    blank = [""] if end < len(lines) else []
    return "".join(f"{line}\n" for line in [*lines[:start], *section, *blank, *lines[end:]])


def _text(value: t.Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
