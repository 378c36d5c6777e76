# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an image comes from, and whether what is kept is still it. Pure, private."""

from __future__ import annotations

import re
import typing as t
from urllib.parse import urlsplit

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_files import ImageError, Record

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


class Asked(t.NamedTuple):
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


def validate(asked: Asked) -> None:
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


def stale(asked: Asked, kept: Record | None, wrong: str, digest: str) -> str:
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


def same(asked: Asked, kept: Record, digest: str) -> bool:
    """Say whether an old version is what is asked for, so that nothing need be brought."""
    if asked.kind != "docker":
        return bool(kept["sha256"] == asked.sha256)
    told = (kept["digest"], kept["squash_options"]) == (digest, asked.squash_options)
    return bool(digest) and told and asked.sha256 in ("", kept["sha256"])


def reference(asked: Asked, digest: str) -> str:
    """Return what enroot imports: exactly what the tag meant when it was asked."""
    return asked.source if asked.pinned or not digest else f"{asked.source}@{digest}"


def digest_of(said: str) -> str:
    """Read what ``enroot digest`` printed."""
    found = re.search(r"^sha256:[0-9a-f]{64}$", said.strip(), re.MULTILINE)
    return found.group() if found else ""


KEPT = {"name", "file", "sha256", "size", "source", "digest", "squash_options"}


def manifest(asked: Asked, sha256: str, size: int, digest: str, enroot: str) -> Record:
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
