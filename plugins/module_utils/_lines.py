# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values for files that are made of lines: in slurm.conf, fstab or a unit a newline in a value is another setting."""

from __future__ import annotations

import re
import typing as t

# C0 and C1 controls, and the separators that Unicode calls line and paragraph.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class LineError(ValueError):
    """A value would be more than a part of one line; the text is fit for the user."""


def controls(value: t.Any, path: str = "") -> list[str]:
    """Return the paths of texts, names included, that hold a control character."""
    if isinstance(value, str):
        return [path] if _CONTROL.search(value) else []
    if isinstance(value, t.Mapping):
        below = [
            place for key, inner in value.items() for place in controls(inner, f"{path}.{_plain(key)}".lstrip("."))
        ]
        return [*(f"{path}.{_plain(key)}".lstrip(".") for key in value if controls(str(key), "x")), *below]
    if isinstance(value, (list, tuple)):
        return [place for number, inner in enumerate(value) for place in controls(inner, f"{path}[{number}]")]
    return []


def one_line(value: t.Any, what: str) -> t.Any:
    """Return a value as it is; raises LineError where a text in it holds a control character."""
    places = controls(value, what)
    if places:
        raise LineError(
            f"{', '.join(places)}: a value for a file that is made of lines cannot hold a newline or another control "
            "character. In YAML write it in one line, or with >- instead of > or |"
        )
    return value


def _plain(key: t.Any) -> str:
    return _CONTROL.sub("?", str(key))
