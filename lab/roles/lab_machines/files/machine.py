# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's virtual machines by hand; `machine --help`."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

# The collection that this file is in, wherever that is: nothing has to be installed.
ROOT = Path(__file__).resolve().parents[4]
sys.dont_write_bytecode = True
for name, path in (("", []), (".hpcai", []), (".hpcai.gpu_cluster", [str(ROOT)])):
    package = types.ModuleType(f"ansible_collections{name}")
    package.__path__ = path
    sys.modules[package.__name__] = package

if __name__ == "__main__":
    program = "ansible_collections.hpcai.gpu_cluster.lab.machine.lab"
    sys.exit(importlib.import_module(program).main(sys.argv[1:]))
