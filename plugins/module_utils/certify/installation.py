# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which installation of a machine a node is. Private, stdlib only.

A node that was installed anew, or another machine that has its name, has another machine ID. machine-id(5) asks not to
show the ID itself to the network, so a certificate has a digest of it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

# In the order in which Ansible's fact machine_id looks for it.
FILES = ("/var/lib/dbus/machine-id", "/etc/machine-id")


def digest(machine_id: str) -> str:
    """Return what stands for a machine ID; empty for an image's empty or unset one."""
    bare = machine_id.strip().lower()
    if bare in ("", "uninitialized"):
        return ""
    return hashlib.sha256(f"hpcai certificate {bare}".encode()).hexdigest()[:32]


def here(files: tuple[str, ...] = FILES) -> str:
    """Return the digest of this machine; empty where it has no machine ID."""
    for path in files:
        try:
            words = Path(path).read_text(encoding="utf-8", errors="replace").split()
        except OSError:
            continue
        if words:
            return digest(words[0])
    return ""
