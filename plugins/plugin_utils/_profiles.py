# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SKU profiles: one YAML file per machine type in ``profiles/``, and those of a site. Private.

A site's profile is a file of the same kind in a directory of its own (``cluster_profile_dir``). It wins over the
shipped one of the same name, and may have any shipped profile, a base or a whole machine type, as its base. A schema
says what it may hold.
"""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import yaml
from ansible.module_utils.common.yaml import yaml_load  # by libyaml: each host reads profiles, several times

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profile_metrics import unit_problem
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profile_schema import near, plain, problems

DIRECTORY = Path(__file__).parent / "profiles"
GENERIC = "generic"
_VALUES = {"op", "value", "unit", "source"}
_PREFIX = "standard_"


class ProfileError(ValueError):
    """A profile cannot be used; the text is fit for the user."""


def is_name(sku: str) -> bool:
    """Whether it can be the name of a machine type at all; ``DGX H100``, as people write it, cannot."""
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", sku))


def file_name(sku: str) -> str:
    """Return the file of a SKU; Azure spells a size with and without its prefix and in several cases."""
    if not is_name(sku):
        raise ProfileError(f"cluster_sku is {sku!r}; letters, digits, '_', '.' and '-' are accepted")
    name = sku.lower()
    return f"{name[len(_PREFIX) :] if name.startswith(_PREFIX) else name}.yml"


def names(site: Path | None = None, directory: Path = DIRECTORY) -> list[str]:
    """Return the machine types that have a profile, those of the site included; ``generic`` is none."""
    stems = {path.stem for folder in (directory, site) if folder for path in folder.glob("[!_.]*.yml")}
    return sorted(stems - {GENERIC})


def alike(sku: str, site: Path | None = None) -> list[str]:
    """Return the names that were probably meant, whatever stands between their letters and digits."""
    known, word = names(site), plain(sku)[len(plain(_PREFIX)) if sku.lower().startswith(_PREFIX) else 0 :]
    begun = [name for name in known if word and plain(name).startswith(word)]
    inside = [name for name in known if word and word in plain(name)]
    return list(dict.fromkeys([*begun, *inside, *near(word, known, 0.5)]))[:5]


def load(
    sku: str, directory: Path = DIRECTORY, site: Path | None = None, packed: t.Mapping[str, t.Any] | None = None
) -> Json:
    """Return the profile of a SKU; an unknown one gets the generic profile, which judges nothing.

    ``site`` is the directory of the site's own profiles. ``packed`` has them by their names instead, as read.
    """
    name = file_name(sku)
    stem = name[: -len(".yml")]
    about = {"sku": sku, "known": True, "profile": stem}
    if packed and stem in packed:
        return {**packed[stem], **about}
    own = _site_file(name, site)
    if own and site:
        return {**_read_site(own, directory, site), **about, "origin": "site"}
    if (directory / name).is_file():
        return {**_read(directory / name), **about}
    return {**_read(directory / f"{GENERIC}.yml"), **about, "known": False, "profile": GENERIC}


def of_bases(*bases: str) -> list[Json]:
    """Return the limits of files that are no machine types, such as ``_nvidia``."""
    return [dict(limit) for base in bases for limit in _read(DIRECTORY / f"{base}.yml")["expect"]]


def _site_file(name: str, site: Path | None) -> Path | None:
    """Return the site's file; on a file system that minds case the name is compared without it, as a SKU is."""
    if not site:
        return None
    if not site.is_dir():
        raise ProfileError(f"cluster_profile_dir is {str(site)!r}, which is no directory on this host")
    files = [path for path in sorted(site.glob("*.yml")) if path.name.lower() == name]
    if len(files) > 1:
        raise ProfileError(f"{site} has {files[0].name} and {files[1].name}, which are the same machine type; keep one")
    return files[0] if files else None


def _read_site(path: Path, directory: Path, site: Path, over: tuple[str, ...] = ()) -> Json:
    """Read a site's profile over its bases: other files of the site, or any of the shipped ones."""
    profile = _mapping(path, str(path))
    wrong = problems(profile)
    if wrong:
        raise ProfileError("\n".join(f"{path}: {text}" for text in wrong))
    if str(path) in over:
        raise ProfileError(f"{path} is its own base: {' > '.join([*over, str(path)])}")
    bases = profile.pop("base", [])
    result: Json = {"expect": []}
    for base in [bases] if isinstance(bases, str) else bases:
        name = f"{base}.yml" if base.startswith("_") else file_name(base)
        own, shipped = _site_file(name.lower(), site), directory / name
        if own and own != path:
            below = _read_site(own, directory, site, (*over, str(path)))
        elif shipped.is_file():
            below = _read(shipped)
        else:
            known = near(base, [*names(site, directory), *(path.stem for path in directory.glob("_*.yml"))], 0.5)
            raise ProfileError(f"{path}: base is {base!r}, which is no profile; {_meant(known)}")
        result = override(result, below)
    try:
        return override(result, profile)
    except ValueError as exc:
        raise ProfileError(f"{path}: {exc}") from exc


def _meant(known: t.Sequence[str]) -> str:
    return f"near are {', '.join(known)}" if known else f"known are {', '.join(names())}"


def _mapping(path: Path, label: str) -> Json:
    try:
        profile = yaml_load(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as exc:
        raise ProfileError(f"profile {label} is no text in UTF-8: {exc}") from exc
    except yaml.YAMLError as exc:
        raise ProfileError(f"profile {label} is no YAML: {exc}") from exc
    if not isinstance(profile, dict) or not isinstance(profile.get("expect", []), list):
        raise ProfileError(f"profile {label} is no mapping with a list named expect")
    return profile


def _read(path: Path, over: tuple[str, ...] = ()) -> Json:
    """Read a file and lay it over its bases, from the first to the last."""
    if path.name in over:
        raise ProfileError(f"profile {path.name} is its own base: {' > '.join([*over, path.name])}")
    profile = _mapping(path, path.name)
    bases = profile.pop("base", [])
    result: Json = {"expect": []}
    for base in [bases] if isinstance(bases, str) else bases:
        if not base.startswith("_"):
            raise ProfileError(f"profile {path.name} has the base {base}; names of bases start with '_'")
        result = override(result, _read(path.with_name(f"{base}.yml"), (*over, path.name)))
    return override(result, profile) if bases else {"expect": [], **profile}


def override(profile: Json, site: t.Mapping[str, t.Any]) -> Json:
    """Return the profile as a site changes it."""
    rest = {key: value for key, value in site.items() if key != "expect"}
    under = {key: value for key, value in profile.items() if key != "expect"}
    for expectation in site.get("reference") or []:
        _validate(expectation)
    expect = _merge_expect(profile["expect"], site.get("expect") or [])
    # Of a machine type without a file a site may say itself what it expects.
    known = {"known": True} if site.get("expect") and expect and "known" in profile else {}
    return {**_merge(under, rest), **known, "expect": expect}


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
    result = {_identity(expectation): dict(expectation) for expectation in under}
    for expectation in over:
        if "value" in expectation and expectation["value"] is None:
            if result.pop(_identity(expectation), None) is None:
                raise ProfileError(f"there is no expectation to take away that is {dict(expectation)!r}")
        else:
            _validate(expectation)
            result[_identity(expectation)] = dict(expectation)
    return list(result.values())


def _validate(expectation: t.Mapping[str, t.Any]) -> None:
    validate_expectation(expectation)
    if unit_problem(expectation):
        raise ProfileError(unit_problem(expectation))


def _identity(expectation: t.Mapping[str, t.Any]) -> tuple[tuple[str, str], ...]:
    """Two expectations are the same one when they differ in nothing but the value and where it comes from."""
    about = {key: str(value) for key, value in expectation.items() if key not in _VALUES and value is not None}
    return tuple(sorted({"verdict": "fail", **about}.items()))
