# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in the account, beside what should be: manifests and azcopy's listings. No I/O, private."""

from __future__ import annotations

import base64
import binascii
import json
import re
import typing as t
import urllib.parse

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import MANIFEST, CheckpointError, Sums

SCHEMA = 1
_URL = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]+)?/[a-z0-9$](-?[a-z0-9]){2,62}(/[^?#\s*]+)*")
_SIGNATURE = re.compile(r"(?i)(\bsig=)[^&\s\"']+")


class Blob(t.NamedTuple):
    """A blob as azcopy lists it; `md5` is empty when the service does not know it."""

    size: int
    md5: str


Entries = t.Dict[str, t.Dict[str, t.Any]]


def target(destination: str, name: str) -> str:
    """Return the URL below which a checkpoint is put."""
    url = "/".join(part for part in (destination.rstrip("/"), name.strip("/")) if part)
    if not _URL.fullmatch(url) or any(part in ("", ".", "..") for part in url.split("/")[3:]):
        raise CheckpointError(
            f"{hidden(url)!r} is no place for a checkpoint: https://<account>.blob.core.windows.net/<container>/<name>"
            " without a token is needed"
        )
    if len(url.split("/")) < 5:
        raise CheckpointError(f"{url} is a whole container; a checkpoint needs a name below it")
    return url


def blob_url(place: str, name: str, token: str = "") -> str:
    """Return the URL of a blob, or with an empty name of the place itself, with its token."""
    path = "/".join([place, *([urllib.parse.quote(name)] if name else [])])
    return f"{path}?{token.lstrip('?')}" if token else path


def hidden(text: str) -> str:
    """Return a text without the signatures of tokens."""
    return _SIGNATURE.sub(r"\1REDACTED", text)


def messages(output: str) -> list[tuple[str, str]]:
    """Return what azcopy said with C(--output-type json), as kind and text; other lines are not its own."""
    said = []
    for line in output.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("MessageContent"), str):
            said.append((str(entry.get("MessageType")), entry["MessageContent"]))
    return said


def listing(output: str) -> dict[str, Blob]:
    """Return the blobs that C(azcopy list) printed, by name."""
    found = {}
    for kind, text in messages(output):
        if kind != "ListObject":
            continue
        try:
            entry = json.loads(text)
            digest = base64.b64decode(entry.get("ContentMD5") or "", validate=True).hex()
            found[urllib.parse.unquote(str(entry["Path"]))] = Blob(int(entry["ContentLength"]), digest)
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as exc:
            raise CheckpointError(f"azcopy listed a blob as {text[:200]!r}: {exc!r}") from exc
    return found


def problem(output: str) -> str:
    """Return the telling part of what azcopy said when it failed."""
    said = messages(output)
    for kind, text in reversed(said):
        if kind == "Error":
            return _short(text)
    for kind, text in reversed(said):
        codes = sorted(set(re.findall(r'"ErrorCode":"?(\d+)', text))) if kind in ("Progress", "EndOfJob") else []
        if codes:
            return f"the service answered {', '.join(codes)}"
    lines = output.strip().splitlines()
    return hidden(lines[-1])[:300] if lines else "it said nothing"


def _short(text: str) -> str:
    codes = re.findall(r"^RESPONSE (?:\d+: )?(.*)$|^ERROR CODE: (.*)$", text, re.MULTILINE)
    told = ", ".join(part for pair in codes for part in pair if part)
    return hidden(told or " ".join(text.split()))[:300]


def finished(output: str) -> bool:
    """Say whether a copy was completed: by its own word, whatever the exit status."""
    ends = [text for kind, text in messages(output) if kind == "EndOfJob"]
    return bool(ends) and '"JobStatus":"Completed"' in ends[-1]


def manifest(entries: Entries) -> str:
    """Return the list of a checkpoint's files; the same files give the same text."""
    return json.dumps({"schema": SCHEMA, "files": entries}, indent=1, sort_keys=True) + "\n"


def entry(size: int, sums: Sums) -> dict[str, t.Any]:
    """Return what a manifest says of one file."""
    return {"size": size, "md5": sums.md5, "sha256": sums.sha256}


def read_manifest(text: str, where: str) -> Entries:
    """Return the files of a manifest."""
    try:
        document = json.loads(text)
        files = document["files"]
        if document["schema"] != SCHEMA or not all(set(one) == {"size", "md5", "sha256"} for one in files.values()):
            raise CheckpointError(f"{where} is the manifest of another version of this collection")
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        if isinstance(exc, CheckpointError):
            raise
        raise CheckpointError(f"{where} is no manifest of a checkpoint") from exc
    return t.cast(Entries, files)


def differing(entries: Entries, blobs: t.Mapping[str, Blob]) -> list[str]:
    """Return which files are not in the account, or not as they should be, sorted."""
    return sorted(name for name, one in entries.items() if blobs.get(name) != Blob(one["size"], one["md5"]))


def stray(entries: Entries, blobs: t.Mapping[str, Blob]) -> list[str]:
    """Return which blobs lie among a checkpoint's files and are none of them."""
    return sorted(set(blobs) - set(entries) - {MANIFEST})


def conflicts(entries: Entries, sealed: Entries) -> list[str]:
    """Return which files a sealed checkpoint does not have, or has otherwise."""
    return sorted(name for name, one in entries.items() if sealed.get(name) != one)
