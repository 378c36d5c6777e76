# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the files of this collection import, found without parsing the whole of them. Private.

To parse a file takes milliseconds, and a run sends hundreds. These files are as ruff formats them, and a unit test has
Python's parser find the same in each of them; files of others are to be parsed.
"""

from __future__ import annotations

import re

PLACE = "/ansible_collections/hpcai/gpu_cluster/plugins/"  # where Ansible finds them, in whatever directory
_TEXT = re.compile(r'""".*?"""', re.DOTALL)
_FOR_TYPES = re.compile(r"^( *)if (?:t\.|typing\.)?TYPE_CHECKING:\n(?:(?:\1 +.*)?\n)+", re.MULTILINE)
_STATEMENT = re.compile(r"^( *)((?:from [\w.]+ )?import (?:\([^)]*\)|[^(\n]*))", re.MULTILINE)


def import_statements(text: str, for_types: bool = True) -> str:
    """Return the statements alone, below an ``if`` where they are not at the margin; those for types if asked."""
    code = _TEXT.sub('""', text)
    found = _STATEMENT.findall(code if for_types else _FOR_TYPES.sub("", code))
    return "\n".join(f"if True:\n {statement}" if margin else statement for margin, statement in found)
