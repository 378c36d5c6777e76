# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong before it is tried. No I/O. Private."""

from __future__ import annotations

import typing as t


class Finding(t.NamedTuple):
    """One thing that would stop the bring-up, or that a person should know."""

    check: str
    subject: str
    problem: str
    action: str
    blocks: bool


def as_dicts(findings: t.Iterable[Finding]) -> list[dict[str, t.Any]]:
    """Return them for the user, first those that block."""
    return [finding._asdict() for finding in sorted(set(findings), key=lambda one: (not one.blocks, *map(str, one)))]


def text(findings: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """Return one line for each."""
    form = "{weight}: {check} of {subject}: {problem} {action}"
    return [form.format(weight="BLOCKS" if one["blocks"] else "warns", **one) for one in findings]
