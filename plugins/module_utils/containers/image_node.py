# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that brings images to the scratch of the node that it runs on. Standard library only, also for modules.

Its text is sent behind that of the one file of the collection that it imports: ``python3 - task JSON`` behind it is
one step of a Slurm job and answers in one line of JSON. Without ``task`` it does all of it on one node, for a person or
for a node that joins.
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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import distrust, trusted_users

# Image files in a directory that nobody else may write to.


CHUNK = 8 << 20
Record = t.Dict[str, t.Any]


class ImageError(ValueError):
    """An image cannot be provided as requested; the text is fit for the user."""


def suspect(directory: Path) -> str:
    """Say how other users could replace our files, by a link on the way as well; empty when they cannot."""
    problem = distrust(str(directory.absolute()), trusted_users())
    advice = f"give it to uid {os.geteuid()} or root, and take the right to write from others"
    return problem and f"{problem}, so that others could replace images; {advice}"


def make_folder(directory: Path) -> None:
    """Make the directory, or refuse it; its parent must exist, which it does not where scratch is not mounted."""
    try:
        if not directory.is_dir():
            directory.mkdir()
            directory.chmod(0o755)
    except OSError as exc:
        raise ImageError(f"{directory} cannot be made: {exc.strerror}") from exc
    problem = suspect(directory)
    if problem:
        raise ImageError(problem)


def proof(path: Path) -> Record:
    """Return the attributes that change when anybody writes to a file; ctime cannot be set back."""
    status = path.lstat()
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
        "inode": status.st_ino,
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
    """Say why a file is no complete squashfs, empty when it is one: its superblock has the size."""
    with path.open("rb") as file:
        head = file.read(96)
        size = os.fstat(file.fileno()).st_size
    if len(head) < 96 or head[:4] != b"hsqs":
        return f"it is no squashfs ({size} bytes, it begins with {head[:4]!r})"
    used = struct.unpack_from("<Q", head, 40)[0]
    return f"it is cut off: the squashfs has {used} bytes, the file {size}" if size < used else ""


def damage(path: Path, image: t.Mapping[str, t.Any], known: Record | None, verify: bool) -> str:
    """Say what is wrong with an image's file, empty when nothing; an unchanged file is not read again."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return "is not there"
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()):
        return f"is no file of uid {os.geteuid()}"
    if status.st_size != image["size"]:
        return f"has {status.st_size} bytes instead of {image['size']}"
    if known == proof(path) and not verify:
        return ""
    digest = sha256(path)
    return "" if digest == image["sha256"] else f"has sha256 {digest} instead of {image['sha256']}"


def copy(source: Path, aside: Path, image: t.Mapping[str, t.Any]) -> None:
    """Copy an image to a temporary name; a copy with another size or digest is removed and refused."""
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
    """Give a checked file its name, once it is on the disk, and return its proof against later writes."""
    with aside.open("rb+") as file:
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    aside.replace(path)
    return proof(path)


# The names of images in a directory: links, records of files, old versions.


# sbcast writes without our lock, so only its age tells whether a file of it is left over.
BROADCAST, PARTIAL, OLD = ".broadcast", ".partial", 3600


def read_json(path: Path) -> Record | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


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
    """Point a link to another file, by one rename; return whether that changed it."""
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
    """Return the target of a link, empty when it is no link."""
    return os.readlink(link) if link.is_symlink() else ""  # Path.readlink is not in Python 3.8


def unlink(link: Path) -> None:
    """Remove a link, but no file that somebody put there."""
    if link.is_symlink():
        link.unlink()


def versions(directory: Path, name: str) -> list[str]:
    """Return the files of an image, the one written last first."""
    form = re.compile(re.escape(name) + r"-[0-9a-f]{12}\.sqsh")
    paths = [path for path in directory.iterdir() if form.fullmatch(path.name)]
    return [path.name for path in sorted(paths, key=lambda path: path.lstat().st_mtime_ns, reverse=True)]


def drop(directory: Path, name: str, current: str, keep: int) -> list[str]:
    """Remove an image's files except the current one and the ``keep`` newest others; return their names."""
    removed = [file for file in versions(directory, name) if file != current][max(0, keep) :]
    for file in removed:
        for path in (directory / file, directory / record_name(file), directory / f"{file[: -len('.sqsh')]}.json"):
            path.unlink(missing_ok=True)
    return removed


def record_name(file: str) -> str:
    """Return the name of a node's record of a file."""
    return f".{file}.json"


def sweep(directory: Path) -> None:
    """Remove partial files of killed runs; call it under the directory's lock."""
    for path in directory.glob(".*"):
        with contextlib.suppress(FileNotFoundError):
            old = path.lstat().st_mtime < time.time() - OLD
            if path.name.endswith(PARTIAL) or (path.name.endswith(BROADCAST) and old):
                path.unlink()


# Images on the scratch of one node.


UNPROVED = "was touched since it was hashed"


class StagedNode:
    """One node's directory of images, and the images that it shall have."""

    def __init__(self, task: Record) -> None:
        self.task, self.folder = task, Path(task["directory"])
        self.images: list[Record] = task["images"]

    def run(self, action: str) -> Record:
        """Run one action (look, prepare, place or use) and return the state of each image."""
        answer: Record = {"node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(), "images": {}}
        begin = time.monotonic()
        try:
            if action == "look":
                answer.update(self.look())
            else:
                make_folder(self.folder)
                with (self.folder / ".lock").open("a") as file:
                    fcntl.lockf(file, fcntl.LOCK_EX)
                    sweep(self.folder)
                    answer.update(getattr(self, action)())
        except (ImageError, OSError) as exc:
            answer["problem"] = str(exc)
        return {**answer, "seconds": round(time.monotonic() - begin, 3)}

    def look(self) -> Record:
        """Return the state of all images without a change; files that are unchanged since their hash are not read."""
        exists = self.folder.is_dir()
        problem = (suspect(self.folder) if exists else "") or self.no_room([] if exists else self.images)
        images = {image["name"]: self.state(image) for image in self.images}
        removable = [name for name in self.task["absent"] if exists and self.has(name)]
        return {"images": images, "absent": removable, "problem": problem}

    def has(self, name: str) -> bool:
        return bool(pointed(self.folder / f"{name}.sqsh") or versions(self.folder, name))

    def state(self, image: Record) -> str:
        """Return ``current``, or what is wrong with the image."""
        if not image["file"]:
            return "is not there"  # a plan for an image that is yet to be imported
        path, known = self.folder / image["file"], read_json(self.folder / record_name(image["file"]))
        problem = damage(path, image, known, self.task["verify"])
        link = f"{image['name']}.sqsh"
        if not problem and pointed(self.folder / link) != image["file"]:
            problem = f"is not what {link} names"
        return problem or ("current" if known == proof(path) else UNPROVED)

    def no_room(self, images: t.Sequence[Record]) -> str:
        """Say that images do not fit, empty when they do."""
        directory = self.folder if self.folder.is_dir() else self.folder.parent
        if not directory.is_dir():
            return f"{directory} is not there; is scratch mounted?"
        filesystem = os.statvfs(directory)
        free, needed = filesystem.f_bavail * filesystem.f_frsize, sum(image["size"] for image in images)
        if not images or needed + self.task["min_free"] <= free:
            return ""
        return (
            f"{directory} has {free / 1e6:.0f} MB free, {needed / 1e6:.0f} MB are needed"
            f" and {self.task['min_free'] / 1e6:.0f} MB are to stay free"
        )

    def prepare(self) -> Record:
        """Remove damaged images, and refuse missing ones that would not fit, before anything is sent."""
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
        """Copy missing images under their versions' names; the links that jobs use do not change yet."""
        return {"images": {image["name"]: self.stage_image(image) for image in self.images}}

    def stage_image(self, image: Record) -> str:
        path = self.folder / image["file"]
        try:
            problem = damage(path, image, self.known(image), self.task["verify"])
            if problem:
                path.unlink(missing_ok=True)
                self.bring(image, path)
            write_json(self.folder / record_name(image["file"]), proof(path))
        except (ImageError, OSError) as exc:
            return str(exc)
        finally:
            (self.folder / f".{image['file']}{BROADCAST}").unlink(missing_ok=True)
        return "copied" if problem else "kept"

    def bring(self, image: Record, path: Path) -> None:
        """Put an image in its place on this node: copied from the source, or as sbcast has brought it."""
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
        """Point the links to the complete images; remove old versions and images that shall be absent."""
        images = {}
        for image in self.images:
            problem = damage(self.folder / image["file"], image, self.known(image), False)
            if not problem:
                point(self.folder / f"{image['name']}.sqsh", image["file"])
                drop(self.folder, image["name"], image["file"], self.task["keep"])
            images[image["name"]] = problem or "current"
        for name in self.task["absent"]:
            unlink(self.folder / f"{name}.sqsh")
            drop(self.folder, name, "", 0)
        return {"images": images}


# The program.


MARK = "HPCAI_IMAGES "
_KEYS = ("name", "file", "sha256", "size")
GOOD = ("copied", "kept", "current")


def kept(directory: Path, names: t.Sequence[str]) -> list[Record]:
    """Return the manifests of the images that a directory's links name, or of the given names only."""
    images = []
    for name in names or sorted(path.name[: -len(".sqsh")] for path in directory.glob("*.sqsh") if path.is_symlink()):
        file = pointed(directory / f"{name}.sqsh")
        manifest = read_json(directory / f"{file[: -len('.sqsh')]}.json") if file else None
        if not manifest or not set(_KEYS) <= set(manifest):
            raise ImageError(f"{directory} has no image {name}")
        images.append({key: manifest[key] for key in _KEYS})
    return images


def alone(argv: t.Sequence[str]) -> str:
    """Stage images on this node alone; return what is wrong, empty when nothing is."""
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
        problems = [f"{name}: {state}" for name, state in answer["images"].items() if state not in GOOD]
        if problems or answer.get("problem"):
            return "; ".join([answer.get("problem", ""), *problems]).lstrip("; ")
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
