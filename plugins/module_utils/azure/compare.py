# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparing a resource with what it shall be. No I/O. Private."""

from __future__ import annotations

import typing as t


def fits(wanted: t.Any, there: t.Any) -> bool:
    """Say whether all that is wanted is there; what else is there does not matter."""
    if isinstance(wanted, dict):
        if not isinstance(there, dict):
            return False
        return all(
            (_place(value) == _place(there.get(key))) if key == "location" else fits(value, there.get(key))
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(there, list) and len(wanted) == len(there) and all(map(fits, wanted, there))
    if isinstance(wanted, str) and wanted.startswith("/subscriptions/"):  # of these Azure changes the case
        return wanted.lower() == str(there).lower()
    return bool(wanted == there)


def _place(text: t.Any) -> str:
    return "".join(str(text).split()).lower()


def part(wanted: t.Any, there: t.Any) -> t.Any:
    """Return of what is there the part that is wanted, for a diff."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return {key: part(value, there[key]) for key, value in wanted.items() if key in there}
    return there


def merge(there: t.Any, wanted: t.Any) -> t.Any:
    """Return what is there with what is wanted written over it."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return {**there, **{key: merge(there.get(key), value) for key, value in wanted.items()}}
    return wanted


def request(wanted: t.Mapping[str, t.Any], there: t.Mapping[str, t.Any] | None, whole: bool) -> dict[str, t.Any]:
    """Return what is sent: tags of others stay, and with `whole` everything that is there is sent along."""
    if there and whole:
        return t.cast(t.Dict[str, t.Any], merge(dict(there), dict(wanted)))
    tags = {**((there or {}).get("tags") or {}), **(wanted.get("tags") or {})}
    return {**wanted, **({"tags": tags} if tags else {})}
