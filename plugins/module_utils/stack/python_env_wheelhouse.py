# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring the packages of a lock file to the control host, for another machine's interpreter. Private."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._build import Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lock import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import python_env_lock as locks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_driver import (
    EnvironmentRefused,
    numbers,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_install import (
    perform,
    without_password,
)

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


class Request(t.NamedTuple):
    name: str
    text: str
    markers: t.Mapping[str, str]
    platforms: t.Sequence[str]
    python: str
    indexes: t.Sequence[str]
    timeout: float


def applying(wish: Request) -> set[str]:
    """Return the markers of a lock file that are true on the other machine, as pip's own reader sees them."""
    texts = sorted({pin.marker for pin in locks.pins(wish.name, wish.text) if pin.marker})
    outcome = run([wish.python, "-c", _MARKERS, json.dumps([texts, dict(wish.markers)])], 60.0)
    if outcome.rc != 0:
        raise EnvironmentRefused(f"{wish.python} has no pip that reads markers: {outcome.problem or outcome.err}")
    return set(json.loads(outcome.out))


def platforms(glibc: str, machine: str) -> list[str]:
    """Return the names of platforms whose wheels run on a glibc, the best first."""
    if not glibc:
        return [f"linux_{machine}"]
    found = []
    for minor in range(numbers(glibc)[1], _OLDEST - 1, -1):
        found.append(f"manylinux_2_{minor}_{machine}")
        old = _OLD_NAMES.get(f"2_{minor}")
        found += [f"{old}_{machine}"] if old else []
    return [*found, f"linux_{machine}"]


def folder(root: str, wish: Request) -> Path:
    """Return the directory of a lock file's packages for one kind of machine."""
    told = [
        *locks.lines(wish.text),
        wish.markers["python_full_version"].rpartition(".")[0],
        *wish.platforms[:1],
        *wish.indexes,
    ]
    digest = hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]
    return Path(root, f"{wish.name}-py{wish.markers['python_version']}-{digest}")


def fill(target: Path, wish: Request, download: Download) -> None:
    """Fill a directory, in one step: what has its name is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with lock(target.parent / ".lock"):
        if target.is_dir():
            return
        for stale in target.parent.glob(f".{target.name}.*"):
            shutil.rmtree(stale)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            if locks.is_conda(wish.text):
                _packages(work, wish, download)
            else:
                _wheels(work, wish)
            work.chmod(0o755)
            work.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def argv(wish: Request, file: str, work: str) -> list[str]:
    quick = ["--disable-pip-version-check", "--no-input", "--timeout=15", "--retries=1"]
    return [
        *(wish.python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", *quick),
        *(f"--extra-index-url={one}" for one in wish.indexes),
        *(f"--dest={work}", f"--requirement={file}", f"--python-version={wish.markers['python_version']}"),
        *(f"--platform={one}" for one in wish.platforms),
    ]


def _wheels(work: Path, wish: Request) -> None:
    true = applying(wish)
    with tempfile.TemporaryDirectory() as private:
        file = Path(private, "requirements.txt")
        file.write_text(locks.flat(locks.applicable(locks.pins(wish.name, wish.text), true.__contains__)))
        try:
            perform([Step(argv(wish, str(file), str(work)))], {"PIP_CACHE_DIR": private}, wish.timeout)
        except EnvironmentRefused as exc:
            raise EnvironmentRefused(_refused(wish, str(exc))) from exc


def _refused(wish: Request, said: str) -> str:
    asked = without_password(" and ".join(["its own indexes", *wish.indexes]))
    machine = f"CPython {wish.markers['python_version']} on {wish.markers['platform_machine']}"
    return (
        f"the control host's pip brought no packages for {machine} that match lock file {wish.name}; it asked {asked}. "
        f"It said: {said.rpartition(' failed: ')[2]}. Let the control host reach one of them (pip's own settings "
        "count, PIP_FIND_LINKS for a directory of wheels), set pytorch_index to a mirror, or choose a pytorch_python "
        "that there are wheels for"
    )


def _packages(work: Path, wish: Request, download: Download) -> None:
    for package in locks.packages(wish.name, wish.text):
        digest = hashlib.new(package.kind, usedforsecurity=False) if package.kind == "md5" else hashlib.sha256()
        try:
            with download(package.url) as coming, (work / package.file).open("wb") as out:
                for block in iter(lambda: coming.read(1 << 20), b""):
                    digest.update(block)
                    out.write(block)
                os.fsync(out.fileno())
        except OSError as exc:
            raise EnvironmentRefused(f"{package.url} of lock file {wish.name} cannot be had: {exc}") from exc
        if digest.hexdigest() != package.digest:
            raise EnvironmentRefused(
                f"{package.url} has {package.kind} {digest.hexdigest()}, locked is {package.digest}"
            )
