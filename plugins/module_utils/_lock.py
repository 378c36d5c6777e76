# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One at a time: a lock that ends with its process, however that ends. Private."""

from __future__ import annotations

import contextlib
import fcntl
import typing as t
from pathlib import Path


@contextlib.contextmanager
def lock(path: str | Path) -> t.Iterator[None]:
    """Hold a file's lock, waiting for whoever has it; the empty file stays.

    It is a lock by range, which Linux's NFS clients ask the server for, so it also holds between hosts.
    """
    with Path(path).open("a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield
