# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpcai-agent: one program for all that a node or a controller does by itself. Private, stdlib only.

Modules are imported when their subcommand is asked for: a prolog that parses what only a certification needs is late.
So is one that compiles some forty modules anew, and of an archive Python keeps nothing that it has compiled: root's
first start after a boot writes them as files (``unpack``), from which later ones go on.
"""

from __future__ import annotations

import importlib
import os
import sys
import typing as t

HOME = "ansible_collections.hpcai.gpu_cluster.plugins.module_utils"
SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "suite": ("agent.suite", "main"),
    "publish": ("agent.commands", "publish_command"),
    "latch": ("agent.commands", "latch_command"),
    "reconcile": ("drain.reconcile", "main"),
    "round": ("certify.round", "main"),
    "local": ("certify.node", "main"),
    "certificate": ("certify.command", "main"),
}
USAGE = 2
_OLD = 3600.0  # seconds without a start; nothing that the agent does takes so long, so nobody reads them any more


def main(argv: t.Sequence[str]) -> int:
    """Hand the arguments to a subcommand and return its exit status; 2 is a mistake in the arguments."""
    _whole()
    name = argv[0] if argv else ""
    if name in ("-h", "--help"):
        sys.stdout.write(f"usage: hpcai-agent {{{','.join(SUBCOMMANDS)}}} ... (--help after each)\n")
        return 0
    if name not in SUBCOMMANDS:
        sys.stderr.write(f"hpcai-agent: {name!r} is none of {', '.join(SUBCOMMANDS)}\n")
        return USAGE
    module, function = SUBCOMMANDS[name]
    try:
        command = getattr(importlib.import_module(f"{HOME}.{module}"), function)
    except ImportError as exc:
        sys.stderr.write(f"hpcai-agent: {name} is not in this agent: {exc}\n")
        return USAGE
    return _quietly(int(command(list(argv[1:]))))


def _whole() -> None:
    """Give a process that was started without standard files some; a pipe of ours in their place would be lost."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - it lives as long as the process
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _quietly(status: int) -> int:
    """Flush the output; a reader that has gone must not change the exit status, or Slurm drains the node."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    return status


def unpack(program: str, place: str) -> None:
    """Write the program's modules to a directory, which is there whole or not at all; without room there is none.

    The files are in memory (/run) and root's: no power cut leaves a part of them, and a boot begins anew.
    """
    import contextlib
    import shutil
    import tempfile
    import time
    import zipfile
    from pathlib import Path

    folder = Path(place).parent
    with contextlib.suppress(OSError, zipfile.BadZipFile):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=folder, prefix="."))
        try:
            with zipfile.ZipFile(program) as archive:
                archive.extractall(aside)
            aside.chmod(0o755)
            aside.rename(place)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        for other in folder.iterdir():
            if other != Path(place) and time.time() - other.stat().st_mtime > _OLD:
                shutil.rmtree(other, ignore_errors=True)
