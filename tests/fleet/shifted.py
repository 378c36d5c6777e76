# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python for a node whose clock is off by as many seconds as /var/lib/hpcai/shift says: nodes of a fleet share one.

shifted -IS PROGRAM ARGUMENT...
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

place, true = Path("/var/lib/hpcai/shift"), time.time
off = float(place.read_text(encoding="utf-8")) if place.exists() else 0.0
time.time = lambda: true() + off
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
