# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a checkpoint on this side and in the account: which, whether still written, who sends which."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import json
import os
import re
import stat
import typing as t
import urllib.parse
from pathlib import Path

# The files of a checkpoint: which there are, whether they are still written, which node sends which.


# What torch, safetensors, DeepSpeed, rsync and editors call a file until it is complete.
UNFINISHED = ("*.tmp", "*.tmp.*", "*.temp", "*.partial", "*.part", "*.incomplete", ".*", "*~", "tmp*.safetensors")
MANIFEST = "MANIFEST.json"
_CHUNK = 4 << 20
_FUTURE = 5.0


class CheckpointError(ValueError):
    """A checkpoint cannot be sent as it is; the text is fit for the user."""


class CheckpointFile(t.NamedTuple):
    """A file of a checkpoint, by its path below the directory."""

    name: str
    size: int
    mtime_ns: int


class Sums(t.NamedTuple):
    """Digests of a file: the service keeps MD5 with a blob, readers of the manifest trust SHA-256."""

    md5: str
    sha256: str


def scan(directory: Path, settle: float, now: float) -> list[CheckpointFile]:
    """Return all files, sorted; refuses a checkpoint that is, or may be, still written."""
    try:
        files = [CheckpointFile(*entry) for entry in _walk(directory)]
    except OSError as exc:
        raise CheckpointError(f"{directory} cannot be read: {exc.strerror or exc}") from exc
    if not files:
        raise CheckpointError(f"{directory} holds no files")
    unfinished = [file.name for file in files if _unfinished(file.name)]
    if unfinished:
        raise CheckpointError(f"{directory} is being written: {_some(unfinished)} is no finished file; try again later")
    newest = max(files, key=lambda file: file.mtime_ns)
    age = now - newest.mtime_ns / 1e9
    if age < -_FUTURE:
        raise CheckpointError(f"{directory}/{newest.name} was written {-age:.0f} s in the future: clocks differ")
    if age < settle:
        raise CheckpointError(
            f"{directory} may still be written: {newest.name} changed {age:.0f} s ago, and files must rest {settle:g} s"
        )
    return sorted(files)


def _walk(directory: Path) -> t.Iterator[tuple[str, int, int]]:
    for folder, folders, names in os.walk(directory, onerror=_fail):
        folders.sort()
        for name in [*names, *(entry for entry in folders if Path(folder, entry).is_symlink())]:
            path = Path(folder, name)
            known = path.lstat()
            relative = path.relative_to(directory).as_posix()
            if not stat.S_ISREG(known.st_mode):
                raise CheckpointError(f"{path} is no file; links and devices are not sent")
            if relative == MANIFEST:
                raise CheckpointError(f"{path} has the name that the list of all files gets beside them")
            if any(mark in relative for mark in '*?"\\') or not relative.isprintable():
                raise CheckpointError(f"{path!s:.200}: azcopy takes characters of its name for something else")
            yield relative, known.st_size, known.st_mtime_ns


def _fail(problem: OSError) -> None:
    raise problem


def _unfinished(name: str) -> bool:
    return any(fnmatch.fnmatchcase(part, mark) for part in name.split("/") for mark in UNFINISHED)


def _some(names: t.Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"


def share(files: t.Sequence[CheckpointFile], index: int, count: int) -> list[CheckpointFile]:
    """Return the files that one of several nodes sends: every node computes the same shares, of about the same size."""
    loads, parts = [0] * count, [[] for dummy in range(count)]  # type: tuple[list[int], list[list[CheckpointFile]]]
    for file in sorted(files, key=lambda candidate: (-candidate.size, candidate.name)):
        least = min(range(count), key=lambda part: (loads[part], len(parts[part]), part))
        loads[least] += file.size
        parts[least].append(file)
    return sorted(parts[index])


def sums(directory: Path, files: t.Sequence[CheckpointFile], cache: Path) -> dict[str, Sums]:
    """Return the digests of files; those of an unchanged file are not computed again."""
    known = _read(cache)
    kept, digests = {}, {}
    for file in files:
        key = f"{directory / file.name}"
        marks = [file.size, file.mtime_ns]
        entry = known.get(key)
        if not (isinstance(entry, list) and len(entry) == 4 and entry[:2] == marks):
            entry = [*marks, *_digest(directory / file.name, file)]
        kept[key], digests[file.name] = entry, Sums(*entry[2:])
    if kept != known:
        partial = cache.with_name(f"{cache.name}.{os.getpid()}")
        partial.write_text(json.dumps(kept), encoding="utf-8")
        partial.replace(cache)
    return digests


def _read(cache: Path) -> dict[str, t.Any]:
    try:
        known = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _digest(path: Path, expected: CheckpointFile) -> Sums:
    md5, sha256 = hashlib.new("md5", usedforsecurity=False), hashlib.sha256()
    try:
        with path.open("rb") as handle:
            while chunk := handle.read(_CHUNK):
                md5.update(chunk)
                sha256.update(chunk)
    except OSError as exc:
        raise CheckpointError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    unchanged(path, expected)
    return Sums(md5.hexdigest(), sha256.hexdigest())


def unchanged(path: Path, expected: CheckpointFile) -> None:
    """Raise CheckpointError for a file that was written since its size and time were read."""
    try:
        now = path.lstat()
    except OSError as exc:
        raise CheckpointError(f"{path} was removed while it was sent") from exc
    if (now.st_size, now.st_mtime_ns) != (expected.size, expected.mtime_ns):
        raise CheckpointError(f"{path} was written while it was sent; try again when the checkpoint is complete")


# The blobs in the account, compared with what they should be: manifests and azcopy's listings. No I/O.


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


def blob_url(target: str, name: str, token: str = "") -> str:
    """Return the URL of a blob, or with an empty name of the target itself, with its token."""
    path = "/".join([target, *([urllib.parse.quote(name)] if name else [])])
    return f"{path}?{token.lstrip('?')}" if token else path


def hidden(text: str) -> str:
    """Return a text without the signatures of tokens."""
    return _SIGNATURE.sub(r"\1REDACTED", text)


def messages(output: str) -> list[tuple[str, str]]:
    """Return the messages of azcopy with C(--output-type json), as kind and text; other lines are not its own."""
    parsed = []
    for line in output.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("MessageContent"), str):
            parsed.append((str(entry.get("MessageType")), entry["MessageContent"]))
    return parsed


def listing(output: str) -> dict[str, Blob]:
    """Return the blobs that C(azcopy list) printed, by name."""
    blobs = {}
    for kind, text in messages(output):
        if kind != "ListObject":
            continue
        try:
            entry = json.loads(text)
            digest = base64.b64decode(entry.get("ContentMD5") or "", validate=True).hex()
            blobs[urllib.parse.unquote(str(entry["Path"]))] = Blob(int(entry["ContentLength"]), digest)
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as exc:
            raise CheckpointError(f"azcopy listed a blob as {text[:200]!r}: {exc!r}") from exc
    return blobs


def problem(output: str) -> str:
    """Return the error in the output of an azcopy that failed."""
    parsed = messages(output)
    for kind, text in reversed(parsed):
        if kind == "Error":
            return _short(text)
    for kind, text in reversed(parsed):
        codes = sorted(set(re.findall(r'"ErrorCode":"?(\d+)', text))) if kind in ("Progress", "EndOfJob") else []
        if codes:
            return f"the service answered {', '.join(codes)}"
    lines = output.strip().splitlines()
    return hidden(lines[-1])[:300] if lines else "it said nothing"


def _short(text: str) -> str:
    codes = re.findall(r"^RESPONSE (?:\d+: )?(.*)$|^ERROR CODE: (.*)$", text, re.MULTILINE)
    codes_text = ", ".join(part for pair in codes for part in pair if part)
    return hidden(codes_text or " ".join(text.split()))[:300]


def finished(output: str) -> bool:
    """Say whether azcopy reported a copy as completed, whatever its exit status."""
    ends = [text for kind, text in messages(output) if kind == "EndOfJob"]
    return bool(ends) and '"JobStatus":"Completed"' in ends[-1]


def manifest(entries: Entries) -> str:
    """Return the list of a checkpoint's files; the same files give the same text."""
    return json.dumps({"schema": SCHEMA, "files": entries}, indent=1, sort_keys=True) + "\n"


def entry(size: int, sums: Sums) -> dict[str, t.Any]:
    """Return the entry of one file in a manifest."""
    return {"size": size, "md5": sums.md5, "sha256": sums.sha256}


def read_manifest(text: str, where: str) -> Entries:
    """Return the files of a manifest."""
    try:
        document = json.loads(text)
        files = document["files"]
        if document["schema"] != SCHEMA or not all(set(entry) == {"size", "md5", "sha256"} for entry in files.values()):
            raise CheckpointError(f"{where} is the manifest of another version of this collection")
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        if isinstance(exc, CheckpointError):
            raise
        raise CheckpointError(f"{where} is no manifest of a checkpoint") from exc
    return t.cast(Entries, files)


def differing(entries: Entries, blobs: t.Mapping[str, Blob]) -> list[str]:
    """Return which files are not in the account, or not as they should be, sorted."""
    return sorted(name for name, entry in entries.items() if blobs.get(name) != Blob(entry["size"], entry["md5"]))


def stray(entries: Entries, blobs: t.Mapping[str, Blob]) -> list[str]:
    """Return which blobs lie among a checkpoint's files and are none of them."""
    return sorted(set(blobs) - set(entries) - {MANIFEST})


def conflicts(entries: Entries, sealed: Entries) -> list[str]:
    """Return which files a sealed checkpoint does not have, or has otherwise."""
    return sorted(name for name, entry in entries.items() if sealed.get(name) != entry)
