# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real azure.azcollection beside an emulated Azure: whether it can run here, and what tests of it start with."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import typing as t
import warnings
from pathlib import Path

import pytest
from running import Azure
from warm import SDKS, Warm

PYTHON = Path(__file__).parents[2] / ".build/azure/bin/python"


def collection() -> Path:
    """Return where azure.azcollection lies."""
    found = importlib.util.find_spec("ansible_collections.azure.azcollection")
    if found is None or not found.submodule_search_locations:
        raise ImportError("the collection azure.azcollection is not installed")
    return Path(found.submodule_search_locations[0])


def missing() -> str:
    """Say why the real modules cannot run here, or nothing."""
    if not PYTHON.is_file():
        return "there is no .build/azure: run make azure-venv"
    try:
        collection()
    except ImportError as problem:
        return str(problem)
    done = subprocess.run([PYTHON, "-c", "import ansible, azure.mgmt.compute"], capture_output=True, check=False)
    return done.stderr.decode()[-200:]


@contextlib.contextmanager
def emulated(directories: pytest.TempPathFactory, untested: str) -> t.Iterator[Azure]:
    """Have an emulated Azure; where the modules cannot run, warn of what is untested, and skip."""
    reason = missing()
    if reason:
        warnings.warn(f"{untested} NOT tested: {reason}", stacklevel=2)
        pytest.skip(reason)
    azure = Azure(directories.mktemp("azure"))
    try:
        yield azure
    finally:
        azure.close()


@contextlib.contextmanager
def warm_sdks() -> t.Iterator[Warm]:
    """Have an interpreter that has imported the SDKs, which every module would import again."""
    process = Warm(PYTHON, SDKS, PYTHONPATH=str(collection().parents[2]))
    try:
        yield process
    finally:
        process.close()
