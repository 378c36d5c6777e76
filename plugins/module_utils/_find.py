# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find a test program: the given path, PATH, the usual install places. Private."""

from __future__ import annotations

import glob
import os
import re
import shutil
import typing as t

ROLE = "gpu_test_tools"
# HPC-X is unpacked under its full version, is not on PATH without its module and looks for itself where it was built.
MPI_PLACES = ("/opt/hpcx*/ompi/bin", "/opt/openmpi*/bin", "/usr/mpi/gcc/openmpi-*/bin", "/usr/lib64/openmpi/bin")


class NotFound(ValueError):
    """The program is nowhere; the text says where it was looked for.

    ``missing`` has its names, and is empty where a given path is wrong: that is a mistake, and nothing to install.
    """

    def __init__(self, text: str, missing: t.Sequence[str] = ()) -> None:
        super().__init__(text)
        self.missing = list(missing)


def executable(path: str) -> bool:
    """Return whether a path is a file that may be run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113 - injected as one function of a string


def find(
    programs: str | t.Sequence[str],
    given: str | None = None,
    places: t.Sequence[str] = (),
    *,
    role: str | None = ROLE,
    which: t.Callable[[str], str | None] = shutil.which,
    exists: t.Callable[[str], bool] = executable,
    expand: t.Callable[[str], t.Sequence[str]] = glob.glob,
    path: str | None = None,
) -> str:
    """Return the path of the first name that is found; ``places`` are directories, with ``*`` for versions.

    A given path is a file or the directory that holds the program. The first name is preferred wherever it is, of
    several versions the highest.
    """
    names = [programs] if isinstance(programs, str) else list(programs)
    if given:
        return _given(names, given, exists, role)
    for name in names:
        on_path = which(name)
        if on_path:
            return on_path
        folders = (folder for place in places for folder in sorted(expand(place), key=_version, reverse=True))
        held = next((folder for folder in folders if exists(f"{folder}/{name}")), None)
        if held is not None:
            return f"{held}/{name}"
    searched = os.environ.get("PATH", os.defpath) if path is None else path
    looked = ", ".join([f"PATH ({searched})", *places])
    raise NotFound(f"{' or '.join(names)} was not found in {looked}{_advice(role)}", names)


def launcher(kind: str, given: str | None = None) -> tuple[str, dict[str, str]]:
    """Return the path of mpirun or srun, and the variables without which it cannot run; none of it for local."""
    if kind == "local":
        return "", {}
    program = find(kind, given, MPI_PLACES if kind == "mpirun" else (), role=None)
    prefix = re.match(r"(.*/hpcx[^/]*/ompi)/bin/", program)
    return program, {"OPAL_PREFIX": prefix.group(1)} if prefix else {}


def _given(names: t.Sequence[str], given: str, exists: t.Callable[[str], bool], role: str | None) -> str:
    """A wrong path is an error: another program of the same name would be measured in its stead."""
    tried = [given, *(f"{given.rstrip('/')}/{name}" for name in names)]
    for path in tried:
        if exists(path):
            return path
    raise NotFound(f"no program at the given path: {', '.join(tried)} cannot be run{_advice(role)}")


def _advice(role: str | None) -> str:
    return f"; the role {role} builds it" if role else ""


def _version(text: str) -> list[tuple[int, int | str]]:
    """Sort 2.18 after 2.9."""
    return [(1, int(part)) if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]
