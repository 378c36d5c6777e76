# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node agent as one file: packages of module_utils and all that they import. Private.

The same sources make the same bytes on any machine: names are sorted, times fixed, and nothing is compressed, since
what compresses differs between versions of a library.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
import time
import typing as t
import zipfile
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_program import (
    HOME,
    ProgramError,
    Sources,
    closure,
)

# The agent imports these by names that it computes, so all of them belong to it.
PACKAGES = ("agent", "certify", "drain")
ENTRY = "agent.main"
CACHE = "~/.cache/hpcai.gpu_cluster/agent"
# Where a node has a copy that is root's, it goes on from files in memory: Python keeps what it compiles of them
# (unpack() of agent.main).
INSTALLED, UNPACKED = "/usr/local/lib/hpcai", "/run/hpcai/program"
# In a job on a Slurm that is there, nothing has looked at the node's Python before, and an old one has to be able to
# read this. The status is no verdict: a prolog passes it over.
MAIN = f"""\
import os
import stat
import sys


def is_roots(path):
    made = os.lstat(path)
    return stat.S_ISDIR(made.st_mode) and made.st_uid == 0 and not made.st_mode & 0o022


if sys.version_info < (3, 8):
    found = (sys.executable, sys.version.split()[0])
    sys.stderr.write("hpcai-agent needs Python 3.8 or newer, and %s is %s\\n" % found)
    sys.exit(2)

program = sys.path[0]
if os.path.dirname(program) == {INSTALLED!r}:
    made = os.stat(program)
    place = "%s/%d-%d" % ({UNPACKED!r}, made.st_mtime_ns, made.st_size)
    if os.path.lexists(place):
        above = os.path.dirname(place)
        if is_roots(place) and is_roots(above) and is_roots(os.path.dirname(above)):
            sys.path.insert(0, place)
            # It is in use: whoever unpacks another agent removes what no longer is.
            if os.geteuid() == 0:
                os.utime(place)
    elif os.geteuid() == 0:
        from {HOME}.{ENTRY} import unpack

        unpack(program, place)

from {HOME}.{ENTRY} import main

sys.exit(main(sys.argv[1:]))
"""
_KEPT, _DAY = 4, 86400.0
_EPOCH = (1980, 1, 1, 0, 0, 0)


class _Remembering(Sources):
    """Reads each file's imports once, however many modules import it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._known: dict[str, list[str]] = {}

    def imports(self, module: str) -> list[str]:
        if module not in self._known:
            self._known[module] = super().imports(module)
        return self._known[module]


def modules(sources: Sources) -> list[str]:
    """Return every module of the packages and all that they import, sorted."""
    sources = _Remembering(sources.root)
    if not sources.exists(ENTRY):
        raise ProgramError(f"{sources.root} has no {sources.place(ENTRY)}")
    names: set[str] = set()
    for package in PACKAGES:
        for path in sorted((sources.root / package).rglob("*.py")):
            parts = path.relative_to(sources.root).with_suffix("").parts
            names.update(closure(".".join(parts[:-1] if parts[-1] == "__init__" else parts), sources))
    return sorted(names)


def build(sources: Sources | None = None) -> bytes:
    """Return the file."""
    sources = sources or Sources()
    folders = HOME.split(".")
    files = {"/".join([*folders[:depth], "__init__.py"]): "" for depth in range(1, len(folders))}
    for name in modules(sources):
        files["/".join([*folders, sources.place(name)])] = sources.text(name)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path, text in sorted({**files, "__main__.py": MAIN}.items()):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, text.encode())
    return out.getvalue()


def agent(cache: str | Path = CACHE, sources: Sources | None = None) -> Path:
    """Return where the file is; it is built when its sources are others than those of any that is there.

    Every host of a play asks for it, and building it takes half a second.
    """
    sources, folder = sources or Sources(), Path(cache).expanduser()
    stamp = folder / f"sources-{fingerprint(sources)}"
    try:
        path = folder / stamp.read_text(encoding="utf-8")
        if hashlib.sha256(path.read_bytes()).hexdigest() == path.stem:
            return path
    except (OSError, ValueError):
        pass  # not built yet, or half removed
    path = store(build(sources), folder)
    put(path.name.encode(), stamp)
    clean(folder)
    return path


def clean(folder: Path, now: float | None = None) -> None:
    """Remove what earlier sources made, but for the newest; another play may still be copying what is of today."""
    moment = time.time() if now is None else now
    for kind in ("*.pyz", "sources-*"):
        dated = []
        for path in folder.glob(kind):
            with contextlib.suppress(OSError):
                dated.append((path.stat().st_mtime, path))
        for made, path in sorted(dated)[:-_KEPT]:
            if moment - made > _DAY:
                path.unlink(missing_ok=True)


def fingerprint(sources: Sources) -> str:
    """Return a digest of all that the file could be made of, this program included."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(sources.root.rglob("*.py")):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(sources.root)} {len(text)} ".encode() + text)
    return digest.hexdigest()


def store(data: bytes, cache: str | Path = CACHE) -> Path:
    """Write the file under its SHA-256 unless it is there, and return where; others may do the same meanwhile."""
    folder = Path(cache).expanduser()
    path = folder / f"{hashlib.sha256(data).hexdigest()}.pyz"
    if not path.is_file() or path.read_bytes() != data:
        folder.mkdir(parents=True, exist_ok=True)
        put(data, path)
    return path


def put(data: bytes, path: Path) -> None:
    """Write a file in one step."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(aside).chmod(0o644)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink()
        raise


def main(argv: t.Sequence[str]) -> int:
    """Write the agent to the path that is given: what `make agent` calls."""
    if len(argv) != 1:
        raise ProgramError("one path is needed, for the agent")
    put(build(), Path(argv[0]).absolute())
    return 0
