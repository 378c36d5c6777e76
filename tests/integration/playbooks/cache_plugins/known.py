# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cache that knows the facts of hosts that do not exist, so that nobody is asked for them."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

from ansible.plugins.cache.memory import CacheModule as Memory

DOCUMENTATION = r"""
name: known
short_description: Facts from the JSON file that KNOWN_FACTS names
description: For tests.
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
"""


class CacheModule(Memory):
    """Keeps what is added in memory only."""

    def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
        super().__init__(*args, **kwargs)
        for host, facts in json.loads(Path(os.environ["KNOWN_FACTS"]).read_text()).items():
            self.set(host, {**facts, "_ansible_facts_gathered": True})
