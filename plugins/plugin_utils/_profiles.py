# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SKU profiles: one YAML file per machine type in ``profiles/``. Private.

A profile lies over its ``base`` (one or several files whose names start with ``_``), what a site says lies over the
profile, by the same rules: mappings are merged, everything else is replaced, null takes a key away. Expectations are
merged one by one: the same check, metric, labels, node count and verdict replace, ``value: null`` takes one away.
"""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import yaml
from ansible.module_utils.common.yaml import yaml_load  # by libyaml: each host reads profiles, several times

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profile_metrics import unit_problem

DIRECTORY = Path(__file__).parent / "profiles"
GENERIC = "generic"
_VALUES = {"op", "value", "unit", "source"}
_PREFIX = "standard_"


class ProfileError(ValueError):
    """A profile cannot be used; the text is fit for the user."""


def file_name(sku: str) -> str:
    """Return the file of a SKU; Azure spells a size with and without its prefix and in several cases."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", sku):
        raise ProfileError(f"cluster_sku is {sku!r}; letters, digits, '_', '.' and '-' are accepted")
    name = sku.lower()
    return f"{name[len(_PREFIX) :] if name.startswith(_PREFIX) else name}.yml"


def load(sku: str, directory: Path = DIRECTORY) -> Json:
    """Return the profile of a SKU; an unknown one gets the generic profile, which judges nothing."""
    path = directory / file_name(sku)
    known = path.is_file()
    path = path if known else directory / f"{GENERIC}.yml"
    return {**_read(path), "sku": sku, "known": known, "profile": path.stem}


def _read(path: Path, over: tuple[str, ...] = ()) -> Json:
    """Read a file and lay it over its bases, from the first to the last."""
    if path.name in over:
        raise ProfileError(f"profile {path.name} is its own base: {' > '.join([*over, path.name])}")
    try:
        found = yaml_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as exc:
        raise ProfileError(f"profile {path.name} is no YAML: {exc}") from exc
    if not isinstance(found, dict) or not isinstance(found.get("expect", []), list):
        raise ProfileError(f"profile {path.name} is no mapping with a list named expect")
    bases = found.pop("base", [])
    result: Json = {"expect": []}
    for base in [bases] if isinstance(bases, str) else bases:
        if not base.startswith("_"):
            raise ProfileError(f"profile {path.name} has the base {base}; names of bases start with '_'")
        result = override(result, _read(path.with_name(f"{base}.yml"), (*over, path.name)))
    return override(result, found) if bases else {"expect": [], **found}


def override(profile: Json, site: t.Mapping[str, t.Any]) -> Json:
    """Return the profile as a site changes it."""
    rest = {key: value for key, value in site.items() if key != "expect"}
    under = {key: value for key, value in profile.items() if key != "expect"}
    for one in site.get("reference") or []:
        _validate(one)
    return {**_merge(under, rest), "expect": _merge_expect(profile["expect"], site.get("expect") or [])}


def _merge(under: t.Mapping[str, t.Any], over: t.Mapping[str, t.Any]) -> Json:
    result = dict(under)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, t.Mapping):
            below = under.get(key)
            result[key] = _merge(below if isinstance(below, t.Mapping) else {}, value)
        else:
            result[key] = value
    return result


def _merge_expect(under: t.Sequence[Json], over: t.Sequence[t.Mapping[str, t.Any]]) -> list[Json]:
    result = {_identity(one): dict(one) for one in under}
    for one in over:
        if "value" in one and one["value"] is None:
            if result.pop(_identity(one), None) is None:
                raise ProfileError(f"there is no expectation to take away that is {dict(one)!r}")
        else:
            _validate(one)
            result[_identity(one)] = dict(one)
    return list(result.values())


def _validate(expectation: t.Mapping[str, t.Any]) -> None:
    validate_expectation(expectation)
    if unit_problem(expectation):
        raise ProfileError(unit_problem(expectation))


def _identity(expectation: t.Mapping[str, t.Any]) -> tuple[tuple[str, str], ...]:
    """Two expectations are the same one when they differ in nothing but the value and where it comes from."""
    about = {key: str(value) for key, value in expectation.items() if key not in _VALUES and value is not None}
    return tuple(sorted({"verdict": "fail", **about}.items()))
