# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that brings images to the scratch of the node that it runs on. Standard library only, also for modules.

It imports nothing of the collection, since its text is sent as it is: ``python3 - task JSON`` behind it is one step of
a Slurm job and answers in one line of JSON. Without ``task`` it does all of it on one node, for a person or for a node
that joins.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import signal
import socket
import stat
import struct
import sys
import time
import types
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Image files in a directory that nobody else may write to: private, stdlib only.


CHUNK = 8 << 20
Record = t.Dict[str, t.Any]


class ImageError(ValueError):
    """An image cannot be had as asked; the text is fit for the user."""


def distrust(directory: Path) -> str:
    """Say how others could put a file of theirs in the place of ours; empty when they cannot."""
    real = Path(os.path.realpath(directory))
    for place in (real, *real.parents):
        found = place.stat()
        if found.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to uid {found.st_uid}, who could replace images; give it to uid {os.geteuid()}"
        writable, sticky = found.st_mode & 0o022, found.st_mode & stat.S_ISVTX
        if writable and (place == real or not sticky):
            mode = f"{stat.S_IMODE(found.st_mode):04o}"
            return f"{place} has mode {mode}, so that others could replace images; take their right to write away"
    return ""


def have(directory: Path) -> None:
    """Make the directory, or refuse it; what is above it must be there (scratch that is not mounted is not)."""
    try:
        if not directory.is_dir():
            directory.mkdir()
            directory.chmod(0o755)
    except OSError as exc:
        raise ImageError(f"{directory} cannot be made: {exc.strerror}") from exc
    problem = distrust(directory)
    if problem:
        raise ImageError(problem)


def proof(path: Path) -> Record:
    """What changes when anybody writes to a file; ctime cannot be set back."""
    found = path.lstat()
    return {
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "ctime_ns": found.st_ctime_ns,
        "inode": found.st_ino,
    }


def transfer(source: t.BinaryIO, target: t.BinaryIO | None) -> tuple[str, int]:
    """Copy, or only read, and return sha256 and size; one piece is hashed while the next is read and written."""
    digest, size = hashlib.sha256(), 0
    with ThreadPoolExecutor(1) as pool:
        hashed = None
        for piece in iter(lambda: source.read(CHUNK), b""):
            if hashed:
                hashed.result()
            hashed = pool.submit(digest.update, piece)
            size += len(piece)
            if target:
                target.write(piece)
    return digest.hexdigest(), size


def sha256(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return transfer(t.cast(t.BinaryIO, file), None)[0]


def squashfs_problem(path: Path) -> str:
    """Say why a file is no whole squashfs, by its superblock: a copy that broke off is shorter than that says."""
    with path.open("rb") as file:
        head = file.read(96)
        size = os.fstat(file.fileno()).st_size
    if len(head) < 96 or head[:4] != b"hsqs":
        return f"it is no squashfs ({size} bytes, it begins with {head[:4]!r})"
    used = struct.unpack_from("<Q", head, 40)[0]
    return f"it is cut off: the squashfs has {used} bytes, the file {size}" if size < used else ""


def damage(path: Path, image: t.Mapping[str, t.Any], known: Record | None, verify: bool) -> str:
    """Say what is wrong with an image's file, empty when nothing; it is not read while it is as when it was hashed."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return "is not there"
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()):
        return f"is no file of uid {os.geteuid()}"
    if found.st_size != image["size"]:
        return f"has {found.st_size} bytes instead of {image['size']}"
    if known == proof(path) and not verify:
        return ""
    digest = sha256(path)
    return "" if digest == image["sha256"] else f"has sha256 {digest} instead of {image['sha256']}"


def copy(source: Path, aside: Path, image: t.Mapping[str, t.Any]) -> None:
    """Bring a file to a name of its own; anything but the image itself is refused and removed."""
    try:
        with source.open("rb", buffering=0) as reader, create(aside) as writer:
            digest, size = transfer(t.cast(t.BinaryIO, reader), writer)
        if (size, digest) != (image["size"], image["sha256"]):
            raise ImageError(
                f"{source} gave {size} bytes with sha256 {digest} instead of {image['size']} with {image['sha256']}"
            )
    except OSError as exc:
        aside.unlink(missing_ok=True)
        raise ImageError(f"copying {source} to {aside.parent}: {exc.strerror}") from exc
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def create(path: Path) -> t.BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return t.cast(t.BinaryIO, os.fdopen(os.open(path, flags, 0o600), "wb"))


def adopt(aside: Path, path: Path) -> Record:
    """Give a checked file its name, once it is on the disk, and return what shows that nobody wrote to it since."""
    with aside.open("rb+") as file:
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    aside.replace(path)
    return proof(path)


# The names of images in a directory: links, what is remembered of files, what is old. Private, stdlib only.


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


# Images on the scratch of one node: what is there, and what is missing. Private, stdlib only; see ``image_stage``.


UNPROVED = "was touched since it was hashed"


class StagedNode:
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


# The program that brings images to the scratch of the node that it runs on: private, stdlib only.


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
    node = StagedNode({**task, "images": images, "absent": [], "min_free": task["min_free"] * 1000000})
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
    sys.stdout.write(f"{MARK}{json.dumps(StagedNode(task).run(task['action']))}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
