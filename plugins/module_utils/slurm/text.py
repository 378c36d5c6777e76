# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm's text and JSON have in common: fields, times, exit codes, releases, and srun that found no nodes."""

from __future__ import annotations

import json
import re
import typing as t

TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"  # for SLURM_TIME_FORMAT, which users set in their profiles
SEPARATOR = "\x1f"  # a control character that no job name, reason or comment can hold by accident

_KEY = re.compile(r"(?:^| )([A-Z][A-Za-z0-9_/:&]*)=")
_NOTHING = {"", "(null)", "Unknown", "None", "N/A", "n/a", "None assigned", "NONE", "UNLIMITED", "INVALID"}


class SlurmError(ValueError):
    """Slurm's answer cannot be read or says no; the text is fit for the user."""


class VersionError(SlurmError):
    """A text is no version of Slurm, or an upgrade is not possible."""


Release = t.Tuple[int, int]
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def upstream(version: str) -> str:
    """Return the upstream part of a package version: ``26.05.5`` of ``1:26.05.5-1+b2``."""
    return version.rpartition(":")[2].partition("-")[0]


def numbers(version: str) -> tuple[int, int, int]:
    """Return ``26.05.5-1`` as (26, 5, 5); a release candidate (0rc1) counts as 0."""
    match = _VERSION.match(upstream(version))
    if not match:
        raise VersionError(f"{version!r} is not a version of Slurm such as 26.05 or 26.05.5")
    return int(match.group(1)), int(match.group(2)), int(match.group(3) or 0)


def release(version: str) -> Release:
    """Return the release of a version, year and month: (26, 5) for ``26.05.5-1``."""
    return numbers(version)[:2]


def fields(line: str) -> dict[str, str]:
    """Read one line of ``scontrol show ... -o``; the first of two equal keys wins, free text comes last."""
    values: dict[str, str] = {}
    marks = list(_KEY.finditer(line))
    for mark, following in zip(marks, [*marks[1:], None]):
        end = following.start() if following else len(line)
        values.setdefault(mark.group(1), line[mark.end() : end].strip())
    return values


def text_or_none(value: object) -> str | None:
    """Turn Slurm's many words for "nothing" into None."""
    return None if value is None or str(value) in _NOTHING else str(value)


def number(value: object) -> int | None:
    """Read a JSON number: plain before Slurm 23.02, ``{set, infinite, number}`` since; text digits as well."""
    if isinstance(value, dict):
        return number(value.get("number")) if value.get("set") and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(float(value))
    except (ValueError, OverflowError):
        return None


def words(value: object) -> list[str]:
    """Read a list that some releases print as a list and others as text with commas."""
    if isinstance(value, list):
        return [str(word) for word in value if text_or_none(word)]
    text = text_or_none(value)
    return [word for word in re.split(r"[,&|]", text) if word] if text else []


def exit_code(value: str) -> tuple[int, int]:
    """Read ``3:0`` as exit code and signal."""
    match = re.fullmatch(r"(\d+):(\d+)", value.strip())
    if not match:
        raise SlurmError(f"{value!r} is not an exit code like 0:0")
    return int(match.group(1)), int(match.group(2))


def seconds(value: str) -> int | None:
    """Read ``[days-]hours:minutes:seconds`` (also ``minutes:seconds``)."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", value.strip())
    if not match:
        return None
    days, hours, minutes, secs = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + secs


def load(text: str, key: str) -> list[dict[str, t.Any]]:
    """Return the list under ``key`` of what a ``--json`` command printed."""
    try:
        answer = json.loads(text)
        items, errors = answer[key], answer.get("errors")
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise SlurmError(f"no JSON list {key!r} in Slurm's answer: {exc!r}") from exc
    if errors:
        raise SlurmError(f"Slurm answered with errors: {errors!r}")
    if not isinstance(items, list) or not all(isinstance(record, dict) for record in items):
        raise SlurmError(f"{key!r} in Slurm's answer is not a list of objects")
    return items
