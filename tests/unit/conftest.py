# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many examples Hypothesis makes.

``quick`` makes few, the same ones every time: a test that fails has been broken. ``make fuzz`` looks for what nobody
thought of, with ``HYPOTHESIS_PROFILE=deep``. Examples take as long as they take: how busy the machine is says nothing
about the code.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("quick", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("deep", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "quick")
