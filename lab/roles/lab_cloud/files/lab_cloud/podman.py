# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances of the lab's cloud: containers, described by role lab_nodes as its own nodes are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import typing as t
from pathlib import Path

Json = t.Dict[str, t.Any]
CLUSTER = "hpcai.cluster"
_UNIT = "lab-user-data.service"
_UNITS = "/etc/systemd/system"
_SEED = "/var/lib/lab-cloud/user-data"
_STATES = {"created": "starting", "configured": "starting", "running": "running", "stopping": "stopping"}
UNIT_TEXT = f"""\
[Unit]
Description=What this instance was given to run when it boots
After=network.target

[Service]
Type=exec
ExecStart={_SEED}
"""
# A mounted file is no link, so multi-user.target.wants would not do.
_DROP_IN_TEXT = f"[Unit]\nWants={_UNIT}\n"


class CloudError(Exception):
    """What the cloud answers: a status and a sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def podman(*argv: str) -> str:
    """Run podman."""
    command = ["podman", *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise CloudError(500, f"podman {argv[0]}: {done.stderr.strip()}")
    return done.stdout


def arguments(item: Json, volumes: t.Sequence[str], labels: t.Sequence[str]) -> list[str]:
    """What podman takes to create a container of a description; a key that is not known here is an error."""
    plain = {"network": "network", "ip": "ip", "mac_address": "mac-address", "hostname": "hostname", "name": "name"}
    plain.update({"cgroupns": "cgroupns", "shm_size": "shm-size", "pids_limit": "pids-limit", "systemd": "systemd"})
    lists = {"ulimit": "ulimit", "volume": "volume", "network": "network"}
    flags = {"no_hosts": "--no-hosts", "privileged": "--privileged"}
    known = {*plain, *lists, *flags, "stop_signal", "env", "tmpfs", "label", "cmd_args", "image", "command", "state"}
    if set(item) - known:
        raise CloudError(500, f"{', '.join(sorted(set(item) - known))} of {item['name']} is not understood")
    found = [*item["cmd_args"], "create", f"--stop-signal={item['stop_signal']}"]
    found += [flags[key] for key in flags if item.get(key)]
    for key, option in {**plain, **lists}.items():
        values = item.get(key, [])
        found += [f"--{option}={value}" for value in (values if isinstance(values, list) else [values])]
    found += [f"--volume={volume}" for volume in volumes]
    for option, words in (("env", item["env"]), ("label", item["label"])):
        found += [f"--{option}={key}={value}" for key, value in words.items()]
    found += [f"--tmpfs={place}:{how}" for place, how in item["tmpfs"].items()]
    return [*found, *(f"--label={label}" for label in labels), item["image"], *item["command"]]


class Instances:
    """The instances of one lab."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.settings: Json = json.loads((directory.parent / "elastic.json").read_text())
        self.known = {item["hostname"]: item for item in self.settings["instances"]}

    def faults(self) -> Json:
        """What a rehearsal wants to go wrong: ``refuse`` (name to sentence), ``never_boot`` (names)."""
        path = self.directory / "faults.json"
        return t.cast(Json, json.loads(path.read_text())) if path.is_file() else {}

    def listed(self) -> dict[str, dict[str, str]]:
        """Every instance, with what it does and whose it is."""
        label = f"label={self.settings['label']}"
        found = json.loads(podman("ps", "--all", "--filter", label, "--filter", f"label={CLUSTER}", "--format=json"))
        names = {item["name"]: name for name, item in self.known.items()}
        return {
            names[one["Names"][0]]: {
                "state": _STATES.get(one["State"], "stopped"),
                "cluster": one["Labels"][CLUSTER],
            }
            for one in found
            if one["Names"][0] in names
        }

    def create(self, name: str, cluster: str, user_data: str) -> None:
        """Create an instance and let it boot; one that is there is left alone."""
        refused = self.faults().get("refuse", {}).get(name)
        if refused:
            raise CloudError(403, str(refused))
        if name not in self.known:
            raise CloudError(404, f"{name} is no instance that this cloud has room for")
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,39}", cluster) or not user_data.startswith("#!"):
            raise CloudError(400, "a cluster's name and user-data that starts with #! are needed")
        there = self.listed().get(name)
        if there and there["cluster"] != cluster:
            raise CloudError(409, f"{name} belongs to cluster {there['cluster']}")
        if not there:
            self._boot(name, cluster, user_data)

    def _boot(self, name: str, cluster: str, user_data: str) -> None:
        item, place = self.known[name], self.directory / "seeds" / name
        place.mkdir(parents=True, exist_ok=True)
        asleep = name in self.faults().get("never_boot", [])
        (place / "user-data").write_text("#!/bin/sh\nexec sleep infinity\n" if asleep else user_data)
        (place / "user-data").chmod(0o755)
        (place / "unit").write_text(UNIT_TEXT)
        (place / "drop-in").write_text(_DROP_IN_TEXT)
        volumes = [f"{place}/user-data:{_SEED}:ro", f"{place}/unit:{_UNITS}/{_UNIT}:ro"]
        volumes.append(f"{place}/drop-in:{_UNITS}/multi-user.target.d/lab-cloud.conf:ro")
        podman(*arguments(item, volumes, [f"{CLUSTER}={cluster}"]))
        podman("start", item["name"])
        self._cut_off(item["name"])

    def _cut_off(self, container: str) -> None:
        """Leave the instance no way out of the lab's network, as in a private subnet."""
        pid = podman("inspect", "--format={{.State.Pid}}", container).strip()
        argv = ["nsenter", f"--target={pid}", "--net", "ip", "route", "delete", "default"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
        if done.returncode and "No such process" not in done.stderr:
            raise CloudError(500, f"the default route cannot be removed: {done.stderr.strip()}")

    def delete(self, name: str, cluster: str) -> None:
        """Remove an instance; one that is not there is no error."""
        there = self.listed().get(name)
        if there and there["cluster"] != cluster:
            raise CloudError(409, f"{name} belongs to cluster {there['cluster']}")
        if there:
            podman("rm", "--force", "--time=5", "--volumes", self.known[name]["name"])
        shutil.rmtree(self.directory / "seeds" / name, ignore_errors=True)
