# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When apt's package lists have to be fetched. Private, stdlib only."""

from __future__ import annotations

import time
from pathlib import Path

UPDATE = ["apt-get", "update", "-o", "DPkg::Lock::Timeout=300"]


def lists_are_young(max_age: float, root: str | Path = "/") -> bool:
    """Say whether the lists are younger than so many seconds, and than all files that name repositories.

    What a repository offers that was added a minute ago is in no list of this morning.
    """
    lists, apt = Path(root, "var/lib/apt/lists"), Path(root, "etc/apt")
    if not lists.exists():
        return False
    made = lists.stat().st_mtime
    sources = [path for path in (apt / "sources.list", *(apt / "sources.list.d").glob("*")) if path.exists()]
    return time.time() - made < max_age and all(path.stat().st_mtime < made for path in sources)
