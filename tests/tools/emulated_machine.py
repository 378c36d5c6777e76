# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Emulated machines in directories of tests: made by the lab's own program once, and copied for each test."""

from __future__ import annotations

import atexit
import compileall
import functools
import json
import shutil
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

import emulating
from warm import Forking

SETUP = emulating.TOOLS / "emulation/setup.py"
# These become another program, or Python itself where nobody forks for whoever calls: the lab's file emulate, in Perl.
FORKS = r"$0 !~ m{/(?:ldd|numactl|taskset)\z}"
ITSELF = r"$0 =~ m{([^/]*)\z}; exec('python3', '-BIS', '%s', $1, @ARGV) or die;"


def set_up(directory: Path, verb: str, document: t.Any, *nodes: str) -> None:
    """Call the program that makes and breaks them."""
    command = [sys.executable, str(SETUP), verb, str(directory), *nodes]
    subprocess.run(command, input=json.dumps(document), text=True, check=True, capture_output=True)


@functools.cache
def _tools() -> Forking:
    """Return the process that the tools are forks of: a test calls them a hundred times."""
    compileall.compile_dir(SETUP.parent, quiet=1)
    process = Forking(sys.executable, emulating.__file__)
    atexit.register(process.close)
    return process


@functools.cache
def _sound(profile: str, *nodes: str) -> Path:
    """Return a directory to be copied."""
    directory = Path(tempfile.mkdtemp(prefix="emulated-"))
    atexit.register(shutil.rmtree, directory)
    set_up(directory, "install", json.loads(profile), *nodes)
    emulate = directory / "gpu_tools/emulate"
    emulate.unlink()
    _tools().client(emulate, FORKS, ITSELF % (SETUP.parent / "__main__.py"))
    return directory


def install(directory: Path, profile: t.Any, *nodes: str) -> None:
    """Make sound machines of one profile in a directory, which may hold other things."""
    subprocess.run(["cp", "-a", f"{_sound(json.dumps(profile), *nodes)}/.", str(directory)], check=True)
