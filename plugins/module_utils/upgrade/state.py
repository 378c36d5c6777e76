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

# Copies of slurmctld's state and of its configuration, and the timeout that keeps silent nodes.


_TIMEOUT = re.compile(r"^[ \t]*slurmdtimeout[ \t]*=[ \t]*(\d+).*$", re.IGNORECASE | re.MULTILINE)
_OURS = re.compile(r"^SlurmdTimeout=\d+ # upgrade_slurm.yml, before: (\d+|unset), file of (\d+\.\d+)\n", re.MULTILINE)


class StateError(Exception):
    """The state cannot be copied; the text is fit for the user."""


def place(conf: str) -> Path:
    """Where slurmctld keeps its state."""
    return Path(dict(parse(conf).settings).get("statesavelocation", "/var/spool"))


def marks(directory: Path) -> dict[str, str]:
    """Every file below a directory with its SHA-256."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    found = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # a slurmctld that runs removes files
            found[str(path.relative_to(directory))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def latest(base: Path, target: str) -> dict[str, t.Any]:
    """The newest whole copy that was made for this upgrade."""
    records = (json.loads(path.read_text()) for path in base.glob("state-*.json"))
    mine = [record for record in records if record["target"] == target and Path(record["path"]).is_dir()]
    return max(mine, key=lambda record: record["time"], default={})


def copy(state: Path, config: Path, base: Path, have: str, target: str) -> dict[str, t.Any]:
    """Copy state and configuration aside, compare what was written, and only then give the copy its name."""
    base.mkdir(parents=True, exist_ok=True)
    base.chmod(0o700)
    needed = room(state, base)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = base / f"state-{have}-before-{target}-{stamp}"
    aside = base / f"{path.name}.partial"
    for left in base.glob("state-*.partial"):  # a killed run's
        shutil.rmtree(left, ignore_errors=True)
    _copy_tree(state, aside / "state")
    shutil.copytree(config, aside / "etc", symlinks=True)
    found, meant = marks(aside / "state"), marks(state)
    if found != meant:  # slurmctld writes while it runs: what has changed meanwhile is copied as it is now
        shutil.rmtree(aside / "state")
        _copy_tree(state, aside / "state")
        found = marks(aside / "state")
    os.sync()
    aside.rename(path)
    record = {"path": str(path), "have": have, "target": target, "time": time.time(), "marks": found, "bytes": needed}
    note = base / f"{path.name}.json.partial"
    note.write_text(json.dumps(record) + "\n")
    note.rename(base / f"{path.name}.json")
    return record


def room(state: Path, base: Path) -> int:
    """Return the bytes that a copy takes, or refuse where they are not free."""
    needed = _size(state)
    there = next(one for one in (base, *base.parents) if one.exists())
    free = shutil.disk_usage(there).free
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
    """Copy, and forgive what a slurmctld that runs has removed meanwhile."""
    try:
        shutil.copytree(source, target)
    except shutil.Error as exc:
        if any(os.path.lexists(where) for where, *dummy in exc.args[0]):
            raise


def raised(text: str, seconds: int, written: float) -> str:
    """slurm.conf with a SlurmdTimeout of at least ``seconds``, which says what it was before."""
    if _OURS.search(text):
        return text
    found = _TIMEOUT.search(text)
    before = found.group(1) if found else "unset"
    if found and (int(found.group(1)) >= seconds or int(found.group(1)) == 0):  # 0 is for ever
        return text
    line = f"SlurmdTimeout={seconds} # upgrade_slurm.yml, before: {before}, file of {written:.6f}"
    if found:
        return text[: found.start()] + line + text[found.end() :]
    return f"{text.rstrip()}\n{line}\n"


def restored(text: str) -> tuple[str, float]:
    """slurm.conf as it was, and when it was written; 0 where nothing is to be undone."""
    found = _OURS.search(text)
    if not found:
        return text, 0.0
    before = "" if found.group(1) == "unset" else f"SlurmdTimeout={found.group(1)}\n"
    return text[: found.start()] + before + text[found.end() :], float(found.group(2))


# Let a release that is not installed yet read the configuration, for slurm_upgrade_trial.


_PLUGIN = re.compile(r"([a-z_]+)/([a-z0-9_]+)")
_BY_KIND = re.compile(r".*(type|plugin|plugins)$")
# Slurm itself takes the one name for the other (src/common/read_config.c of 26.05), or loads nothing.
_ALIASES = {"topology_default": "topology_flat"}
_WITHOUT = ("none",)
_SPOKEN = re.compile(r"error:|fatal:")


class TrialError(Exception):
    """The new release cannot be tried; the text is fit for the user."""


def plugins(text: str) -> dict[str, str]:
    """Plugins that slurm.conf asks for, by the name of their file, with the setting that does."""
    found = {}
    for key, value in parse(text).settings:
        for word in value.split(",") if _BY_KIND.match(key) else []:
            match = _PLUGIN.fullmatch(word)
            if match and match.group(2) not in _WITHOUT:
                found[f"{match.group(1)}_{match.group(2)}"] = f"{key}={value}"
        if key == "mpidefault" and value not in _WITHOUT:
            found[f"mpi_{value}"] = f"{key}={value}"
    return found


def lacking(wanted: t.Mapping[str, str], there: t.Container[str]) -> list[str]:
    """Settings whose plugin is not among those that are there."""
    names = [name for name in wanted if name not in there and _ALIASES.get(name, name) not in there]
    return [f"{wanted[name]}: the new packages hold no plugin {name}.so" for name in names]


def lost(before: t.Iterable[str], after: t.Container[str]) -> list[str]:
    """Plugins that the new packages do not bring; versions of the JSON parser come and go with every release."""
    return sorted(name for name in before if name not in after and not name.startswith("data_parser_"))


def staged(text: str, plugin_dir: str) -> str:
    """slurm.conf that loads the plugins of the trial."""
    bare = re.sub(r"^\s*plugindir\s*=.*$", "", text, flags=re.IGNORECASE | re.MULTILINE)
    return f"{bare.rstrip()}\nPluginDir={plugin_dir}\n"


def unpack(words: t.Sequence[str], stage: Path, timeout: float) -> Path:
    """Fetch the packages, checked by apt, and unpack them below ``stage``; return the directory of their plugins."""
    debs = stage / "debs"
    debs.mkdir()
    answer = run(["sh", "-c", 'cd "$1" && shift && exec apt-get -qq download "$@"', "sh", str(debs), *words], timeout)
    if answer.problem:
        raise TrialError(f"the new packages cannot be fetched: {answer.problem}")
    for deb in sorted(debs.glob("*.deb")):
        answer = run(["dpkg-deb", "-x", str(deb), str(stage / "root")], timeout)
        if answer.problem:
            raise TrialError(f"{deb.name} cannot be unpacked: {answer.problem}")
    found = sorted((stage / "root").rglob("auth_munge.so"))
    if not found:
        raise TrialError("the new packages hold no auth_munge.so; is there a package with Slurm's plugins among them?")
    return found[0].parent


def read(config: Path, stage: Path, plugin_dir: Path) -> list[str]:
    """What the new sinfo says of the configuration: it reads slurm.conf and loads what that names for a client."""
    staged_config = stage / "etc"
    shutil.copytree(config, staged_config, ignore=shutil.ignore_patterns("slurmdbd.conf"))
    path = staged_config / "slurm.conf"
    path.write_text(staged(path.read_text(), str(plugin_dir)))
    sinfo = sorted((stage / "root").rglob("bin/sinfo"))
    if not sinfo:
        raise TrialError("the new packages hold no sinfo")
    environment = {"SLURM_CONF": str(path), "LD_LIBRARY_PATH": str(plugin_dir)}
    answer = run([str(sinfo[0]), "--version"], 60, environment=environment)
    said = [line for line in f"{answer.out}\n{answer.err}".splitlines() if _SPOKEN.search(line)]
    return said or ([answer.problem] if answer.problem else [])


# Which Slurm a daemon really runs: after an upgrade of packages it is not the one on the disk.


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
    """The version that a daemon's program was built as; empty unless there is exactly one."""
    found = set(_CONSTANT.findall(program))
    return next(iter(found)).decode() if len(found) == 1 else ""


def seen(
    text: str, read: t.Callable[[str], bytes] = lambda pid: Path(f"/proc/{pid}/exe").read_bytes()
) -> dict[str, Daemon]:
    """Every daemon of this host. The program of a running process can be read even when its file was replaced."""
    found = {}
    for name, unit in units(text).items():
        pid, there = unit.get("MainPID", "0"), unit.get("LoadState") == "loaded"
        runs = ""
        if pid != "0":
            try:
                runs = constant(read(pid))
            except OSError:  # it has just ended
                pid = "0"
        found[name] = Daemon(
            there, pid != "0" and unit.get("ActiveState") in ("active", "activating", "reloading"), runs
        )
    return found
