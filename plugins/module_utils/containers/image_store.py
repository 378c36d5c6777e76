# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shared directory that images are kept in: squashed once, under a name that tells their content. Private."""

from __future__ import annotations

import contextlib
import os
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lock import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import image_source as source
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_files import (
    ImageError,
    Record,
    adopt,
    damage,
    distrust,
    have,
    proof,
    sha256,
    squashfs_problem,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_folder import (
    PARTIAL,
    drop,
    point,
    pointed,
    read_json,
    sweep,
    unlink,
    versions,
    write_json,
)


class Origin(t.Protocol):
    """Whoever can ask a registry and bring a squashfs."""

    def digest(self) -> str: ...

    def enroot(self) -> str: ...

    def bring(self, aside: Path, digest: str) -> None: ...


class Store:
    """One image in its directory."""

    def __init__(self, directory: Path, asked: source.Asked, origin: Origin, keep: int, verify: bool) -> None:
        self.directory, self.asked, self.origin = directory, asked, origin
        self.keep, self.verify = keep, verify
        self.link = directory / f"{asked.name}.sqsh"

    def manifest(self, file: str) -> Record | None:
        found = read_json(self.directory / f"{file[: -len('.sqsh')]}.json") if file else None
        return found if found and set(found) >= source.KEPT else None

    def wrong(self, kept: Record) -> str:
        return damage(self.directory / kept["file"], kept, kept.get("proof"), self.verify)

    def ensure(self, dry: bool) -> Record:
        """Have the image; return it, whether that changed anything, and why."""
        source.validate(self.asked)
        if dry:
            return self.decide(dry)
        have(self.directory)
        with lock(self.directory / ".lock"):
            sweep(self.directory)
            return self.decide(dry)

    def decide(self, dry: bool) -> Record:
        problem = distrust(self.directory) if self.directory.is_dir() else ""
        if problem:
            raise ImageError(problem)
        kept = self.manifest(pointed(self.link))
        digest = self.origin.digest() if self.asked.pull != "missing" else ""
        wrong = self.wrong(kept) if kept else ""
        reason = source.stale(self.asked, kept, wrong, digest)
        before = self.told(kept, False) if kept else {}
        found: Record = {
            "before": before,
            "moved": source.moved(kept, digest),
            "reason": reason,
            "changed": bool(reason),
        }
        if reason and not dry:
            bad = pointed(self.link)
            kept = self.renew(digest)
            if wrong and kept["file"] != bad:
                self.discard(bad)
        elif reason:
            kept = source.manifest(self.asked, self.asked.sha256, 0, digest, "")
        elif kept and not dry and kept.get("proof") != proof(self.directory / kept["file"]):
            self.remember(kept)  # it was read and is what it was
        return {**found, "image": self.told(t.cast(Record, kept), bool(reason) and dry)}

    def discard(self, file: str) -> None:
        """Remove a damaged version, which is not worth keeping."""
        for path in (self.directory / file, self.directory / f"{file[: -len('.sqsh')]}.json"):
            path.unlink(missing_ok=True)

    def renew(self, digest: str) -> Record:
        """Take an old version that is what is asked for, or bring the image."""
        if self.asked.kind == "docker":
            digest = digest or self.asked.pinned or self.origin.digest()
        old = [found for found in map(self.manifest, versions(self.directory, self.asked.name)) if found]
        whole = [kept for kept in old if source.same(self.asked, kept, digest) and not self.wrong(kept)]
        kept = {**whole[0], "source": self.asked.told} if whole else self.bring(digest)
        self.remember(kept)
        point(self.link, kept["file"])
        drop(self.directory, self.asked.name, kept["file"], self.keep)
        return kept

    def bring(self, digest: str) -> Record:
        """Have it written aside, look at all of it, and only then give it its name."""
        aside = self.directory / f".{self.asked.name}.{os.getpid()}{PARTIAL}"
        try:
            self.origin.bring(aside, digest)
            problem = squashfs_problem(aside)
            if problem:
                raise ImageError(f"{self.asked.told} is not taken: {problem}")
            found = sha256(aside)
            if self.asked.sha256 and found != self.asked.sha256:
                raise ImageError(f"{self.asked.told} has sha256 {found}, not {self.asked.sha256}; it is not taken")
            enroot = self.origin.enroot() if self.asked.kind == "docker" else ""
            kept = source.manifest(self.asked, found, aside.stat().st_size, digest, enroot)
            adopt(aside, self.directory / kept["file"])
        finally:
            aside.unlink(missing_ok=True)
        return kept

    def remember(self, kept: Record) -> None:
        told = {**kept, "proof": proof(self.directory / kept["file"])}
        write_json(self.directory / f"{kept['file'][: -len('.sqsh')]}.json", told)

    def told(self, kept: Record, planned: bool) -> Record:
        """Return what users need: the version's own path, which never changes its content, and the link."""
        image = {key: value for key, value in kept.items() if key not in ("proof", "schema")}
        if planned:
            image.update(file="", size=0)
        return {**image, "path": str(self.directory / image["file"]) if image["file"] else "", "link": str(self.link)}

    def remove(self, dry: bool) -> bool:
        """Remove the image with all its versions."""
        source.check_name(self.asked.name)
        there = self.directory.is_dir() and bool(pointed(self.link) or versions(self.directory, self.asked.name))
        if there and not dry:
            have(self.directory)
            with lock(self.directory / ".lock"), contextlib.suppress(FileNotFoundError):
                unlink(self.link)
                drop(self.directory, self.asked.name, "", 0)
        return there
