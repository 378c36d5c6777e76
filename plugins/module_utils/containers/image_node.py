# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images on the scratch of one node: what is there, and what is missing. Private, stdlib only; see ``image_stage``."""

from __future__ import annotations

import fcntl
import os
import socket
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_files import (
    ImageError,
    Record,
    adopt,
    copy,
    damage,
    distrust,
    have,
    proof,
    sha256,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_folder import (
    BROADCAST,
    PARTIAL,
    drop,
    point,
    pointed,
    read_json,
    record_name,
    sweep,
    unlink,
    versions,
    write_json,
)

UNPROVED = "was touched since it was hashed"


class Node:
    """One node's directory of images, and what is to be in it."""

    def __init__(self, task: Record) -> None:
        self.task, self.folder = task, Path(task["directory"])
        self.images: list[Record] = task["images"]

    def run(self, action: str) -> Record:
        """Do one part and say for each image what became of it."""
        answer: Record = {"node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(), "images": {}}
        begin = time.monotonic()
        try:
            if action == "look":
                answer.update(self.look())
            else:
                have(self.folder)
                with (self.folder / ".lock").open("a") as file:
                    fcntl.lockf(file, fcntl.LOCK_EX)
                    sweep(self.folder)
                    answer.update(getattr(self, action)())
        except (ImageError, OSError) as exc:
            answer["problem"] = str(exc)
        return {**answer, "seconds": round(time.monotonic() - begin, 3)}

    def look(self) -> Record:
        """Change nothing, and read no file that is as it was when it was hashed."""
        there = self.folder.is_dir()
        problem = (distrust(self.folder) if there else "") or self.no_room([] if there else self.images)
        images = {image["name"]: self.state(image) for image in self.images}
        gone = [name for name in self.task["absent"] if there and self.has(name)]
        return {"images": images, "absent": gone, "problem": problem}

    def has(self, name: str) -> bool:
        return bool(pointed(self.folder / f"{name}.sqsh") or versions(self.folder, name))

    def state(self, image: Record) -> str:
        """Return current, or what is missing for that."""
        if not image["file"]:
            return "is not there"  # a plan for an image that is yet to be imported
        path, known = self.folder / image["file"], read_json(self.folder / record_name(image["file"]))
        wrong = damage(path, image, known, self.task["verify"])
        link = f"{image['name']}.sqsh"
        if not wrong and pointed(self.folder / link) != image["file"]:
            wrong = f"is not what {link} names"
        return wrong or ("current" if known == proof(path) else UNPROVED)

    def no_room(self, images: t.Sequence[Record]) -> str:
        """Say that images do not fit, empty when they do."""
        place = self.folder if self.folder.is_dir() else self.folder.parent
        if not place.is_dir():
            return f"{place} is not there; is scratch mounted?"
        found = os.statvfs(place)
        free, needed = found.f_bavail * found.f_frsize, sum(image["size"] for image in images)
        if not images or needed + self.task["min_free"] <= free:
            return ""
        return (
            f"{place} has {free / 1e6:.0f} MB free, {needed / 1e6:.0f} MB are needed"
            f" and {self.task['min_free'] / 1e6:.0f} MB are to stay free"
        )

    def prepare(self) -> Record:
        """Refuse before anything is sent what would not fit."""
        missing = [
            image for image in self.images if damage(self.folder / image["file"], image, self.known(image), False)
        ]
        for image in missing:
            # What is damaged must not be started, whatever comes of its replacement.
            (self.folder / image["file"]).unlink(missing_ok=True)
        return {"problem": self.no_room(missing)}

    def known(self, image: Record) -> Record | None:
        return read_json(self.folder / record_name(image["file"]))

    def place(self) -> Record:
        """Bring what is missing under the names of its versions; no job is led there yet."""
        return {"images": {image["name"]: self.one(image) for image in self.images}}

    def one(self, image: Record) -> str:
        path = self.folder / image["file"]
        try:
            wrong = damage(path, image, self.known(image), self.task["verify"])
            if wrong:
                path.unlink(missing_ok=True)
                self.bring(image, path)
            write_json(self.folder / record_name(image["file"]), proof(path))
        except (ImageError, OSError) as exc:
            return str(exc)
        finally:
            (self.folder / f".{image['file']}{BROADCAST}").unlink(missing_ok=True)
        return "copied" if wrong else "kept"

    def bring(self, image: Record, path: Path) -> None:
        if not self.task.get("broadcast"):
            problem = self.no_room([image])
            if problem:
                raise ImageError(problem)
            aside = self.folder / f".{image['file']}.{os.getpid()}{PARTIAL}"
            copy(Path(self.task["source"]) / image["file"], aside, image)
            adopt(aside, path)
            return
        aside = self.folder / f".{image['file']}{BROADCAST}"
        if not aside.is_file() or aside.stat().st_size != image["size"] or sha256(aside) != image["sha256"]:
            aside.unlink(missing_ok=True)
            raise ImageError("what sbcast brought is not the image")
        adopt(aside, path)

    def use(self) -> Record:
        """Lead jobs to the images that are whole; remove old ones and those that are to go."""
        images = {}
        for image in self.images:
            wrong = damage(self.folder / image["file"], image, self.known(image), False)
            if not wrong:
                point(self.folder / f"{image['name']}.sqsh", image["file"])
                drop(self.folder, image["name"], image["file"], self.task["keep"])
            images[image["name"]] = wrong or "current"
        for name in self.task["absent"]:
            unlink(self.folder / f"{name}.sqsh")
            drop(self.folder, name, "", 0)
        return {"images": images}
