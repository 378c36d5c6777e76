# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks of Python environments, and the wheelhouse that holds what a lock names."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import BuildStep
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.installer import perform, without_password
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.versions import EnvironmentRefused, numbers

# Lock files of Python and conda environments.


_PINNED = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?\s*===?\s*(?P<version>[^\s;*]+)\s*(?:;(?P<marker>.*))?"
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
_EXPLICIT = "@EXPLICIT"
_PACKAGE = re.compile(
    r"(?P<url>\S+/(?P<file>[^/#]+\.(?:conda|tar\.bz2)))(?:#(?:(?P<kind>sha256|md5):)?(?P<digest>[0-9a-f]+))?"
)


class Pin(t.NamedTuple):
    """One line of a requirements file; ``marker`` says where it applies."""

    name: str
    version: str
    marker: str
    hashes: t.Sequence[str]


class LockedPackage(t.NamedTuple):
    """One line of an explicit conda specification."""

    url: str
    file: str
    kind: str
    digest: str


def is_conda(text: str) -> bool:
    return _EXPLICIT in lines(text)


def lines(text: str) -> list[str]:
    """Return the logical lines of a lock file, without comments."""
    joined = re.sub(r"\\\r?\n", " ", text)
    bare = (re.sub(r"(^|\s)#.*", "", line) if "://" not in line else line for line in joined.splitlines())
    return [" ".join(line.split()) for line in bare if line.strip() and not line.lstrip().startswith("#")]


def pins(name: str, text: str) -> list[Pin]:
    """Read a requirements file; refuses whatever is not pinned, and every package without a digest.

    A version alone is a name that an index, a mirror or a directory can give to any file.
    """
    known = []
    for line in lines(text):
        bare, *hashes = line.split(" --hash=")
        match = _PINNED.fullmatch(bare.strip())
        if not match or any(" " in digest.strip() for digest in hashes):
            raise EnvironmentRefused(
                f"lock file {name}: {line[:120]!r} is no name==version with optional marker and hashes"
            )
        known.append(
            Pin(normal(match["name"]), match["version"], (match["marker"] or "").strip(), [h.strip() for h in hashes])
        )
    bare_names = sorted({pin.name for pin in known if not pin.hashes})
    if not known:
        raise EnvironmentRefused(f"lock file {name} names no package")
    if bare_names:
        raise EnvironmentRefused(
            f"lock file {name} has no hashes for {', '.join(bare_names)}: whatever an index offers under these names "
            "would be installed. Write it with: uv pip compile --generate-hashes, or pip-compile --generate-hashes"
        )
    weak = sorted({pin.name for pin in known if not all(map(_DIGEST.fullmatch, pin.hashes))})
    if weak:
        raise EnvironmentRefused(
            f"lock file {name}: the hashes of {', '.join(weak)} are none that count; accepted: sha256:, sha384: or "
            "sha512: and the hexadecimal digest"
        )
    return known


def normal(name: str) -> str:
    """Return a project's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def applicable(pins: t.Iterable[Pin], applies: t.Callable[[str], bool]) -> list[Pin]:
    """Return the pins for one interpreter; pip would evaluate the markers for the interpreter that it runs in."""
    return [pin for pin in pins if not pin.marker or applies(pin.marker)]


def flat(pins: t.Iterable[Pin]) -> str:
    return "".join(
        f"{pin.name}=={pin.version}{''.join(f' --hash={digest}' for digest in pin.hashes)}\n" for pin in pins
    )


def packages(name: str, text: str) -> list[LockedPackage]:
    """Read an explicit conda specification; refuses packages without a digest."""
    locked = []
    for line in lines(text):
        if line == _EXPLICIT:
            continue
        match = _PACKAGE.fullmatch(line)
        digest = match["digest"] if match else None
        if not match or not digest or len(digest) not in (32, 64):
            raise EnvironmentRefused(
                f"lock file {name}: {line[:160]!r} is no URL of a conda package with #md5 or #sha256:digest"
            )
        kind = "md5" if len(digest) == 32 else "sha256"
        locked.append(LockedPackage(match["url"], match["file"], kind, digest))
    if not locked:
        raise EnvironmentRefused(f"lock file {name} names no package")
    return locked


def local(locked: t.Iterable[LockedPackage], folder: str) -> str:
    """Return the same specification with the packages in a directory of this host."""
    return "\n".join([_EXPLICIT, *(f"file://{folder}/{package.file}#{package.digest}" for package in locked)]) + "\n"


# The wheelhouse: packages of a lock file on the control host, for another machine's interpreter.


# What manylinux wheels were called before they said which glibc they need, PEP 600.
_OLD_NAMES = {"2_17": "manylinux2014", "2_12": "manylinux2010", "2_5": "manylinux1"}
_OLDEST = 5
_MARKERS = """
import json, sys
from pip._vendor.packaging.markers import Marker
texts, known = json.loads(sys.argv[1])
print(json.dumps([text for text in texts if Marker(text).evaluate(dict(known))]))
"""

Download = t.Callable[[str], t.IO[bytes]]


class WheelhouseRequest(t.NamedTuple):
    name: str
    text: str
    markers: t.Mapping[str, str]
    platforms: t.Sequence[str]
    python: str
    indexes: t.Sequence[str]
    timeout: float


def applying(request: WheelhouseRequest) -> set[str]:
    """Return the markers of a lock file that are true on the other machine, as pip's own reader sees them."""
    texts = sorted({pin.marker for pin in pins(request.name, request.text) if pin.marker})
    outcome = run([request.python, "-c", _MARKERS, json.dumps([texts, dict(request.markers)])], 60.0)
    if outcome.rc != 0:
        raise EnvironmentRefused(f"{request.python} has no pip that reads markers: {outcome.problem or outcome.err}")
    return set(json.loads(outcome.out))


def platforms(glibc: str, machine: str) -> list[str]:
    """Return the names of platforms whose wheels run on a glibc, the best first."""
    if not glibc:
        return [f"linux_{machine}"]
    names = []
    for minor in range(numbers(glibc)[1], _OLDEST - 1, -1):
        names.append(f"manylinux_2_{minor}_{machine}")
        old = _OLD_NAMES.get(f"2_{minor}")
        names += [f"{old}_{machine}"] if old else []
    return [*names, f"linux_{machine}"]


def folder(root: str, request: WheelhouseRequest) -> Path:
    """Return the directory of a lock file's packages for one kind of machine."""
    parts = [
        *lines(request.text),
        request.markers["python_full_version"].rpartition(".")[0],
        *request.platforms[:1],
        *request.indexes,
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return Path(root, f"{request.name}-py{request.markers['python_version']}-{digest}")


def fill(target: Path, request: WheelhouseRequest, download: Download) -> None:
    """Fill a directory and give it its name in one step, so that one with that name is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with lock(target.parent / ".lock"):
        if target.is_dir():
            return
        for stale in target.parent.glob(f".{target.name}.*"):
            shutil.rmtree(stale)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            if is_conda(request.text):
                _packages(work, request, download)
            else:
                _wheels(work, request)
            work.chmod(0o755)
            work.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def argv(request: WheelhouseRequest, file: str, work: str) -> list[str]:
    quick = ["--disable-pip-version-check", "--no-input", "--timeout=15", "--retries=1"]
    return [
        *(request.python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", *quick),
        *(f"--extra-index-url={value}" for value in request.indexes),
        *(f"--dest={work}", f"--requirement={file}", f"--python-version={request.markers['python_version']}"),
        *(f"--platform={value}" for value in request.platforms),
    ]


def _wheels(work: Path, request: WheelhouseRequest) -> None:
    true = applying(request)
    with tempfile.TemporaryDirectory() as private:
        file = Path(private, "requirements.txt")
        file.write_text(flat(applicable(pins(request.name, request.text), true.__contains__)))
        try:
            perform([BuildStep(argv(request, str(file), str(work)))], {"PIP_CACHE_DIR": private}, request.timeout)
        except EnvironmentRefused as exc:
            raise EnvironmentRefused(_refused(request, str(exc))) from exc


def _refused(request: WheelhouseRequest, output: str) -> str:
    indexes = without_password(" and ".join(["its own indexes", *request.indexes]))
    machine = f"CPython {request.markers['python_version']} on {request.markers['platform_machine']}"
    return (
        f"the control host's pip brought no packages for {machine} that match lock file {request.name}; it asked "
        f"{indexes}. It said: {output.rpartition(' failed: ')[2]}. Let the control host reach one of "
        "them (pip's own settings count, PIP_FIND_LINKS for a directory of wheels), set pytorch_index to a mirror, or "
        "choose a pytorch_python that there are wheels for"
    )


def _packages(work: Path, request: WheelhouseRequest, download: Download) -> None:
    for package in packages(request.name, request.text):
        digest = hashlib.new(package.kind, usedforsecurity=False) if package.kind == "md5" else hashlib.sha256()
        try:
            with download(package.url) as coming, (work / package.file).open("wb") as out:
                for block in iter(lambda: coming.read(1 << 20), b""):
                    digest.update(block)
                    out.write(block)
                os.fsync(out.fileno())
        except OSError as exc:
            raise EnvironmentRefused(f"{package.url} of lock file {request.name} cannot be had: {exc}") from exc
        if digest.hexdigest() != package.digest:
            raise EnvironmentRefused(
                f"{package.url} has {package.kind} {digest.hexdigest()}, locked is {package.digest}"
            )
