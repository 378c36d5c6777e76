# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that fill an environment: uv, pip or conda. Private."""

from __future__ import annotations

import os
import re
import shutil
import typing as t
import zipfile
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._build import Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._find import NotFound, find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_driver import EnvironmentRefused

PROGRAMS = {"uv": ["uv"], "conda": ["micromamba", "mamba", "conda"]}
_SHOWN = 10
_PLACES = ("/opt/conda/bin", "/opt/miniforge*/bin", "/opt/miniconda*/bin", "/opt/anaconda*/bin", "/opt/micromamba/bin")


class Source(t.NamedTuple):
    """Where packages come from: directories of files, or else indexes."""

    folders: t.Sequence[str]
    indexes: t.Sequence[str]


def steps(
    installer: str,
    program: str,
    python: str,
    target: str,
    files: t.Sequence[str],
    wheels: t.Sequence[str],
    source: Source,
) -> list[Step]:
    """Return the commands; every lock file is one command, because pip checks hashes for all or for none."""
    if installer == "conda":
        first = [Step(_conda(program, target, files[0], bool(source.folders)))]
        more, inside = files[1:], f"{target}/bin/python"
    elif installer == "uv":
        first, more, inside = [Step([program, "venv", "--python", python, target])], files, f"{target}/bin/python"
    else:
        first, more, inside = [Step([python, "-m", "venv", target])], files, f"{target}/bin/python"
    start = [program, "pip", "install", "--python", inside] if installer == "uv" else [inside, "-m", "pip", "install"]
    start += ["--no-deps", "--compile-bytecode"] if installer == "uv" else ["--no-deps", "--no-cache-dir", "--no-input"]
    online = _online(source, installer)
    found = [Step([*start, *online, "--only-binary=:all:", f"--requirement={one}"]) for one in more]
    if wheels:
        found.append(Step([*start, "--no-index", *wheels]))
    if installer == "uv":
        found.append(Step([program, "pip", "check", "--python", inside]))
    elif installer == "pip" or more or wheels:
        found.append(Step([inside, "-m", "pip", "check"]))
    return [*first, *found]


def perform(commands: t.Iterable[Step], environment: t.Mapping[str, str], timeout: float) -> float:
    """Run the commands; return the seconds they took. Installers say at the end, in several lines, what is wrong."""
    seconds = 0.0
    for step in commands:
        outcome = run(step.argv, timeout, environment={**environment, **step.environment})
        seconds += outcome.seconds
        if outcome.rc != 0:
            lines = [line.strip() for line in (outcome.err.strip() or outcome.out).splitlines() if line.strip()]
            status = "" if outcome.rc is None else f"exit status {outcome.rc}: "
            raise EnvironmentRefused(
                without_password(f"{' '.join(step.argv)} failed: {status}{' '.join(lines[-_SHOWN:])}")
            )
    return seconds


def without_password(text: str) -> str:
    """Return a text without what stands before the host in URLs."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def public(indexes: t.Sequence[str]) -> list[str]:
    """Return package indexes; refuses passwords, which all users of the host could read on command lines."""
    if any(re.search(r"//[^/@\s]*:[^/@\s]*@", one) for one in indexes):
        raise EnvironmentRefused(
            "an index (pytorch_index) holds a password, which would show on command lines: put it into the ~/.netrc of"
            " the user who installs, mode 0600, which pip and uv read"
        )
    return list(indexes)


def _online(source: Source, installer: str) -> list[str]:
    if source.folders:
        return ["--no-index", *(f"--find-links={one}" for one in source.folders)]
    # uv would take a name from the first index that has it, in whatever version.
    safe = (
        ["--index-strategy=unsafe-best-match"]
        if installer == "uv" and source.indexes
        else ["--timeout=15", "--retries=1"]
    )
    return [
        *(f"--extra-index-url={one}" for one in source.indexes),
        *([] if installer == "uv" and not source.indexes else safe),
    ]


def _conda(program: str, target: str, file: str, offline: bool) -> list[str]:
    argv = [program, "create", "--yes", f"--prefix={target}", f"--file={file}"]
    return [*argv, *(["--offline"] if offline else []), *(["--no-rc"] if program.endswith("micromamba") else [])]


def variables(installer: str, cache: str, offline: bool) -> dict[str, str]:
    """Return the environment of the commands: their caches lie beside the environment, for links instead of copies."""
    found = {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "HOME": cache}
    if installer == "uv":
        found.update(UV_CACHE_DIR=cache, UV_PYTHON_DOWNLOADS="never", UV_PYTHON_PREFERENCE="only-system")
    if installer == "conda":
        found.update(CONDA_PKGS_DIRS=f"{cache}/pkgs", MAMBA_ROOT_PREFIX=f"{cache}/root")
    if offline:
        found.update(PIP_CONFIG_FILE=os.devnull, UV_NO_CONFIG="1", UV_OFFLINE="1")
    return found


def program(installer: str, given: str, folders: t.Sequence[str], digests: t.Collection[str], into: str) -> str:
    """Return the installer's program: the given one, the one in a wheel that was handed on, or the host's own."""
    if installer == "pip":
        return ""
    packed = sorted(path for folder in folders for path in Path(folder).glob("uv-*.whl"))
    if installer == "uv" and packed and not given:
        return _unpacked(packed[-1], digests, into)
    try:
        return find(PROGRAMS[installer], given or None, _PLACES, role=None)
    except NotFound as exc:
        raise EnvironmentRefused(
            f"installer {installer}: {exc}. Install it or give its path (pytorch_installer_path)"
        ) from exc


def _unpacked(wheel: Path, digests: t.Collection[str], into: str) -> str:
    """Take the program out of uv's wheel, which needs no pip; its digest is one of its lock file's."""
    found = sha256(wheel)
    if found not in digests:
        raise EnvironmentRefused(f"{wheel.name} has sha256 {found}, which is none of those in uv's lock file")
    with zipfile.ZipFile(wheel) as content:
        inside = next(name for name in content.namelist() if re.fullmatch(r"uv-[^/]+\.data/scripts/uv", name))
        goal = Path(into, "uv")
        with content.open(inside) as packed, goal.open("wb") as out:
            shutil.copyfileobj(packed, out)
    goal.chmod(0o755)
    return str(goal)


def unpacked_size(folders: t.Iterable[str], wheels: t.Iterable[str]) -> int:
    """Return the bytes that wheels take when unpacked; bytecode is a further tenth of the Python in them."""
    files = [str(path) for folder in folders for path in Path(folder).glob("*.whl") if not path.name.startswith("uv-")]
    total = 0
    for path in (*files, *wheels):
        try:
            with zipfile.ZipFile(path) as content:
                total += sum(item.file_size + 2048 for item in content.infolist())
        except (OSError, zipfile.BadZipFile) as exc:
            raise EnvironmentRefused(f"{path} cannot be read as a wheel: {exc}") from exc
    return total
