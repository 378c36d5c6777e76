# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the emulator knows, on disk after every change, and the clock that its nodes live by."""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import json
import os
import secrets
import threading
import time
import typing as t
from pathlib import Path

Json = t.Dict[str, t.Any]

SETTINGS: Json = {
    # Virtual seconds.
    "acquire": 45,
    "prepare": 150,
    "terminate": 30,
    "boot_timeout": 1800,
    "locker": 20,
    "locker_retry": 120,
    "machine_types": 30,
    # Virtual seconds per real one.
    "speed": 60,
    # {"<family>|regional|spot": {"limit": cores, "used": cores}}; else what catalog.json says.
    "quota": {},
    # Names of machine types: CycleCloud sees no GPUs in them (a known fault of old versions).
    "gpu_count_zero": [],
    # Names of machine types the region has no capacity for, or {"<type>": nodes that still fit}.
    "no_capacity": {},
    # Regular expressions of node names: never boots / its cluster-init fails.
    "boot_failure": [],
    "init_failure": [],
    # "" | a text: how the next lockers fail.
    "locker_failure": "",
    # Addresses for nodes by name, such as that of a container that plays the scheduler.
    "machines": {},
    "network": "10.1.0.0/16",
    # Versions of CycleCloud's own projects that came with the server, the newest first; others cannot be staged.
    "projects": {"slurm": ["4.0.10"], "healthagent": ["2.0.2"], "monitoring": ["1.0.3"]},
    # How parameters are exported: as they were sent | as texts, numbers included.
    "export": "texts",
}
EMPTY: Json = {
    "records": [],
    "accounts": {},
    "clusters": {},
    "operations": {},
    "requests": {},
    "templates": {},
    "faults": [],
    "log": [],
    "ignored": [],
    "sequence": 0,
}


class UserError(Exception):
    """What was asked for cannot be; the text is what CycleCloud would say."""


class Store:
    """State of one installation; hold ``lock`` while it is read or changed."""

    def __init__(self, path: Path, speed: float | None = None) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.dirty = False  # time changed what is not on disk yet
        self.state: Json = self._empty()
        if path.exists():
            self.state.update(json.loads(path.read_text()))
            self.state["clock"]["real"] = time.time()  # it stood still while nothing ran
        if speed is not None:
            self.settings({"speed": speed})

    @staticmethod
    def _empty() -> Json:
        made = copy.deepcopy({**EMPTY, "settings": SETTINGS})
        made["clock"] = {"real": time.time(), "virtual": 1_800_000_000.0}
        made["key"] = secrets.token_hex(32)
        return made

    def reset(self) -> None:
        """Forget clusters, accounts and faults; users and what else was dropped stay."""
        kept = [one for one in self.state["records"] if not one["AdType"].startswith(("Cloud.", "Azure."))]
        self.state = {**self._empty(), "records": kept, "key": self.state["key"]}

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        other = self.path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            other.unlink()
        with os.fdopen(os.open(other, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(self.state, file)
        other.replace(self.path)
        self.dirty = False

    # The clock

    def now(self) -> float:
        clock = self.state["clock"]
        return clock["virtual"] + (time.time() - clock["real"]) * self.state["settings"]["speed"]

    def advance(self, seconds: float) -> float:
        self.state["clock"] = {"virtual": self.now() + seconds, "real": time.time()}
        return self.state["clock"]["virtual"]

    def settings(self, changes: Json) -> Json:
        unknown = sorted(set(changes) - set(SETTINGS))
        if unknown:
            raise UserError(f"unknown settings: {unknown}; there are {sorted(SETTINGS)}")
        self.advance(0)
        self.state["settings"].update(changes)
        return self.state["settings"]

    # Records

    def find(self, kind: str, **fields: t.Any) -> list[Json]:
        return [
            one
            for one in self.state["records"]
            if one["AdType"] == kind and all(one.get(key) == value for key, value in fields.items())
        ]

    def put(self, record: Json) -> Json:
        """Add a record, or merge it into the one of the same type and name."""
        for one in self.find(record["AdType"], Name=record.get("Name")):
            one.update(record)
            return one
        self.state["records"].append(record)
        return record

    def drop(self, kind: str, **fields: t.Any) -> None:
        gone = self.find(kind, **fields)
        self.state["records"] = [one for one in self.state["records"] if one not in gone]

    def number(self) -> int:
        self.state["sequence"] += 1
        return self.state["sequence"]

    def ignored(self, what: str) -> None:
        """Note what the real CycleCloud takes without a word, for tests to ask for."""
        self.state["ignored"] = [*self.state["ignored"], what][-500:]

    # Secrets: nothing on disk can be searched for them

    def seal(self, secret: str) -> str:
        raw = secret.encode()
        return base64.b64encode(self._mix(raw)).decode()

    def unseal(self, sealed: str) -> str:
        return self._mix(base64.b64decode(sealed)).decode()

    def _mix(self, raw: bytes) -> bytes:
        stream = b""
        while len(stream) < len(raw):
            stream += hashlib.sha256(f"{self.state['key']}{len(stream)}".encode()).digest()
        return bytes(a ^ b for a, b in zip(raw, stream))

    def set_password(self, user: Json, password: str) -> None:
        classes = [str.islower, str.isupper, str.isdigit, lambda c: not c.isalnum()]
        met = sum(any(test(c) for c in password) for test in classes)
        if not 8 <= len(password) <= 123 or met < 3:
            raise UserError("Passwords have 8 to 123 characters of at least 3 of 4 classes")
        salt = secrets.token_hex(8)
        user["PasswordHash"] = f"{salt}:{self._hash(salt, password)}"

    @staticmethod
    def _hash(salt: str, password: str) -> str:
        return hashlib.pbkdf2_hmac("sha256", password.encode(), salt.encode(), 1000).hex()

    def user(self, name: str, password: str) -> Json | None:
        for one in self.find("AuthenticatedUser", Name=name):
            salt, dummy, digest = one.get("PasswordHash", ":").partition(":")
            if digest and secrets.compare_digest(digest, self._hash(salt, password)):
                return one
        return None
