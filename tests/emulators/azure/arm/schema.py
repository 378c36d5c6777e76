# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which types exist, with which api-versions, and which properties their bodies may have."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from .http import ArmError

HERE = Path(__file__).parents[1]
# ARM takes these from a body and leaves them out.
ENVELOPE = ("id", "name", "type", "systemData", "etag")
PYTHON: dict[str, t.Any] = {"str": str, "int": int, "float": (int, float), "bool": bool}


class Kind(t.NamedTuple):
    """A resource type: ``name`` with its namespace, ``rules`` from the provider's file, its ``models``."""

    name: str
    rules: dict[str, t.Any]
    models: dict[str, t.Any]


class Schemas:
    """All providers/*.json."""

    def __init__(self) -> None:
        self.providers = {}
        for path in sorted((HERE / "providers").glob("*.json")):
            data = json.loads(path.read_text())
            self.providers[data["namespace"].lower()] = data
        self.kinds = {
            f"{data['namespace']}/{name}".lower(): Kind(f"{data['namespace']}/{name}", rules, data["models"])
            for data in self.providers.values()
            for name, rules in data["types"].items()
        }

    def kind(self, name: str, version: str) -> Kind:
        """Find a type by name and api-version, or refuse as ARM does."""
        namespace, dummy, short = name.partition("/")
        if namespace.lower() not in self.providers:
            raise ArmError(404, "InvalidResourceNamespace", f"The resource namespace '{namespace}' is invalid.")
        found = self.kinds.get(name.lower())
        if not found:
            message = f"The resource type '{short}' could not be found in the namespace '{namespace}'"
            raise ArmError(404, "InvalidResourceType", f"{message} for api version '{version}'.")
        self.check_version(found, version)
        return found

    @staticmethod
    def check_version(kind: Kind, version: str) -> None:
        known = kind.rules["versions"]
        if not version:
            message = "The api-version query parameter (?api-version=) is required for all requests."
            raise ArmError(400, "MissingApiVersionParameter", message)
        if version not in known:
            short = kind.name.partition("/")[2]
            message = f"No registered resource provider found for API version '{version}' for type '{short}'."
            supported = f"The supported api-versions are '{', '.join(known)}'."
            raise ArmError(400, "NoRegisteredProviderFound", f"{message} {supported}")


def _problems(said: t.Any, value: t.Any, models: dict[str, t.Any], where: str, partial: bool) -> t.Iterator[str]:
    if isinstance(said, dict):
        yield from _object(said, value, models, where, partial)
        return
    kind = said.rstrip("!~")
    if value is None or said.endswith("~") or kind == "object":
        return
    if kind[0] == "[":
        if not isinstance(value, list):
            yield f"{where} is to be an array"
            return
        for number, item in enumerate(value):
            yield from _problems(kind[1:-1], item, models, f"{where}[{number}]", partial)
    elif kind[0] == "{":
        if not isinstance(value, dict):
            yield f"{where} is to be an object"
            return
        for key, item in value.items():
            yield from _problems(kind[1:-1], item, models, f"{where}.{key}", partial)
    elif kind in models:
        yield from _object(models[kind], value, models, where, partial)
    else:
        yield from _plain(kind, value, where)


def _plain(kind: str, value: t.Any, where: str) -> t.Iterator[str]:
    if kind in PYTHON:
        if not isinstance(value, PYTHON[kind]) or (kind != "bool" and isinstance(value, bool)):
            yield f"Error converting value {json.dumps(value)} to type '{kind}'. Path '{where}'"
    elif not isinstance(value, str) or value.lower() not in kind.lower().split("|"):
        yield f"Value '{value}' at '{where}' is not one of: {kind.replace('|', ', ')}"


def _object(model: dict[str, t.Any], value: t.Any, models: t.Any, where: str, partial: bool) -> t.Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where or 'The body'} is to be an object"
        return
    for key, item in value.items():
        path = f"{where}.{key}" if where else key
        if key not in model and (where or key not in ENVELOPE):
            yield f"Could not find member '{key}' on the object. Path '{path}'"
        elif key in model:
            yield from _problems(model[key], item, models, path, partial)
    if not partial:
        yield from _missing(model, value, where)


def _missing(model: dict[str, t.Any], value: dict[str, t.Any], where: str) -> t.Iterator[str]:
    for key, said in model.items():
        path = f"{where}.{key}" if where else key
        if isinstance(said, dict):
            if key not in value:
                yield from _missing(said, {}, path)
        elif said.endswith("!") and value.get(key) is None:
            yield f"Required property '{key}' not found. Path '{path}'"


def check(model: str, models: dict[str, t.Any], body: t.Any, partial: bool = False) -> None:
    """Refuse a body with unknown, missing or wrong properties; every problem at once."""
    found = list(_object(models[model], body, models, "", partial))
    if found:
        message = "The request content was invalid and could not be deserialized: " + "; ".join(found) + "."
        raise ArmError(400, "InvalidRequestContent", message, details=[])


def read_only(model: t.Any, models: dict[str, t.Any], body: t.Any) -> t.Any:
    """Leave out what only the service sets, and what is null."""
    if isinstance(model, str):
        name = model.rstrip("!~")
        if name.startswith("[") and isinstance(body, list):
            return [read_only(name[1:-1], models, item) for item in body]
        if name not in models:
            return (
                next((one for one in name.split("|") if str(body).lower() == one.lower()), body)
                if "|" in name
                else body
            )
        model = models[name]
    if not isinstance(body, dict):
        return body
    kept = {}
    for key, value in body.items():
        said = model.get(key, "object")
        if value is None or (isinstance(said, str) and said.endswith("~")):
            continue
        kept[key] = read_only(said, models, value)
    return kept
