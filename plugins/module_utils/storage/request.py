# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""storage_bandwidth: what is asked for, and the fio command line for it. Pure, private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _measure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, validate_expectation

OPERATIONS = ("write", "read", "randwrite", "randread")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

SPEC: Json = {
    "paths": {"type": "list", "elements": "path", "required": True},
    "operations": {"type": "list", "elements": "str", "choices": list(OPERATIONS), "default": ["write", "read"]},
    "block_size": {"type": "str", "default": "1M"},
    "size": {"type": "str", "default": "4G"},
    "jobs": {"type": "int", "default": 4},
    "iodepth": {"type": "int", "default": 255},
    "runtime": {"type": "int", "default": 30},
    "direct": {"type": "bool", "default": True},
    "ioengine": {"type": "str", "default": "libaio"},
    "fio": {"type": "path"},
    "timeout": {"type": "float", "default": 600},
    **_measure.SPEC,
    **_measure.NODE,
}


class StorageError(ValueError):
    """What was asked for makes no sense; the text is fit for the user."""


class Request(t.NamedTuple):
    """What was asked for; sizes in bytes, ``size`` of each job's file."""

    paths: t.Sequence[str]
    operations: t.Sequence[str]
    block_size: int
    size: int
    jobs: int
    iodepth: int
    runtime: int
    direct: bool
    ioengine: str

    @property
    def space(self) -> int:
        """Return the bytes that all files need."""
        return self.size * self.jobs

    @property
    def runs(self) -> list[str]:
        """Return the operations in their order; every kind of read needs files that were really written before."""
        order = [name for name in OPERATIONS if name in self.operations]
        return order if order[0] == "write" else ["write", *order]


def read(params: t.Mapping[str, t.Any]) -> Request:
    """Make a request of the options, or refuse it before anything starts."""
    for expectation in params["expect"]:
        validate_expectation(expectation)
    sizes = {name: size(name, params[name]) for name in ("block_size", "size")}
    request = Request(**{**{name: params[name] for name in Request._fields}, **sizes})
    for name in ("jobs", "iodepth", "runtime"):
        if params[name] < 1:
            raise StorageError(f"{name} is {params[name]}, at least 1 is needed")
    if request.size < request.block_size or request.size % request.block_size or request.block_size % 512:
        raise StorageError(
            f"size {params['size']} must be a multiple of block_size {params['block_size']}, and that of 512 bytes"
        )
    if params["timeout"] <= request.runtime:
        raise StorageError(f"timeout {params['timeout']:g} s leaves fio no time beyond runtime {request.runtime} s")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", request.ioengine):
        raise StorageError(f"ioengine is {request.ioengine!r}, a name such as libaio, io_uring or psync is needed")
    if not request.paths or not request.operations:
        raise StorageError("paths and operations must not be empty")
    relative = [path for path in request.paths if not path.startswith("/")]
    if relative or len(set(request.paths)) != len(request.paths):
        raise StorageError(f"paths must be absolute and differ, not {', '.join(relative or request.paths)}")
    return request


def size(name: str, text: str) -> int:
    """Return bytes from ``4G``, ``512k`` or ``4096``; units are powers of 1024 as in fio."""
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match or int(match.group(1)) == 0:
        raise StorageError(f"{name} is {text!r}, a number of bytes such as 4G or 1M is needed")
    return int(match.group(1)) * _UNITS[match.group(2).upper()]


def argv(fio: str, request: Request, operation: str, folder: str, length: int) -> list[str]:
    """Return the command line; the same name in the same folder means the same files in every run.

    Without preallocation no block can be read that nobody wrote, and a buffered write ends when the data is on disk.
    """
    buffered = [] if request.direct else ["--end_fsync=1"]
    return [
        fio,
        "--name=hpcai",
        f"--directory={folder}",
        f"--rw={operation}",
        f"--bs={request.block_size}",
        f"--size={length}",
        f"--numjobs={request.jobs}",
        f"--iodepth={request.iodepth}",
        f"--direct={int(request.direct)}",
        f"--ioengine={request.ioengine}",
        f"--runtime={request.runtime}",
        "--time_based=1",
        "--fallocate=none",
        *(buffered if operation.endswith("write") else []),
        "--eta=never",
        "--output-format=json",
    ]
