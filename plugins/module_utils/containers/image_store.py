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
    drop,
    make_folder,
    point,
    pointed,
    proof,
    read_json,
    sha256,
    squashfs_problem,
    suspect,
    sweep,
    unlink,
    versions,
    write_json,
)

# The requested image, and whether the stored one is still it.


SPEC: dict[str, dict[str, t.Any]] = {
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
    """The requested image."""

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
    def public_source(self) -> str:
        """Return the source without its secret part, as it is stored and shown."""
        return self.source.partition("?")[0] if self.kind == "url" else self.source

    @property
    def secret(self) -> str:
        """Return the part of the source that may be secret."""
        return self.source.partition("?")[2] if "://" in self.source else ""

    @property
    def pinned(self) -> str:
        """Return the digest in the source, empty without one."""
        match = _DIGEST.search(self.source) if self.kind == "docker" else None
        return match.group(1) if match else ""


def validate(request: ImageReference) -> None:
    """Refuse a source that cannot be read, or not safely, before anything is done."""
    check_name(request.name)
    scheme = urlsplit(request.source).scheme
    if request.kind == "file" and (scheme or not request.source.startswith("/")):
        raise ImageError(f"source {request.source!r} is neither docker://..., https://... nor an absolute path")
    if request.kind == "url" and urlsplit(request.source).username is not None:
        raise ImageError("the source's URL holds a user; give one without, for example with a token that expires")
    if request.kind == "docker" and not _REGISTRY.fullmatch(request.source):
        raise ImageError(
            f"source {request.source!r} is not docker://[USER@]REGISTRY#IMAGE[:TAG][@sha256:DIGEST];"
            " a password belongs into enroot's credentials file"
        )
    if request.sha256 and not _SHA256.fullmatch(request.sha256):
        raise ImageError(f"sha256 {request.sha256!r} is not 64 hexadecimal digits")
    if request.kind != "docker" and not request.sha256:
        raise ImageError(
            f"source {request.public_source} needs sha256, so that what is brought to all nodes is what was meant"
        )


def check_name(name: str) -> None:
    if _VERSION.search(name):
        raise ImageError(f"name {name!r} looks like a version of another image; do not end it in 12 hexadecimal digits")
    if not NAME.fullmatch(name) or name.endswith(".sqsh"):
        raise ImageError(f"name {name!r} must be lower-case letters, digits and . _ + - in between, without .sqsh")


def stale(request: ImageReference, stored: Record | None, damaged: str, digest: str) -> str:
    """Say why the stored image does not do, empty when it does; ``digest`` is the registry's, if it was queried."""
    if not stored:
        return "it is not there"
    if damaged:
        return f"{stored['file']} {damaged}"
    if request.sha256 and request.sha256 != stored["sha256"]:
        return f"it has sha256 {stored['sha256']}"
    if request.kind != "docker":
        return ""
    if request.public_source != stored["source"]:
        return f"it came from {stored['source']}"
    if request.squash_options != stored["squash_options"]:
        return f"it was squashed with {stored['squash_options'] or 'what enroot.conf says'}"
    if request.pull == "always" and digest and digest != stored["digest"]:
        return f"the tag moved from {stored['digest'] or 'an unknown digest'} to {digest}"
    return ""


def moved(stored: Record | None, digest: str) -> Record | None:
    """Return the old and the new digest of a tag that moved since the image was imported, else None."""
    if not stored or not digest or not stored["digest"] or stored["digest"] == digest:
        return None
    return {"from": stored["digest"], "to": digest}


def same(request: ImageReference, stored: Record, digest: str) -> bool:
    """Say whether an old version is the requested image, so that nothing has to be imported."""
    if request.kind != "docker":
        return bool(stored["sha256"] == request.sha256)
    matches = (stored["digest"], stored["squash_options"]) == (digest, request.squash_options)
    return bool(digest) and matches and request.sha256 in ("", stored["sha256"])


def reference(request: ImageReference, digest: str) -> str:
    """Return what enroot imports: with the digest that the tag had when the registry was queried."""
    return request.source if request.pinned or not digest else f"{request.source}@{digest}"


def digest_of(output: str) -> str:
    """Read what ``enroot digest`` printed."""
    match = re.search(r"^sha256:[0-9a-f]{64}$", output.strip(), re.MULTILINE)
    return match.group() if match else ""


KEPT = {"name", "file", "sha256", "size", "source", "digest", "squash_options"}


def manifest(request: ImageReference, sha256: str, size: int, digest: str, enroot: str) -> Record:
    """Return the manifest that is stored beside an image."""
    return {
        "schema": 1,
        "name": request.name,
        "file": f"{request.name}-{sha256[:12]}.sqsh",
        "sha256": sha256,
        "size": size,
        "source": request.public_source,
        "digest": digest,
        "squash_options": request.squash_options if request.kind == "docker" else "",
        "enroot": enroot,
    }


# The source: a registry through enroot, a web server, a file.


Open = t.Callable[[str], t.BinaryIO]
_NO_SUCH = re.compile(r"Usage: enroot|Unknown|Invalid argument", re.IGNORECASE)


class EnrootOrigin:
    """One source, read by programs on this host or, through srun, on a compute node."""

    def __init__(self, request: ImageReference, srun: t.Sequence[str], timeout: float, opened: Open) -> None:
        self.request, self.srun, self.timeout, self.opened = request, list(srun), timeout, opened

    def ask(self, *arguments: str) -> _process.Outcome:
        variables = {"ENROOT_SQUASH_OPTIONS": self.request.squash_options} if self.request.squash_options else {}
        return _process.run([*self.srun, "enroot", *arguments], self.timeout, environment=variables)

    def enroot(self) -> str:
        return self.ask("version").out.strip()

    def digest(self) -> str:
        """Return the digest that the tag has now, empty where enroot cannot tell."""
        if self.request.kind != "docker":
            return ""
        if self.request.pinned:
            return self.request.pinned
        outcome = self.ask("digest", self.request.source)
        digest = digest_of(outcome.out)
        if not digest and not _NO_SUCH.search(outcome.err + outcome.out):
            raise ImageError(refusal(f"the digest of {self.request.public_source} cannot be had", outcome))
        return digest  # none from an enroot before 4.1, which has no such command

    def bring(self, aside: Path, digest: str) -> None:
        if self.request.kind == "docker":
            outcome = self.ask("import", "--output", str(aside), reference(self.request, digest))
            if outcome.rc != 0:
                raise ImageError(refusal(f"{self.request.public_source} cannot be imported", outcome))
            return
        try:
            with self.read() as reader, create(aside) as writer:
                shutil.copyfileobj(reader, writer, 8 << 20)
        except (OSError, HTTPException) as exc:
            reason = getattr(exc, "strerror", None) or exc
            raise ImageError(f"{self.request.public_source} cannot be copied to {aside.parent}: {reason}") from exc

    def read(self) -> t.BinaryIO:
        return Path(self.request.source).open("rb") if self.request.kind == "file" else self.opened(self.request.source)


def refusal(action: str, outcome: _process.Outcome) -> str:
    """Return an error with the last lines of enroot's output, without its progress, and a hint."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", f"{outcome.err}\n{outcome.out}")
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("[INFO]")]
    hint = {
        "Could not resolve|Failed to connect|Connection refused|timed out": "is the registry up and reachable?",
        "returned error code: 40[13]|unauthorized": "are the user's credentials in enroot's .credentials file?",
        "404|MANIFEST_UNKNOWN": "does the registry have this name and tag?",
        "No space left": "enroot unpacks to ENROOT_TEMP_PATH and ENROOT_CACHE_PATH: is there room?",
        "failed to set capabilities|Operation not permitted": "are enroot's file capabilities installed on that host?",
        "cannot be started|No such file|command not found": "is enroot installed there?",
    }
    advice = next((text for pattern, text in hint.items() if re.search(pattern, output, re.IGNORECASE)), "")
    return f"{action}: {'; '.join(lines[-3:]) or outcome.problem}{f' ({advice})' if advice else ''}"


def on_a_node(srun: str, partition: str | None, options: t.Mapping[str, t.Any]) -> list[str]:
    """Return the srun command line that runs enroot on any one node."""
    defaults = {"job_name": "hpcai_images", "mpi": "none", "chdir": "/", "quiet": True, "partition": partition}
    return [srun, *flags({**defaults, **options, "nodes": 1, "ntasks": 1})]


# The shared directory of images: imported once, under a name with the digest of their content.


class ImageOrigin(t.Protocol):
    """What the store needs of a source."""

    def digest(self) -> str: ...

    def enroot(self) -> str: ...

    def bring(self, aside: Path, digest: str) -> None: ...


class ImageStore:
    """One image in its directory."""

    def __init__(self, directory: Path, request: ImageReference, origin: ImageOrigin, keep: int, verify: bool) -> None:
        self.directory, self.request, self.origin = directory, request, origin
        self.keep, self.verify = keep, verify
        self.link = directory / f"{request.name}.sqsh"

    def manifest(self, file: str) -> Record | None:
        document = read_json(self.directory / f"{file[: -len('.sqsh')]}.json") if file else None
        return document if document and set(document) >= KEPT else None

    def wrong(self, stored: Record) -> str:
        return damage(self.directory / stored["file"], stored, stored.get("proof"), self.verify)

    def ensure(self, dry: bool) -> Record:
        """Import the image where it is missing; return it, whether that changed anything, and why."""
        validate(self.request)
        if dry:
            return self.decide(dry)
        make_folder(self.directory)
        with lock(self.directory / ".lock"):
            sweep(self.directory)
            return self.decide(dry)

    def decide(self, dry: bool) -> Record:
        """Return whether the image has to be imported and why, and import it unless it is a dry run."""
        problem = suspect(self.directory) if self.directory.is_dir() else ""
        if problem:
            raise ImageError(problem)
        stored = self.manifest(pointed(self.link))
        digest = self.origin.digest() if self.request.pull != "missing" else ""
        damaged = self.wrong(stored) if stored else ""
        reason = stale(self.request, stored, damaged, digest)
        before = self.result_of(stored, False) if stored else {}
        result: Record = {
            "before": before,
            "moved": moved(stored, digest),
            "reason": reason,
            "changed": bool(reason),
        }
        if reason and not dry:
            damaged_file = pointed(self.link)
            stored = self.renew(digest)
            if damaged and stored["file"] != damaged_file:
                self.discard(damaged_file)
        elif reason:
            stored = manifest(self.request, self.request.sha256, 0, digest, "")
        elif stored and not dry and stored.get("proof") != proof(self.directory / stored["file"]):
            self.remember(stored)  # it was read and is what it was
        return {**result, "image": self.result_of(t.cast(Record, stored), bool(reason) and dry)}

    def discard(self, file: str) -> None:
        """Remove a damaged version, which is not worth keeping."""
        for path in (self.directory / file, self.directory / f"{file[: -len('.sqsh')]}.json"):
            path.unlink(missing_ok=True)

    def renew(self, digest: str) -> Record:
        """Use an old version that is the requested image, or import it."""
        if self.request.kind == "docker":
            digest = digest or self.request.pinned or self.origin.digest()
        old = [entry for entry in map(self.manifest, versions(self.directory, self.request.name)) if entry]
        whole = [stored for stored in old if same(self.request, stored, digest) and not self.wrong(stored)]
        stored = {**whole[0], "source": self.request.public_source} if whole else self.bring(digest)
        self.remember(stored)
        point(self.link, stored["file"])
        drop(self.directory, self.request.name, stored["file"], self.keep)
        return stored

    def bring(self, digest: str) -> Record:
        """Import to a temporary name, check all of the file, and only then give it its name."""
        aside = self.directory / f".{self.request.name}.{os.getpid()}{PARTIAL}"
        try:
            self.origin.bring(aside, digest)
            problem = squashfs_problem(aside)
            if problem:
                raise ImageError(f"{self.request.public_source} is not taken: {problem}")
            content_digest = sha256(aside)
            if self.request.sha256 and content_digest != self.request.sha256:
                raise ImageError(
                    f"{self.request.public_source} has sha256 {content_digest}, not {self.request.sha256};"
                    " it is not taken"
                )
            enroot = self.origin.enroot() if self.request.kind == "docker" else ""
            stored = manifest(self.request, content_digest, aside.stat().st_size, digest, enroot)
            adopt(aside, self.directory / stored["file"])
        finally:
            aside.unlink(missing_ok=True)
        return stored

    def remember(self, stored: Record) -> None:
        record = {**stored, "proof": proof(self.directory / stored["file"])}
        write_json(self.directory / f"{stored['file'][: -len('.sqsh')]}.json", record)

    def result_of(self, stored: Record, planned: bool) -> Record:
        """Return the image for the module's result: the version's path, whose content does not change, and the link."""
        image = {key: value for key, value in stored.items() if key not in ("proof", "schema")}
        if planned:
            image.update(file="", size=0)
        return {**image, "path": str(self.directory / image["file"]) if image["file"] else "", "link": str(self.link)}

    def remove(self, dry: bool) -> bool:
        """Remove the image with all its versions."""
        check_name(self.request.name)
        exists = self.directory.is_dir() and bool(pointed(self.link) or versions(self.directory, self.request.name))
        if exists and not dry:
            make_folder(self.directory)
            with lock(self.directory / ".lock"), contextlib.suppress(FileNotFoundError):
                unlink(self.link)
                drop(self.directory, self.request.name, "", 0)
        return exists
