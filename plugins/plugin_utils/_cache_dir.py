# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the control host keeps what it need not fetch or build again. Private."""

from __future__ import annotations

import os
from pathlib import Path


def directory(setting: str | None) -> Path:
    """Return the directory that was configured, or that of this collection in the user's cache."""
    if setting:
        return Path(setting).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hpcai.gpu_cluster"
