# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies of slurmctld's state, a trial of the new release, and which release a daemon really runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.conf import parse

# Copies of slurmctld's state and configuration, and the SlurmdTimeout for an upgrade.


_TIMEOUT = re.compile(r"^[ \t]*slurmdtimeout[ \t]*=[ \t]*(\d+).*$", re.IGNORECASE | re.MULTILINE)
_OURS = re.compile(r"^SlurmdTimeout=\d+ # upgrade_slurm.yml, before: (\d+|unset), file of (\d+\.\d+)\n", re.MULTILINE)


class StateError(Exception):
    """The state cannot be copied; the text is fit for the user."""


def state_directory(conf: str) -> Path:
    """Return the directory of slurmctld's state."""
    return Path(dict(parse(conf).settings).get("statesavelocation", "/var/spool"))


def marks(directory: Path) -> dict[str, str]:
    """Return every file below a directory with its SHA-256."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    digests = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # a slurmctld that runs removes files
            digests[str(path.relative_to(directory))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def latest(base: Path, target: str) -> dict[str, t.Any]:
    """Return the record of the newest complete copy that was made for this upgrade, empty without one."""
    records = (json.loads(path.read_text()) for path in base.glob("state-*.json"))
    copies = [record for record in records if record["target"] == target and Path(record["path"]).is_dir()]
    return max(copies, key=lambda record: record["time"], default={})


def copy(state: Path, config: Path, base: Path, have: str, target: str) -> dict[str, t.Any]:
    """Copy state and configuration, compare the copy with the original, and only then give it its name."""
    base.mkdir(parents=True, exist_ok=True)
    base.chmod(0o700)
    needed = room(state, base)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = base / f"state-{have}-before-{target}-{stamp}"
    aside = base / f"{path.name}.partial"
    for leftover in base.glob("state-*.partial"):  # a killed run's
        shutil.rmtree(leftover, ignore_errors=True)
    _copy_tree(state, aside / "state")
    shutil.copytree(config, aside / "etc", symlinks=True)
    copied, original = marks(aside / "state"), marks(state)
    if copied != original:  # slurmctld writes while it runs: what has changed meanwhile is copied as it is now
        shutil.rmtree(aside / "state")
        _copy_tree(state, aside / "state")
        copied = marks(aside / "state")
    os.sync()
    aside.rename(path)
    record = {"path": str(path), "have": have, "target": target, "time": time.time(), "marks": copied, "bytes": needed}
    note = base / f"{path.name}.json.partial"
    note.write_text(json.dumps(record) + "\n")
    note.rename(base / f"{path.name}.json")
    return record


def room(state: Path, base: Path) -> int:
    """Return the bytes that a copy takes, or refuse where they are not free."""
    needed = _size(state)
    existing = next(path for path in (base, *base.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed * 1.1 + (1 << 20):
        raise StateError(f"{base} has {free / 1e6:.0f} MB free, and a copy of {state} needs {needed / 1e6:.0f} MB")
    return needed


def _size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a tree; files that a running slurmctld removes meanwhile are no error."""
    try:
        shutil.copytree(source, target)
    except shutil.Error as exc:
        if any(os.path.lexists(path) for path, *dummy in exc.args[0]):
            raise


def raised(text: str, seconds: int, written: float) -> str:
    """Return slurm.conf with a SlurmdTimeout of at least ``seconds``, and the former one in a comment."""
    if _OURS.search(text):
        return text
    match = _TIMEOUT.search(text)
    before = match.group(1) if match else "unset"
    if match and (int(match.group(1)) >= seconds or int(match.group(1)) == 0):  # 0 is for ever
        return text
    line = f"SlurmdTimeout={seconds} # upgrade_slurm.yml, before: {before}, file of {written:.6f}"
    if match:
        return text[: match.start()] + line + text[match.end() :]
    return f"{text.rstrip()}\n{line}\n"


def restored(text: str) -> tuple[str, float]:
    """Return slurm.conf as it was before, and when it was written; 0 where nothing has to be undone."""
    match = _OURS.search(text)
    if not match:
        return text, 0.0
    before = "" if match.group(1) == "unset" else f"SlurmdTimeout={match.group(1)}\n"
    return text[: match.start()] + before + text[match.end() :], float(match.group(2))


# The trial: a release that is not installed yet reads the configuration.


_PLUGIN = re.compile(r"([a-z_]+)/([a-z0-9_]+)")
_BY_KIND = re.compile(r".*(type|plugin|plugins)$")
# Slurm itself takes the one name for the other (src/common/read_config.c of 26.05), or loads nothing.
_ALIASES = {"topology_default": "topology_flat"}
_WITHOUT = ("none",)
_SPOKEN = re.compile(r"error:|fatal:")


class TrialError(Exception):
    """The new release cannot be tried; the text is fit for the user."""


def plugins(text: str) -> dict[str, str]:
    """Return the plugins that slurm.conf names, by the name of their file, with the setting that names them."""
    settings = {}
    for key, value in parse(text).settings:
        for word in value.split(",") if _BY_KIND.match(key) else []:
            match = _PLUGIN.fullmatch(word)
            if match and match.group(2) not in _WITHOUT:
                settings[f"{match.group(1)}_{match.group(2)}"] = f"{key}={value}"
        if key == "mpidefault" and value not in _WITHOUT:
            settings[f"mpi_{value}"] = f"{key}={value}"
    return settings


def lacking(settings: t.Mapping[str, str], available: t.Container[str]) -> list[str]:
    """Say which settings name a plugin that the new packages do not hold."""
    names = [name for name in settings if name not in available and _ALIASES.get(name, name) not in available]
    return [f"{settings[name]}: the new packages hold no plugin {name}.so" for name in names]


def lost_plugins(before: t.Iterable[str], after: t.Container[str]) -> list[str]:
    """Return installed plugins that the new packages lack; versions of the JSON parser differ in every release."""
    return sorted(name for name in before if name not in after and not name.startswith("data_parser_"))


def staged(text: str, plugin_dir: str) -> str:
    """Return a slurm.conf that loads the plugins of the trial."""
    bare = re.sub(r"^\s*plugindir\s*=.*$", "", text, flags=re.IGNORECASE | re.MULTILINE)
    return f"{bare.rstrip()}\nPluginDir={plugin_dir}\n"


def unpack(packages: t.Sequence[str], stage: Path, timeout: float) -> Path:
    """Fetch the packages, checked by apt, and unpack them below ``stage``; return the directory of their plugins."""
    debs = stage / "debs"
    debs.mkdir()
    outcome = run(
        ["sh", "-c", 'cd "$1" && shift && exec apt-get -qq download "$@"', "sh", str(debs), *packages], timeout
    )
    if outcome.problem:
        raise TrialError(f"the new packages cannot be fetched: {outcome.problem}")
    for deb in sorted(debs.glob("*.deb")):
        outcome = run(["dpkg-deb", "-x", str(deb), str(stage / "root")], timeout)
        if outcome.problem:
            raise TrialError(f"{deb.name} cannot be unpacked: {outcome.problem}")
    candidates = sorted((stage / "root").rglob("auth_munge.so"))
    if not candidates:
        raise TrialError("the new packages hold no auth_munge.so; is there a package with Slurm's plugins among them?")
    return candidates[0].parent


def read(config: Path, stage: Path, plugin_dir: Path) -> list[str]:
    """Return the errors of the new sinfo, which reads slurm.conf and loads the plugins that it names for a client."""
    staged_config = stage / "etc"
    shutil.copytree(config, staged_config, ignore=shutil.ignore_patterns("slurmdbd.conf"))
    path = staged_config / "slurm.conf"
    path.write_text(staged(path.read_text(), str(plugin_dir)))
    sinfo = sorted((stage / "root").rglob("bin/sinfo"))
    if not sinfo:
        raise TrialError("the new packages hold no sinfo")
    environment = {"SLURM_CONF": str(path), "LD_LIBRARY_PATH": str(plugin_dir)}
    outcome = run([str(sinfo[0]), "--version"], 60, environment=environment)
    errors = [line for line in f"{outcome.out}\n{outcome.err}".splitlines() if _SPOKEN.search(line)]
    return errors or ([outcome.problem] if outcome.problem else [])


# Which release a daemon runs: after an upgrade of packages it is not the one on the disk.


NAMES = ("slurmdbd", "slurmctld", "slurmd")
SHOW = ["systemctl", "show", "--property", "Id,ActiveState,SubState,MainPID,LoadState"]  # the units' names follow
# SLURM_VERSION_STRING stands alone between zero bytes in every daemon's program, 22.05 to 26.05.
_CONSTANT = re.compile(rb"\0(\d\d\.\d\d\.\d[\w.-]{0,10})\0")


class Daemon(t.NamedTuple):
    """``runs`` is the version in memory, empty when it does not run or cannot be told."""

    there: bool
    active: bool
    runs: str


def units(text: str) -> dict[str, dict[str, str]]:
    """Read what ``systemctl show`` printed of several units."""
    blocks = (dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in text.split("\n\n"))
    return {block["Id"].partition(".")[0]: block for block in blocks if "Id" in block}


def constant(program: bytes) -> str:
    """Return the version in a daemon's program; empty unless there is exactly one."""
    versions = set(_CONSTANT.findall(program))
    return next(iter(versions)).decode() if len(versions) == 1 else ""


def daemons(
    text: str, read: t.Callable[[str], bytes] = lambda pid: Path(f"/proc/{pid}/exe").read_bytes()
) -> dict[str, Daemon]:
    """Return every daemon of this host. The program of a process can be read even when its file was replaced."""
    daemons = {}
    for name, unit in units(text).items():
        pid, installed = unit.get("MainPID", "0"), unit.get("LoadState") == "loaded"
        runs = ""
        if pid != "0":
            try:
                runs = constant(read(pid))
            except OSError:  # it has just ended
                pid = "0"
        daemons[name] = Daemon(
            installed, pid != "0" and unit.get("ActiveState") in ("active", "activating", "reloading"), runs
        )
    return daemons
