# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask systemd about a service and act on it, for the module service_current. Private."""

from __future__ import annotations

import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._service_state import (
    SHOW,
    Plan,
    parse_show,
    running,
    units,
)

STAMPS = Path("/run/hpcai-service")


def times(paths: t.Iterable[str], written: t.Mapping[str, float]) -> dict[str, float]:
    """When files last changed; in check mode ``written`` are those that would have."""
    return {**{path: Path(path).stat().st_mtime for path in paths if Path(path).is_file()}, **written}


class ServiceError(Exception):
    """The service cannot run; the text is fit for the user and holds the end of its journal."""


class Service:
    """One systemd service; ``module`` is the AnsibleModule with its name, reload, ready and timeout."""

    def __init__(self, module: t.Any) -> None:
        self.module = module
        self.name: str = module.params["name"]
        self.stamp = STAMPS / f"{self.name}.reloaded"

    def show(self) -> dict[str, str]:
        return parse_show(self._systemctl(*SHOW[1:]))

    def reloaded(self) -> float:
        """When this module last reloaded it, since the machine booted."""
        return self.stamp.stat().st_mtime if self.stamp.exists() else 0.0

    def run(self, unit: t.Mapping[str, str], todo: Plan) -> None:
        if todo.daemon_reload or self._outdated():
            self.module.run_command(["systemctl", "daemon-reload"], check_rc=True)
            unit = self.show()
        if unit.get("LoadState") != "loaded":
            raise ServiceError(f"There is no usable unit {self.name}: systemd says it is {unit.get('LoadState')}")
        if todo.enable:
            self._systemctl("enable")
        self._act(todo.action)
        self._wait()

    def refuse_cycles(self) -> None:
        """A unit of another vendor with After=multi-user.target is enough for a circle."""
        verify = ["systemd-analyze", "verify", "--man=no", "multi-user.target"]
        rc, dummy, err = self.module.run_command(verify)
        if rc not in (0, 1):  # 1 is any finding about any unit of the machine
            raise ServiceError(f"{' '.join(verify)} ended with {rc}: {err.strip()}")
        if "ordering cycle" in err:
            found = [line for line in err.splitlines() if re.search("ordering cycle|dependency on|break", line)]
            raise ServiceError(
                "At the next boot systemd would leave out a unit of this node, for some wait for each other: "
                f"{'; '.join(found)}. Look which of them has an After= or Before= that it does not need "
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

    def _wait(self) -> None:
        ready, timeout = self.module.params["ready"], self.module.params["timeout"]
        end = time.monotonic() + timeout
        while running(self.show()):
            rc, out, err = self.module.run_command(ready) if ready else (0, "", "")
            if rc == 0:
                return
            if time.monotonic() > end:
                raise self._failed(f"{' '.join(ready)} still fails after {timeout} s: {(err or out).strip()}")
            time.sleep(0.3)
        raise self._failed("it did not stay up")

    def _failed(self, cause: str) -> ServiceError:
        journal = ["journalctl", "-u", self.name, "-n", "12", "-o", "cat", "--no-pager"]
        said = self.module.run_command(journal)[1]
        return ServiceError(f"Service {self.name} does not run: {cause}. Its journal ends with:\n{said}")
