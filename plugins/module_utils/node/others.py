# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bundle holds of others: collections as they are, and what is in wheels. Private."""

from __future__ import annotations

import typing as t
import zipfile
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.content import BundleError, File, files, read

# Of wheels; of collections, tests and what belongs to no release.
LEFT_OUT = ("ansible_test/",)
_BESIDE = ("tests", "docs", ".git", ".github", ".build")


def whole(name: str, places: t.Sequence[str]) -> dict[str, File]:
    """Return the files of another collection, from the first place that has it."""
    below = Path("ansible_collections", *name.split("."))
    roots = [Path(place).expanduser() / below for place in places]
    root = next((one for one in roots if one.is_dir()), None)
    if root is None or len(below.parts) != 3:
        raise BundleError(f"there is no collection {name} in {', '.join(str(Path(place)) for place in places)}")
    inside = {path.relative_to(root): path for path in files(root)}
    return {told.as_posix(): read(path) for told, path in inside.items() if told.parts[0] not in _BESIDE}


def site(folders: t.Sequence[Path]) -> dict[str, File]:
    """Return what is in the wheels of the directories, one for each Python; what they share has to be the same."""
    found: dict[str, File] = {}
    wheels = [wheel for folder in folders for wheel in sorted(folder.glob("*.whl"))]
    if not wheels:
        raise BundleError(f"no wheels in {', '.join(map(str, folders)) or 'any directory'}")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith("/") or name.startswith(LEFT_OUT) or ".data/" in name:
                    continue
                file = File(archive.read(name))
                # What a wheel says of itself names its Python.
                if found.setdefault(name, file) != file and ".dist-info/" not in name:
                    raise BundleError(f"{wheel} holds another {name} than a wheel for another Python")
    return found
