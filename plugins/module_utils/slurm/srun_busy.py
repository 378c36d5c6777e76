# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether srun gave up because jobs have the nodes. Pure, private."""

from __future__ import annotations

import re

# What srun says when it was told not to wait; such a node is not broken, it is left for another time.
_BUSY = re.compile(r"^.*Unable to allocate resources: .*(?:nodes are busy|[Ii]mmediate execution impossible).*$", re.M)


def busy(text: str) -> str:
    """Return the line that says so, empty when there is none."""
    match = _BUSY.search(text)
    return match.group().strip() if match else ""
