# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a systemd unit needs so that it runs with its current files: ``systemctl show`` to a plan. No I/O; private."""

from __future__ import annotations

import datetime
import re
import typing as t

_PROPERTIES = (
    "ActiveState,DropInPaths,ExecMainStartTimestamp,FragmentPath,LoadState,NeedDaemonReload,SubState,UnitFileState"
)
SHOW = ["systemctl", "show", "--timestamp=us+utc", "--property", _PROPERTIES]  # the unit's name follows
_RUNNING = ("active", "activating", "reloading", "refreshing")
_ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated", "linked")
_UNIT_FILE = re.compile(
    r"/systemd/system/([^/]+\.(?:mount|path|service|slice|socket|target|timer))(?:\.d/[^/]+\.conf)?$"
)


class Plan(t.NamedTuple):
    """``action`` is start, restart, reload or empty; ``stale`` are the files that the unit has not read."""

    enable: bool
    daemon_reload: bool
    action: str
    stale: list[str]

    @property
    def changed(self) -> bool:
        return self.enable or bool(self.action)


def parse_show(text: str) -> dict[str, str]:
    """Read what ``systemctl show --property`` printed."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def unit_files(unit: t.Mapping[str, str]) -> list[str]:
    """The unit's own files, which need a restart to take effect.

    What a generator drew is new after every daemon-reload, changed or not: nfs-server would restart each time.
    """
    paths = (unit.get("FragmentPath", ""), *unit.get("DropInPaths", "").split())
    return [path for path in paths if path and not path.startswith("/run/systemd/generator")]


def running(unit: t.Mapping[str, str]) -> bool:
    """Whether it runs or is on its way. One that failed and waits for its next attempt says that it is activating."""
    waits = unit.get("SubState", "").startswith("auto-restart")  # since systemd 254 also: auto-restart-queued
    return unit.get("ActiveState") in _RUNNING and not waits


def units(paths: t.Iterable[str]) -> list[str]:
    """The units that files of systemd are about, drop-ins of other units among them."""
    found = (_UNIT_FILE.search(path) for path in paths)
    return sorted({match.group(1) for match in found if match})


def started(unit: t.Mapping[str, str]) -> float | None:
    """When the main process started, in seconds of Unix time; systemd prints it as ``--timestamp=us+utc`` does."""
    words = unit.get("ExecMainStartTimestamp", "").split()
    if len(words) < 3:
        return None
    clock = words[2] if "." in words[2] else f"{words[2]}.0"
    stamp = datetime.datetime.strptime(f"{words[1]} {clock}+0000", "%Y-%m-%d %H:%M:%S.%f%z")
    return stamp.timestamp()


def plan(
    unit: t.Mapping[str, str],
    restart_on: t.Mapping[str, float],
    reload_on: t.Mapping[str, float],
    reloaded: float = 0.0,
) -> Plan:
    """Decide from the unit's state and the files' modification times.

    Comparing times, not "did this run change the file", means that a run killed between writing a file and restarting
    is made good by the next one.
    """
    enable = unit.get("UnitFileState", "") not in _ENABLED
    stale_unit = unit.get("NeedDaemonReload") == "yes"
    since = started(unit)
    if not running(unit):
        return Plan(enable, stale_unit, "start", [])
    if since is None:  # oneshot-like units keep no main process: nothing to compare with
        return Plan(enable, stale_unit, "", [])
    stale = sorted(path for path, changed in restart_on.items() if changed > since)
    if stale:
        return Plan(enable, stale_unit, "restart", stale)
    stale = sorted(path for path, changed in reload_on.items() if changed > max(since, reloaded))
    return Plan(enable, stale_unit, "reload" if stale else "", stale)
