# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run modules of azure.azcollection one after the other: a JSON line in, a JSON line out.

Each module runs in a process of its own, forked after the slow imports: as Ansible would, only quicker. Run with the
Python of the Azure environment and the collections on PYTHONPATH.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import typing as t

PACKAGE = "ansible_collections.azure.azcollection.plugins.modules.azure_rm_"


def _child(name: str, options: dict[str, t.Any], out: int) -> None:
    basic = importlib.import_module("ansible.module_utils.basic")
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": options}).encode()
    basic._ANSIBLE_PROFILE = "legacy"
    printed, text = io.StringIO(), ""
    sys.stdout = printed
    try:
        importlib.import_module(PACKAGE + name).main()
    except SystemExit:
        text = printed.getvalue().strip().splitlines()[-1]
    except BaseException as problem:
        text = json.dumps({"failed": True, "msg": repr(problem)})
    os.write(out, text.encode())


def run(name: str, options: dict[str, t.Any]) -> str:
    """Return what a module printed."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _child(name, options, writer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def main() -> None:
    for name in ("resource", "virtualmachine"):
        importlib.import_module(PACKAGE + name)
    for line in sys.stdin:
        name, options = json.loads(line)
        sys.stdout.write(run(name, options) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
