# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module slurm_backup: its options, and what it does with them, also without Ansible, from a timer."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup import apply, read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup.model import (
    DAEMON,
    PARTS,
    BackupError,
    Manifest,
    choose,
    set_name,
    surplus,
    unreadable,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import database

SPEC: dict[str, t.Any] = {
    "part": {"type": "str", "choices": list(PARTS), "required": True},
    "state": {"type": "str", "choices": ["listed", "present", "restored"], "default": "present"},
    "cluster": {"type": "str", "required": True},
    "directory": {"type": "path", "default": "/var/backups/slurm_backup"},
    "keep": {"type": "int", "default": 7},
    "secrets": {"type": "bool", "default": False},
    "local": {"type": "bool", "default": True},
    "config": {"type": "path", "default": "/etc/slurm"},
    "data_directory": {"type": "path", "default": "/var/lib/mysql"},
    "name": {"type": "str", "default": "latest"},
    "next_job": {"type": "int", "default": 0},
    "stop": {"type": "bool", "default": False},
    "timeout": {"type": "float", "default": 86400},
}


class Backup:
    """One call; ``params`` are the module's, which the nightly program has in a file."""

    def __init__(self, params: t.Mapping[str, t.Any], check: bool = False) -> None:
        self.params, self.check = params, check
        self.part: str = params["part"]
        self.directory, self.config = Path(params["directory"]), Path(params["config"])

    def perform(self) -> dict[str, t.Any]:
        if self.params["keep"] < 0:
            raise BackupError(f"keep is {self.params['keep']}; accepted: 0 (all) or more")
        return {"listed": self.listed, "present": self.present, "restored": self.restored}[self.params["state"]]()

    def listed(self) -> dict[str, t.Any]:
        return self._result(changed=False, next_job=self.next_job())

    def present(self) -> dict[str, t.Any]:
        """Make a backup and remove those beyond what is kept; in check mode ask for the room alone."""
        if self.check:
            self._check_room()
            return self._result(changed=True, next_job=self.next_job())
        version = read.installed(self.part)
        if self.part == "accounting":
            manifest = apply.back_up_accounting(
                self.accounting(), self.directory, version, self.params["secrets"], self.params["timeout"]
            )
        else:
            manifest = self._back_up_state(version)
        with apply.in_directory(self.directory):
            removed = apply.remove_surplus(self.directory, self.part, self.params["keep"])
        return self._result(changed=True, backup=manifest, removed=removed, next_job=manifest["next_job"])

    def restored(self) -> dict[str, t.Any]:
        """Refuse first, then stop the daemon if it may be, then exchange; the daemon stays stopped."""
        manifests = read.manifests(self.directory, self.part)
        manifest = choose(manifests, self.params["name"], self.part, str(self.directory))
        version = read.installed(self.part)
        problems = [unreadable(manifest, self.part, self.params["cluster"].lower(), version)]
        problems += read.damaged(self.directory, manifest)
        daemon = DAEMON[self.part]
        runs = read.runs(self.part)
        if runs and not self.params["stop"]:
            problems.append(
                f"{daemon} runs; stop it, or allow it to be stopped (stop: true; of restore.yml -e restore_stop=true)"
            )
        if self.part == "controller" and read.state_place(self.config).is_mount():
            problems.append(f"{read.state_place(self.config)} is a mount point; it has to be a directory below one")
        if any(problems):
            raise BackupError("; ".join(problem for problem in problems if problem))
        if self.check:
            return self._result(changed=True, backup=manifest, next_job=self.next_job(), version=version)
        if runs:
            apply.stop(self.part)
        if self.part == "accounting":
            done = apply.restore_accounting(self.accounting(), self.directory, manifest, self.params["timeout"])
        else:
            state = read.state_place(self.config)
            done = apply.restore_state(state, self.directory, manifest, self.params["next_job"])
        return self._result(changed=True, backup=manifest, version=version, **done)

    def accounting(self) -> read.Accounting:
        params = self.params
        return read.Accounting(self.config, params["cluster"], params["local"], params["data_directory"])

    def next_job(self) -> int:
        """Return the highest number of a job that is known here."""
        if self.part == "controller":
            return read.next_job(read.state_place(self.config))
        accounting = self.accounting()
        with database.options_file(accounting.client()) as options:
            return accounting.next_job(options)

    def _back_up_state(self, version: str) -> Manifest:
        state = read.state_place(self.config)
        if not state.is_dir():
            raise BackupError(f"{state} (StateSaveLocation) is no directory: has slurmctld run here?")
        cluster = read.cluster_name(self.config).lower()
        if cluster != self.params["cluster"].lower():
            raise BackupError(
                f"{self.config}/slurm.conf is of cluster {cluster!r}, and asked for is {self.params['cluster']!r}"
            )
        about = {"part": "controller", "cluster": cluster, "version": version}
        return apply.back_up_state(state, self.config, self.directory, about, self.params["secrets"])

    def _check_room(self) -> None:
        if self.part == "controller":
            state = read.state_place(self.config)
            apply.room(self.directory, int(read.size(state) * 1.1), f"a copy of {state}")
            return
        accounting = self.accounting()
        with database.options_file(accounting.client()) as options:
            apply.room(self.directory, accounting.bytes(options), f"a dump of {accounting.name}")

    def _result(self, **values: t.Any) -> dict[str, t.Any]:
        backup: Manifest = values.pop("backup", {})
        gone = values.pop("removed", None)
        names = read.names(self.directory, self.part)
        if gone is None and self.check and self.params["state"] == "present":
            gone = surplus([*names, set_name(self.part, apply.stamp())], self.part, self.params["keep"])
        path = str(self.directory / backup["name"]) if backup else ""
        result = {"backup": backup, "place": path, "backups": names, "removed": gone or [], "replaced": "", **values}
        return {**result, "text": self._text(result)}

    def _text(self, result: t.Mapping[str, t.Any]) -> str:
        """Say what was done, in a line for people."""
        about = f"{result['place']}, {result['backup'].get('bytes')} bytes, Slurm {result['backup'].get('version')}"
        if self.params["state"] == "listed" or not result["backup"]:
            return f"{len(result['backups'])} backups of part {self.part} in {self.directory}"
        if self.params["state"] == "present":
            return f"{about}; older ones removed: {', '.join(result['removed']) or 'none'}"
        return f"{about}, was restored; what it replaced is {result['replaced'] or 'nothing'}"


def main(arguments: t.Sequence[str]) -> int:
    """Back up every part that a file of options names, the only argument; 1 when one of them failed."""
    defaults = {name: option.get("default") for name, option in SPEC.items()}
    failed = 0
    for chosen in json.loads(Path(arguments[0]).read_text(encoding="utf-8")):
        try:
            result = Backup({**defaults, **chosen, "state": "present"}).perform()
        except (BackupError, database.DumpError, OSError, ValueError) as exc:
            sys.stderr.write(f"No backup of part {chosen['part']} of {chosen['cluster']}: {exc}\n")
            failed = 1
            continue
        sys.stdout.write(f"{result['text']}\n")
    return failed
