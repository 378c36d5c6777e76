# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SKU profiles: one YAML file per machine type in ``profiles/``. Private."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, validate_expectation

DIRECTORY = Path(__file__).parent / "profiles"
GENERIC = "generic"
_VALUES = {"op", "value", "unit", "source"}


class ProfileError(ValueError):
    """A profile cannot be used; the text is fit for the user."""


def file_name(sku: str) -> str:
    """Return the file of a SKU; vendors spell the same size in several cases."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", sku):
        raise ProfileError(f"cluster_sku is {sku!r}; letters, digits, '_', '.' and '-' are accepted")
    return f"{sku.lower()}.yml"


def load(sku: str, directory: Path = DIRECTORY) -> Json:
    """Return the profile of a SKU; an unknown one gets the generic profile, which judges nothing."""
    path = directory / file_name(sku)
    known = path.is_file()
    path = path if known else directory / f"{GENERIC}.yml"
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or not isinstance(found.get("expect"), list):
        raise ProfileError(f"profile {path.name} is no mapping with a list named expect")
    return {**found, "sku": sku, "known": known, "profile": path.stem}


def override(profile: Json, site: t.Mapping[str, t.Any]) -> Json:
    """Return the profile as a site changes it: keys are replaced, expectations one by one."""
    rest = {key: value for key, value in site.items() if key != "expect"}
    expect = {_identity(one): one for one in profile["expect"]}
    expect.update({_identity(one): dict(one) for one in site.get("expect") or []})
    for one in expect.values():
        validate_expectation(one)
    return {**profile, **rest, "expect": list(expect.values())}


def _identity(expectation: t.Mapping[str, t.Any]) -> tuple[tuple[str, str], ...]:
    """Two expectations are the same one when they differ in nothing but the value and where it comes from."""
    return tuple(sorted((key, str(value)) for key, value in expectation.items() if key not in _VALUES))
