# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of the power programs, read from a file and checked as a whole. Private."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.provider import Node, PowerError, Provider
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand

_KEYS = {"cluster": str, "settings": dict, "groups": list, "state_dir": str, "retry_after": int, "log": str}
_GROUP = {"nodes", "machine", "user_data"}


class Config(t.NamedTuple):
    """What the programs know; ``nodes`` holds every node that may come to be."""

    cluster: str
    settings: dict[str, t.Any]
    nodes: dict[str, Node]
    state_dir: str
    retry_after: int
    log: str


def load(path: str, provider: type[Provider]) -> Config:
    """Read a file."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as exc:
        raise PowerError(f"{path} cannot be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise PowerError(f"{path} is no JSON: {exc}") from exc
    return read(document, path, provider)


def read(document: t.Any, path: str, provider: type[Provider]) -> Config:
    """Check a document; everything that is wrong is said at once."""
    if not isinstance(document, dict):
        raise PowerError(f"{path} holds no dictionary")
    wrong = [f"{key} is not {kind.__name__}" for key, kind in _KEYS.items() if not isinstance(document.get(key), kind)]
    wrong += [f"{key} is unknown" for key in sorted(set(document) - set(_KEYS))]
    if not wrong:
        wrong += names("settings", document["settings"], provider.SETTINGS)
    found, faults = ({}, []) if wrong else _nodes(document["groups"], provider)
    wrong += faults
    if wrong:
        raise PowerError(f"{path}: {'; '.join(wrong)}")
    return Config(nodes=found, **{key: document[key] for key in _KEYS if key != "groups"})


def names(place: str, given: t.Mapping[str, t.Any], known: t.Mapping[str, bool]) -> list[str]:
    """What is wrong with the names in a dictionary; true means that a name has to be there."""
    absent = [name for name, needed in known.items() if needed and given.get(name) in (None, "")]
    strange = sorted(set(given) - set(known))
    found = [f"{place} lacks {', '.join(absent)}"] if absent else []
    return [*found, f"{place} has {', '.join(strange)}; accepted: {', '.join(sorted(known))}"] if strange else found


def _nodes(groups: t.Sequence[t.Any], provider: type[Provider]) -> tuple[dict[str, Node], list[str]]:
    found: dict[str, Node] = {}
    wrong: list[str] = []
    for number, group in enumerate(groups, 1):
        place = f"group {number}"
        if not isinstance(group, dict) or set(group) != _GROUP or not isinstance(group["machine"], dict):
            wrong.append(f"{place} is no dictionary of {', '.join(sorted(_GROUP))}")
            continue
        wrong += names(f"machine of {place}", group["machine"], provider.MACHINE)
        try:
            members = expand(str(group["nodes"]))
        except HostlistError as exc:
            wrong.append(f"{place}: {exc}")
            continue
        wrong += [f"{name} is in two groups" for name in members if name in found]
        found.update({name: Node(name, group["machine"], str(group["user_data"])) for name in members})
    return found, wrong
