# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images from a registry into the store: reference, digest, import by enroot."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import typing as t
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import flags
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_node import (
    PARTIAL,
    ImageError,
    Record,
    adopt,
    create,
    damage,
    distrust,
    drop,
    have,
    point,
    pointed,
    proof,
    read_json,
    sha256,
    squashfs_problem,
    sweep,
    unlink,
    versions,
    write_json,
)

# Where an image comes from, and whether what is kept is still it. Pure, private.


ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "source": {"type": "str"},
    "sha256": {"type": "str", "default": ""},
    "pull": {"type": "str", "choices": ["missing", "check", "always"], "default": "missing"},
    "directory": {"type": "path", "required": True},
    "squash_options": {"type": "str", "default": ""},
    "import_on": {"type": "str", "choices": ["node", "here"], "default": "node"},
    "partition": {"type": "str"},
    "srun_options": {"type": "dict", "default": {}},
    "keep": {"type": "int", "default": 1},
    "verify": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 3600},
}
NAME = re.compile(r"[a-z0-9](?:[a-z0-9._+-]{0,98}[a-z0-9])?")
_VERSION = re.compile(r"-[0-9a-f]{12}$")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})$")
_REGISTRY = re.compile(r"docker://(?:[^/@#\s:]+@)?[^/@\s][^@\s]*(?:@sha256:[0-9a-f]{64})?")


class ImageReference(t.NamedTuple):
    """One image as it is asked for."""

    name: str
    source: str
    sha256: str = ""
    pull: str = "missing"
    squash_options: str = ""

    @property
    def kind(self) -> str:
        """Return docker, url or file."""
        return {"docker": "docker", "https": "url"}.get(urlsplit(self.source).scheme, "file")

    @property
    def told(self) -> str:
        """Return the source without what may be secret, as it is kept and told."""
        return self.source.partition("?")[0] if self.kind == "url" else self.source

    @property
    def secret(self) -> str:
        """Return the part of the source that may be secret."""
        return self.source.partition("?")[2] if "://" in self.source else ""

    @property
    def pinned(self) -> str:
        """Return the digest that the source names itself."""
        found = _DIGEST.search(self.source) if self.kind == "docker" else None
        return found.group(1) if found else ""


def validate(asked: ImageReference) -> None:
    """Refuse what cannot be had, or not be had safely, before anything is done."""
    check_name(asked.name)
    scheme = urlsplit(asked.source).scheme
    if asked.kind == "file" and (scheme or not asked.source.startswith("/")):
        raise ImageError(f"source {asked.source!r} is neither docker://..., https://... nor an absolute path")
    if asked.kind == "url" and urlsplit(asked.source).username is not None:
        raise ImageError("the source's URL holds a user; give one without, for example with a token that expires")
    if asked.kind == "docker" and not _REGISTRY.fullmatch(asked.source):
        raise ImageError(
            f"source {asked.source!r} is not docker://[USER@]REGISTRY#IMAGE[:TAG][@sha256:DIGEST];"
            " a password belongs into enroot's credentials file"
        )
    if asked.sha256 and not _SHA256.fullmatch(asked.sha256):
        raise ImageError(f"sha256 {asked.sha256!r} is not 64 hexadecimal digits")
    if asked.kind != "docker" and not asked.sha256:
        raise ImageError(f"source {asked.told} needs sha256, so that what is brought to all nodes is what was meant")


def check_name(name: str) -> None:
    if _VERSION.search(name):
        raise ImageError(f"name {name!r} looks like a version of another image; do not end it in 12 hexadecimal digits")
    if not NAME.fullmatch(name) or name.endswith(".sqsh"):
        raise ImageError(f"name {name!r} must be lower-case letters, digits and . _ + - in between, without .sqsh")


def stale(asked: ImageReference, kept: Record | None, wrong: str, digest: str) -> str:
    """Say why what is kept will not do, empty when it does; ``digest`` is the registry's of now, if it was asked."""
    if not kept:
        return "it is not there"
    if wrong:
        return f"{kept['file']} {wrong}"
    if asked.sha256 and asked.sha256 != kept["sha256"]:
        return f"it has sha256 {kept['sha256']}"
    if asked.kind != "docker":
        return ""
    if asked.told != kept["source"]:
        return f"it came from {kept['source']}"
    if asked.squash_options != kept["squash_options"]:
        return f"it was squashed with {kept['squash_options'] or 'what enroot.conf says'}"
    if asked.pull == "always" and digest and digest != kept["digest"]:
        return f"the tag moved from {kept['digest'] or 'an unknown digest'} to {digest}"
    return ""


def moved(kept: Record | None, digest: str) -> Record | None:
    """Return from where to where a tag moved since the image was imported."""
    if not kept or not digest or not kept["digest"] or kept["digest"] == digest:
        return None
    return {"from": kept["digest"], "to": digest}


def same(asked: ImageReference, kept: Record, digest: str) -> bool:
    """Say whether an old version is what is asked for, so that nothing need be brought."""
    if asked.kind != "docker":
        return bool(kept["sha256"] == asked.sha256)
    told = (kept["digest"], kept["squash_options"]) == (digest, asked.squash_options)
    return bool(digest) and told and asked.sha256 in ("", kept["sha256"])


def reference(asked: ImageReference, digest: str) -> str:
    """Return what enroot imports: exactly what the tag meant when it was asked."""
    return asked.source if asked.pinned or not digest else f"{asked.source}@{digest}"


def digest_of(said: str) -> str:
    """Read what ``enroot digest`` printed."""
    found = re.search(r"^sha256:[0-9a-f]{64}$", said.strip(), re.MULTILINE)
    return found.group() if found else ""


KEPT = {"name", "file", "sha256", "size", "source", "digest", "squash_options"}


def manifest(asked: ImageReference, sha256: str, size: int, digest: str, enroot: str) -> Record:
    """What is kept beside an image."""
    return {
        "schema": 1,
        "name": asked.name,
        "file": f"{asked.name}-{sha256[:12]}.sqsh",
        "sha256": sha256,
        "size": size,
        "source": asked.told,
        "digest": digest,
        "squash_options": asked.squash_options if asked.kind == "docker" else "",
        "enroot": enroot,
    }


# Bring a squashfs from where it comes from: enroot and a registry, a web server, a file.


Open = t.Callable[[str], t.BinaryIO]
_NO_SUCH = re.compile(r"Usage: enroot|Unknown|Invalid argument", re.IGNORECASE)


class EnrootOrigin:
    """One source, asked by the programs of this host or of a compute node."""

    def __init__(self, asked: ImageReference, srun: t.Sequence[str], timeout: float, opened: Open) -> None:
        self.asked, self.srun, self.timeout, self.opened = asked, list(srun), timeout, opened

    def ask(self, *words: str) -> _process.Outcome:
        variables = {"ENROOT_SQUASH_OPTIONS": self.asked.squash_options} if self.asked.squash_options else {}
        return _process.run([*self.srun, "enroot", *words], self.timeout, environment=variables)

    def enroot(self) -> str:
        return self.ask("version").out.strip()

    def digest(self) -> str:
        """Return what the tag means now."""
        if self.asked.kind != "docker":
            return ""
        if self.asked.pinned:
            return self.asked.pinned
        outcome = self.ask("digest", self.asked.source)
        found = digest_of(outcome.out)
        if not found and not _NO_SUCH.search(outcome.err + outcome.out):
            raise ImageError(refusal(f"the digest of {self.asked.told} cannot be had", outcome))
        return found  # none from an enroot before 4.1, which has no such command

    def bring(self, aside: Path, digest: str) -> None:
        if self.asked.kind == "docker":
            outcome = self.ask("import", "--output", str(aside), reference(self.asked, digest))
            if outcome.rc != 0:
                raise ImageError(refusal(f"{self.asked.told} cannot be imported", outcome))
            return
        try:
            with self.read() as reader, create(aside) as writer:
                shutil.copyfileobj(reader, writer, 8 << 20)
        except (OSError, HTTPException) as exc:
            said = getattr(exc, "strerror", None) or exc
            raise ImageError(f"{self.asked.told} cannot be copied to {aside.parent}: {said}") from exc

    def read(self) -> t.BinaryIO:
        return Path(self.asked.source).open("rb") if self.asked.kind == "file" else self.opened(self.asked.source)


def refusal(what: str, outcome: _process.Outcome) -> str:
    """Say what enroot said, without its progress."""
    said = re.sub(r"\x1b\[[0-9;]*m", "", f"{outcome.err}\n{outcome.out}")
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("[INFO]")]
    hint = {
        "Could not resolve|Failed to connect|Connection refused|timed out": "is the registry up and reachable?",
        "returned error code: 40[13]|unauthorized": "are the user's credentials in enroot's .credentials file?",
        "404|MANIFEST_UNKNOWN": "does the registry have this name and tag?",
        "No space left": "enroot unpacks to ENROOT_TEMP_PATH and ENROOT_CACHE_PATH: is there room?",
        "failed to set capabilities|Operation not permitted": "are enroot's file capabilities installed on that host?",
        "cannot be started|No such file|command not found": "is enroot installed there?",
    }
    found = next((text for pattern, text in hint.items() if re.search(pattern, said, re.IGNORECASE)), "")
    return f"{what}: {'; '.join(lines[-3:]) or outcome.problem}{f' ({found})' if found else ''}"


def on_a_node(srun: str, partition: str | None, options: t.Mapping[str, t.Any]) -> list[str]:
    """Return the srun command line that runs enroot on any one node."""
    defaults = {"job_name": "hpcai_images", "mpi": "none", "chdir": "/", "quiet": True, "partition": partition}
    return [srun, *flags({**defaults, **options, "nodes": 1, "ntasks": 1})]


# The shared directory that images are kept in: squashed once, under a name that tells their content.


class ImageOrigin(t.Protocol):
    """Whoever can ask a registry and bring a squashfs."""

    def digest(self) -> str: ...

    def enroot(self) -> str: ...

    def bring(self, aside: Path, digest: str) -> None: ...


class ImageStore:
    """One image in its directory."""

    def __init__(self, directory: Path, asked: ImageReference, origin: ImageOrigin, keep: int, verify: bool) -> None:
        self.directory, self.asked, self.origin = directory, asked, origin
        self.keep, self.verify = keep, verify
        self.link = directory / f"{asked.name}.sqsh"

    def manifest(self, file: str) -> Record | None:
        found = read_json(self.directory / f"{file[: -len('.sqsh')]}.json") if file else None
        return found if found and set(found) >= KEPT else None

    def wrong(self, kept: Record) -> str:
        return damage(self.directory / kept["file"], kept, kept.get("proof"), self.verify)

    def ensure(self, dry: bool) -> Record:
        """Have the image; return it, whether that changed anything, and why."""
        validate(self.asked)
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
        reason = stale(self.asked, kept, wrong, digest)
        before = self.told(kept, False) if kept else {}
        found: Record = {
            "before": before,
            "moved": moved(kept, digest),
            "reason": reason,
            "changed": bool(reason),
        }
        if reason and not dry:
            bad = pointed(self.link)
            kept = self.renew(digest)
            if wrong and kept["file"] != bad:
                self.discard(bad)
        elif reason:
            kept = manifest(self.asked, self.asked.sha256, 0, digest, "")
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
        whole = [kept for kept in old if same(self.asked, kept, digest) and not self.wrong(kept)]
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
            kept = manifest(self.asked, found, aside.stat().st_size, digest, enroot)
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
        check_name(self.asked.name)
        there = self.directory.is_dir() and bool(pointed(self.link) or versions(self.directory, self.asked.name))
        if there and not dry:
            have(self.directory)
            with lock(self.directory / ".lock"), contextlib.suppress(FileNotFoundError):
                unlink(self.link)
                drop(self.directory, self.asked.name, "", 0)
        return there
