# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that the lab's emulated tools are forks of while tests run: it has imported all of them (warm.py)."""

from __future__ import annotations

import importlib
import sys
import typing as t
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "lab/roles/lab_nodes/files/gpu_tools"


def perform(called: str, arguments: list[str]) -> int:
    """Be the tool of the name that was called; return its exit status."""
    program = importlib.import_module("emulation.__main__")
    sys.argv = [str(TOOLS / "emulation/__main__.py"), Path(called).name, *arguments]
    status: t.Any = 1
    try:
        status = program.main()
    except SystemExit as end:
        status = end.code or 0
        if not isinstance(status, int):
            sys.stderr.write(f"{status}\n")
            status = 1
    except BaseException:
        sys.excepthook(*t.cast("tuple[type, BaseException, t.Any]", sys.exc_info()))
    sys.stdout.flush()
    sys.stderr.flush()
    return int(status) & 255


if __name__ == "__main__":
    from warm import serve

    sys.path.insert(0, str(TOOLS))
    tools: dict[str, str] = importlib.import_module("emulation.tools").TOOLS
    for name in ("__main__", *tools.values()):
        importlib.import_module(f"emulation.{name}")
    serve(sys.argv[1], perform)
