# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that were built here, kept by the digest of what decided them. Private.

The digest is a part of the version, so it also tells whether a package that is installed is the one that is wanted.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import deb

_MARK = "+hpcai."
_LENGTH = 12


def digest(inputs: t.Mapping[str, t.Any]) -> str:
    text = json.dumps(inputs, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def version(upstream: str, inputs: t.Mapping[str, t.Any]) -> str:
    """Return the version of a package, e.g. ``4.1.2+hpcai.3f1c52a09b7e``."""
    return f"{upstream}{_MARK}{digest(inputs)}"


def is_ours(found: str, inputs: t.Mapping[str, t.Any] | None = None) -> bool:
    """Tell whether a version is that of a package built here, and from these inputs if some are given."""
    return found.endswith(f"{_MARK}{digest(inputs)}") if inputs is not None else _MARK in found


def find(cache: Path, name: str, inputs: t.Mapping[str, t.Any]) -> Path | None:
    """Return the package that was built from these inputs; one that was cut short is none."""
    found = sorted(cache.glob(f"{name}_*{_MARK}{digest(inputs)}_*.deb"))
    return next((path for path in found if deb.whole(path)), None)
