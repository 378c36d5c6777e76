# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of staging. Pure, private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_files import ImageError, Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_source import check_name

_EMPTY: dict[str, t.Any] = {"file": "", "sha256": "", "size": 0}
_FILE = re.compile(r"[a-z0-9][a-z0-9._+-]*\.sqsh")

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "images": {"type": "list", "elements": "dict", "default": []},
    "absent": {"type": "list", "elements": "str", "default": []},
    "source": {"type": "path", "required": True},
    "directory": {"type": "path", "required": True},
    "nodes": {"type": "str", "default": ""},
    "partition": {"type": "str"},
    "transport": {"type": "str", "choices": ["shared", "sbcast"], "default": "shared"},
    "fan_out": {"type": "int", "default": 64},
    "keep": {"type": "int", "default": 1},
    "min_free": {"type": "int", "default": 1024},
    "verify": {"type": "bool", "default": False},
    "wait": {"type": "int", "default": 60},
    "options": {"type": "dict", "default": {}},
    "python": {"type": "str", "default": "python3"},
    "timeout": {"type": "int", "default": 3600},
}


class Request(t.NamedTuple):
    """What is asked for; ``task`` is what every node is told."""

    task: Record
    nodes: list[str]
    partition: str | None
    transport: str
    fan_out: int
    wait: float
    dry: bool


def read(params: t.Mapping[str, t.Any], nodes: list[str], dry: bool) -> Request:
    """Make a request of a module's options; an image that does not exist yet is only good for a plan."""
    for name in [*params["absent"], *(image.get("name", "") for image in params["images"])]:
        check_name(name)
    for image in params["images"]:
        whole = _FILE.fullmatch(str(image.get("file", ""))) and int(image.get("size", 0)) > 0 and image.get("sha256")
        if not whole and not dry:
            raise ImageError(f"image {image['name']} has no file, sha256 and size; give what container_image returned")
    twice = {image["name"] for image in params["images"]} & set(params["absent"])
    if twice:
        raise ImageError(f"{', '.join(sorted(twice))} cannot be both in images and absent")
    images = [
        {"name": image["name"], **{key: image.get(key) or empty for key, empty in _EMPTY.items()}}
        for image in params["images"]
    ]
    task = {key: params[key] for key in ("absent", "source", "directory", "keep", "verify")}
    task.update(images=images, min_free=params["min_free"] * 1000000)
    return Request(task, nodes, params["partition"], params["transport"], params["fan_out"], params["wait"], dry)
