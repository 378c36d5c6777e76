# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a systemd unit needs so that it runs with its current files, and the commands that bring it there."""

from __future__ import annotations

import datetime
import os
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import open_regular

# What a systemd unit needs so that it runs with its current files: ``systemctl show`` to a plan. No I/O.


_PROPERTIES = (
    "ActiveState,DropInPaths,ExecMainStartTimestamp,FragmentPath,LoadState,NeedDaemonReload,SubState,UnitFileState"
)
SHOW = ["systemctl", "show", "--timestamp=us+utc", "--property", _PROPERTIES]  # the unit's name follows
_RUNNING = ("active", "activating", "reloading", "refreshing")
_ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated", "linked")
_UNIT_FILE = re.compile(
    r"/systemd/system/([^/]+\.(?:mount|path|service|slice|socket|target|timer))(?:\.d/[^/]+\.conf)?$"
)


class ServicePlan(t.NamedTuple):
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
    matches = (_UNIT_FILE.search(path) for path in paths)
    return sorted({match.group(1) for match in matches if match})


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
) -> ServicePlan:
    """Decide from the unit's state and the files' modification times.

    Comparing times, not "did this run change the file", means that a run killed between writing a file and restarting
    is made good by the next one.
    """
    enable = unit.get("UnitFileState", "") not in _ENABLED
    stale_unit = unit.get("NeedDaemonReload") == "yes"
    since = started(unit)
    if not running(unit):
        return ServicePlan(enable, stale_unit, "start", [])
    if since is None:  # oneshot-like units keep no main process: nothing to compare with
        return ServicePlan(enable, stale_unit, "", [])
    stale = sorted(path for path, changed in restart_on.items() if changed > since)
    if stale:
        return ServicePlan(enable, stale_unit, "restart", stale)
    stale = sorted(path for path, changed in reload_on.items() if changed > max(since, reloaded))
    return ServicePlan(enable, stale_unit, "reload" if stale else "", stale)


# Ask systemd about a service and act on it, for the module service_current.


STAMPS = Path("/run/hpcai-service")


def times(paths: t.Iterable[str], written: t.Mapping[str, float]) -> dict[str, float]:
    """When files last changed; in check mode ``written`` are those that would have."""
    return {**{path: Path(path).stat().st_mtime for path in paths if Path(path).is_file()}, **written}


def settled(module: t.Any, services: t.Mapping[str, t.Sequence[str]]) -> list[str]:
    """Which services, given with the files that they read, a Service would leave as they are if their files are right.

    systemd is asked once for all of them; one that does not know ``--timestamp`` tells of none.
    """
    wanted = {name: [name, *units(files)] for name, files in services.items()}
    rc, out, dummy = module.run_command([*SHOW, *(unit for names in wanted.values() for unit in names)])
    told = iter(map(parse_show, out.strip().split("\n\n") if rc == 0 else []))
    found = []
    for name, names in wanted.items():
        shown = [next(told, {}) for dummy in names]
        todo = plan(shown[0], times([*unit_files(shown[0]), *services[name]], {}), {})
        # One of which nothing was said does not run.
        if not todo.changed and not any(unit.get("NeedDaemonReload") == "yes" for unit in shown):
            found.append(name)
    return found


class ServiceError(Exception):
    """The service cannot run; the text is fit for the user and holds the end of its journal and of its log."""


_LOG_LINES, _LOG_BYTES = 12, 64 * 1024


class LogFile:
    """A log that a daemon writes by itself, often in a directory of its own user: a link there leads nowhere."""

    def __init__(self, path: str | None) -> None:
        self.path = path or ""
        self.before = self._read()[:2]

    def news(self) -> list[str]:
        """The last lines since this object was made; none if there are none, or no file that can be read."""
        identity, size, data = self._read()
        grown = size - self.before[1] if identity == self.before[0] else size
        new = data[max(len(data) - grown, 0) :] if grown > 0 else b""
        return new.decode("utf-8", "replace").splitlines()[-_LOG_LINES:]

    def _read(self) -> tuple[tuple[int, int], int, bytes]:
        """Which file it is, its size and its end."""
        try:
            with open_regular(self.path) as log:
                about = os.fstat(log.fileno())
                log.seek(max(about.st_size - _LOG_BYTES, 0))
                return (about.st_dev, about.st_ino), about.st_size, log.read(_LOG_BYTES)
        except OSError:
            return (0, 0), 0, b""


class Service:
    """One systemd service; ``module`` is the AnsibleModule with its name, reload, ready, timeout and log."""

    def __init__(self, module: t.Any) -> None:
        self.module = module
        self.name: str = module.params["name"]
        self.stamp = STAMPS / f"{self.name}.reloaded"
        self.log = LogFile(module.params.get("log"))

    def show(self) -> dict[str, str]:
        return parse_show(self._systemctl(*SHOW[1:]))

    def reloaded(self) -> float:
        """When this module last reloaded it, since the machine booted."""
        return self.stamp.stat().st_mtime if self.stamp.exists() else 0.0

    def run(self, unit: t.Mapping[str, str], todo: ServicePlan) -> None:
        if todo.daemon_reload or self._outdated():
            if todo.enable:  # systemd reads all units anew but once; a failure is found below
                self.module.run_command(["systemctl", "enable", "--no-reload", self.name])
            self.module.run_command(["systemctl", "daemon-reload"], check_rc=True)
            unit = self.show()
        if unit.get("LoadState") != "loaded":
            raise ServiceError(f"There is no usable unit {self.name}: systemd says it is {unit.get('LoadState')}")
        if todo.enable and unit.get("UnitFileState", "") not in _ENABLED:
            self._systemctl("enable")
        self._act(todo.action)
        self._wait(self.show() if todo.action else unit)

    def refuse_cycles(self) -> None:
        """A unit of another vendor with After=multi-user.target is enough for a circle."""
        verify = ["systemd-analyze", "verify", "--man=no", "multi-user.target"]
        rc, dummy, err = self.module.run_command(verify)
        if rc not in (0, 1):  # 1 is any finding about any unit of the machine
            raise ServiceError(f"{' '.join(verify)} ended with {rc}: {err.strip()}")
        if "ordering cycle" in err:
            lines = [line for line in err.splitlines() if re.search("ordering cycle|dependency on|break", line)]
            raise ServiceError(
                "At the next boot systemd would leave out a unit of this node, for some wait for each other: "
                f"{'; '.join(lines)}. Look which of them has an After= or Before= that it does not need "
                "('systemctl cat UNIT'; a copy in /etc/systemd/system replaces a package's)"
            )

    def _outdated(self) -> bool:
        """Whether systemd has yet to read a file of the service that belongs to another unit."""
        names = units(entry["path"] for entry in self.module.params["files"])
        show = ["systemctl", "show", "--property", "NeedDaemonReload", *names]
        return bool(names) and "NeedDaemonReload=yes" in self.module.run_command(show, check_rc=True)[1]

    def _systemctl(self, *words: str) -> str:
        return self.module.run_command(["systemctl", *words, self.name], check_rc=True)[1]

    def _act(self, action: str) -> None:
        if action == "reload":
            command = self.module.params["reload"] or ["systemctl", "reload", self.name]
            self.module.run_command(command, check_rc=True)
            self.stamp.parent.mkdir(exist_ok=True)
            self.stamp.touch()
        elif action:
            self.module.run_command(["systemctl", "reset-failed", self.name])
            rc, dummy, err = self.module.run_command(["systemctl", action, self.name])
            if rc:
                raise self._failed(f"systemctl {action} said: {err.strip()}")

    def _wait(self, unit: t.Mapping[str, str]) -> None:
        ready, timeout = self.module.params["ready"], self.module.params["timeout"]
        end = time.monotonic() + timeout
        while running(unit):
            asked = time.monotonic()
            rc, out, err = self.module.run_command(ready) if ready else (0, "", "")
            if rc == 0:
                return
            if time.monotonic() > end:
                raise self._failed(f"{' '.join(ready)} still fails after {timeout} s: {(err or out).strip()}")
            # On a slow processor to ask is work, which the service needs to start.
            time.sleep(max(0.1, time.monotonic() - asked))
            unit = self.show()
        raise self._failed("it did not stay up")

    def _failed(self, cause: str) -> ServiceError:
        journal = ["journalctl", "-u", self.name, "-n", "12", "-o", "cat", "--no-pager"]
        lines = self.module.run_command(journal)[1]
        log = "\n".join(self.log.news())
        own = f"\nIts log {self.log.path} got these lines:\n{log}" if log else ""
        return ServiceError(f"Service {self.name} does not run: {cause}. Its journal ends with:\n{lines.rstrip()}{own}")
