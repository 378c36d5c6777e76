# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of images in a directory: links, what is remembered of files, what is old. Private, stdlib only.

What names an image for users is a link that one rename moves.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_files import (
    ImageError,
    Record,
    adopt,
    create,
)

# sbcast writes without our lock, so what it left is only known by its age.
BROADCAST, PARTIAL, OLD = ".broadcast", ".partial", 3600


def read_json(path: Path) -> Record | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path: Path, value: Record) -> None:
    write_text(path, f"{json.dumps(value, indent=1, sort_keys=True)}\n")


def write_text(path: Path, text: str) -> None:
    """Replace a small file by one rename."""
    aside = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    aside.unlink(missing_ok=True)
    with create(aside) as file:
        file.write(text.encode())
    adopt(aside, path)


def point(link: Path, target: str) -> bool:
    """Let a link name another file, by one rename; return whether it did not."""
    if pointed(link) == target:
        return False
    if link.exists() and not link.is_symlink():
        raise ImageError(f"{link} is no link; move it away")
    aside = link.with_name(f".{link.name}.{os.getpid()}{PARTIAL}")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    aside.replace(link)
    return True


def pointed(link: Path) -> str:
    """Return what a link names, empty when it is none."""
    return os.readlink(link) if link.is_symlink() else ""  # Path.readlink is not in Python 3.8


def unlink(link: Path) -> None:
    """Remove a link, but no file that somebody put there."""
    if link.is_symlink():
        link.unlink()


def versions(directory: Path, name: str) -> list[str]:
    """Return the files of an image, the one written last first."""
    form = re.compile(re.escape(name) + r"-[0-9a-f]{12}\.sqsh")
    found = [path for path in directory.iterdir() if form.fullmatch(path.name)]
    return [path.name for path in sorted(found, key=lambda path: path.lstat().st_mtime_ns, reverse=True)]


def drop(directory: Path, name: str, current: str, keep: int) -> list[str]:
    """Remove an image's files but the current one and as many others as are to be kept; return their names."""
    gone = [file for file in versions(directory, name) if file != current][max(0, keep) :]
    for file in gone:
        for path in (directory / file, directory / record_name(file), directory / f"{file[: -len('.sqsh')]}.json"):
            path.unlink(missing_ok=True)
    return gone


def record_name(file: str) -> str:
    """Return the name of what a node remembers of a file."""
    return f".{file}.json"


def sweep(directory: Path) -> None:
    """Remove what killed runs left; under the directory's lock nobody else writes."""
    for path in directory.glob(".*"):
        with contextlib.suppress(FileNotFoundError):
            old = path.lstat().st_mtime < time.time() - OLD
            if path.name.endswith(PARTIAL) or (path.name.endswith(BROADCAST) and old):
                path.unlink()
