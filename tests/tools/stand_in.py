# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that stand in for tools, in ``tests/stand_ins``, put where a test's machine has them."""

from __future__ import annotations

import sys
from pathlib import Path

STAND_INS = Path(__file__).resolve().parents[1] / "stand_ins"


def stand_in(path: Path, source: str, options: str = "") -> Path:
    """Put a program at a path, in place of one that is there; it finds what it is to say in files near itself."""
    text = (STAND_INS / source).read_text(encoding="utf-8")
    path.unlink(missing_ok=True)
    path.write_text(f"#!{sys.executable}{options}\n{text}" if source.endswith(".py") else text, encoding="utf-8")
    path.chmod(0o755)
    return path
