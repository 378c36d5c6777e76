# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that the emulator remembers, in one dictionary that is saved after each change."""

from __future__ import annotations

import copy
import json
import os
import threading
import time
import typing as t
import uuid
from pathlib import Path

TENANT = "11111111-1111-4111-8111-111111111111"
SUBSCRIPTION = "22222222-2222-4222-8222-222222222222"
CLIENT = "33333333-3333-4333-8333-333333333333"
SECRET = "emulated~Secret-0123456789abcdefghijklmn"
OBJECT = "44444444-4444-4444-8444-444444444444"

SETTINGS: dict[str, t.Any] = {
    "delay": 0.1,  # seconds that a long operation takes
    "group_delete_delay": 0.3,
    "retry_after": 0.05,
    "retry_after_ms": False,  # say it in the header retry-after-ms
    "page_size": 50,
    "replication_delay": 1.0,  # seconds until a new principal is known everywhere
    "assignment_delay": 1.0,  # seconds until a new role assignment has an effect
    "registration_delay": 0.2,
    # Provider namespaces that nobody has registered yet: on a fresh subscription all of these.
    "unregistered": [
        f"Microsoft.{name}" for name in ("Automation", "Compute", "ManagedIdentity", "Network", "Storage")
    ],
    "denied": [],  # action patterns, or {"action", "scope", "principal"}
    "policies": [],  # {"type", "name"}: refused by policy
    "inherited_tags": [],  # names of tags that a policy copies from a group to what is made in it
    "quota": {},  # usage name -> limit
    "usage": {},  # usage name -> what others use already
    "sku_restrictions": {},  # size -> [restriction], or "absent"
    "no_capacity": [],  # sizes whose allocation fails
    "taken_names": [],  # storage account names of others
    "images_gone": [],  # URNs
    "not_purchasable": [],  # publishers whose plans this subscription may not buy
    "host_keys": {},  # machine -> lines of its /etc/ssh/ssh_host_*_key.pub, else a key of its own
    "instance_addresses": {},  # lower-case id of a machine in a scale set -> its address, where a container plays it
    "expired_secrets": [],
    "secrets": {CLIENT: [SECRET]},
    "token_seconds": 3600,
}


class State:
    """The emulator's memory. Take ``lock`` around every use."""

    def __init__(self, folder: Path, machines: Path | None = None) -> None:
        self.folder, self.machines_file = folder, machines
        self.lock = threading.RLock()
        self.log: list[dict[str, t.Any]] = []
        self.surroundings: dict[str, str] = {}  # what leads a job to this emulator
        self.data: dict[str, t.Any] = self.empty()
        if (folder / "state.json").is_file():
            self.data.update(json.loads((folder / "state.json").read_text()))

    @staticmethod
    def empty() -> dict[str, t.Any]:
        return {
            "resources": {},  # lower-case id -> the resource as GET shows it
            "hidden": {},  # lower-case id -> what GET never shows
            "operations": {},
            "tokens": {},
            "directory": {OBJECT: {"type": "ServicePrincipal", "appId": CLIENT, "since": 0, "name": "emulated"}},
            "registered": {},
            "faults": [],
            "settings": copy.deepcopy(SETTINGS),
        }

    def __getattr__(self, name: str) -> t.Any:
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None

    def save(self) -> None:
        path = self.folder / "state.json"
        temporary = path.with_suffix(".new")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(self.data, file, indent=1)
        temporary.replace(path)

    def machines(self) -> dict[str, str]:
        """Return which VMs answer at which address; read each time, for a test may add some."""
        if not self.machines_file or not self.machines_file.is_file():
            return {}
        found: dict[str, str] = json.loads(self.machines_file.read_text())
        return found

    def failed(self, text: str) -> None:
        """Keep what went wrong inside the emulator where its user finds it."""
        with (self.folder / "errors.log").open("a") as file:
            file.write(text + "\n")

    def reset(self) -> None:
        self.data = self.empty()
        self.log.clear()

    def get(self, resource_id: str) -> dict[str, t.Any] | None:
        found: dict[str, t.Any] | None = self.data["resources"].get(resource_id.lower())
        return found

    def put(self, resource: dict[str, t.Any]) -> None:
        self.data["resources"][resource["id"].lower()] = resource

    def drop(self, resource_id: str) -> None:
        self.data["resources"].pop(resource_id.lower(), None)
        self.data["hidden"].pop(resource_id.lower(), None)

    def hidden_of(self, resource_id: str) -> dict[str, t.Any]:
        found: dict[str, t.Any] = self.data["hidden"].setdefault(resource_id.lower(), {})
        return found

    def under(self, prefix: str) -> list[dict[str, t.Any]]:
        """Return what lies below an id, not the thing itself, in order of ids."""
        start = prefix.lower().rstrip("/") + "/"
        return [value for key, value in sorted(self.data["resources"].items()) if key.startswith(start)]

    def of_type(self, name: str) -> list[dict[str, t.Any]]:
        wanted = name.lower()
        return [value for value in self.data["resources"].values() if value.get("type", "").lower() == wanted]

    def principal(self, kind: str, name: str, app: str = "") -> tuple[str, str]:
        """Make an identity in the directory; return its object id and its application id."""
        known, client = str(uuid.uuid4()), app or str(uuid.uuid4())
        self.data["directory"][known] = {"type": kind, "appId": client, "since": time.time(), "name": name}
        return known, client
