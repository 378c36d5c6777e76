# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that travel to other nodes as text: no AnsibleModule, private."""

from __future__ import annotations

import typing as t


def text_of(module: t.Any) -> str:
    """Return the text of a Python module, also from inside the zip file that Ansible makes of a module."""
    found = module.__spec__.loader.get_source(module.__name__)
    # ansible-core's own loader returns bytes.
    return found.decode("utf-8") if isinstance(found, bytes) else str(found)
