# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that brings images to the scratch of the node that it runs on: private, stdlib only.

``python3 - task JSON`` behind the text of the files that it imports is one step of a Slurm job and answers in one line
of JSON. Without ``task`` it does all of it on one node, for a person or for a node that joins.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import types
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_files import ImageError, Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_folder import pointed, read_json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_node import Node

MARK = "HPCAI_IMAGES "
_KEYS = ("name", "file", "sha256", "size")
GOOD = ("copied", "kept", "current")


def kept(directory: Path, names: t.Sequence[str]) -> list[Record]:
    """Return what a directory's links name, or only some of them, as its manifests have it."""
    found = []
    for name in names or sorted(path.name[: -len(".sqsh")] for path in directory.glob("*.sqsh") if path.is_symlink()):
        file = pointed(directory / f"{name}.sqsh")
        manifest = read_json(directory / f"{file[: -len('.sqsh')]}.json") if file else None
        if not manifest or not set(_KEYS) <= set(manifest):
            raise ImageError(f"{directory} has no image {name}")
        found.append({key: manifest[key] for key in _KEYS})
    return found


def alone(argv: t.Sequence[str]) -> str:
    """Do everything on this node; return what is wrong."""
    parser = argparse.ArgumentParser(prog="stage", description="Bring container images to this node's scratch.")
    parser.add_argument("--from", dest="source", type=Path, required=True, help="the shared directory of images")
    parser.add_argument("--to", dest="directory", type=Path, required=True, help="directory on this node")
    parser.add_argument("--keep", type=int, default=1, help="old versions that stay (default 1)")
    parser.add_argument("--min-free", type=int, default=1024, metavar="MB", help="space to leave free (default 1024)")
    parser.add_argument("--verify", action="store_true", help="read all of every image")
    parser.add_argument("names", nargs="*", help="images, all without a name")
    task = vars(parser.parse_args(argv))
    try:
        images = kept(task["source"], task.pop("names"))
    except (ImageError, OSError) as exc:
        return str(exc)
    node = Node({**task, "images": images, "absent": [], "min_free": task["min_free"] * 1000000})
    for action in ("place", "use"):
        answer = node.run(action)
        wrong = [f"{name}: {state}" for name, state in answer["images"].items() if state not in GOOD]
        if wrong or answer.get("problem"):
            return "; ".join([answer.get("problem", ""), *wrong]).lstrip("; ")
    return ""


def _leave(number: int, dummy: types.FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(argv: t.Sequence[str]) -> int | str:
    os.umask(0o022)
    signal.signal(signal.SIGTERM, _leave)  # so that what is half written is removed
    if argv[:1] != ["task"]:
        return alone(argv) or 0
    task = json.loads(argv[1])
    sys.stdout.write(f"{MARK}{json.dumps(Node(task).run(task['action']))}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
