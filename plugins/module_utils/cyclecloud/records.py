# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records for the first boot: dropped into config/data, taken in, and removed with their password. Private."""

from __future__ import annotations

import json
import re
import time
import typing as t
import uuid
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import Cli, CliError, Json, quoted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.notes import write

_CLASSES = ("[a-z]", "[A-Z]", "[0-9]", "[^a-zA-Z0-9]")
OURS = "hpcai-"


def password_problems(password: str) -> list[str]:
    """What CycleCloud, or the settings file of its command line, would not take."""
    found = []
    if not 8 <= len(password) <= 123:
        found.append(f"it has {len(password)} characters, 8 to 123 are needed")
    if sum(bool(re.search(one, password)) for one in _CLASSES) < 3:
        found.append("it needs three of: small letters, capitals, digits, signs")
    if "%" in password or not password.isprintable() or password != password.strip():
        found.append(
            "a percent sign, control characters or spaces at its ends would be read differently by the command line"
        )
    return found


def wanted(user: str, password: str, ssh_public_key: str) -> list[Json]:
    """All records of a site with its first user."""

    def setting(name: str, value: t.Any) -> Json:
        return {"AdType": "Application.Setting", "Name": name, "Value": value}

    found = [
        setting("cycleserver.installation.initial_user", user),
        setting("cycleserver.installation.complete", True),
        setting("distribution_method", "hpcai.gpu_cluster"),
        {
            "AdType": "AuthenticatedUser",
            "Name": user,
            "RawPassword": password,
            "Superuser": True,
            "ForcePasswordReset": False,
        },
    ]
    if ssh_public_key:
        found.append(
            {
                "AdType": "Credential",
                "CredentialType": "PublicKey",
                "Name": f"{user}/public",
                "PublicKey": ssh_public_key.strip(),
            }
        )
    return found


def missing(records: t.Iterable[Json], have: t.Callable[[str, str], t.Sequence[Json]]) -> list[Json]:
    """The records that are not there yet; a user who is there keeps the password."""
    found = []
    for one in records:
        there = have(one["AdType"], one["Name"])
        compare = {"Application.Setting": "Value", "Credential": "PublicKey"}.get(one["AdType"])
        if not there or (compare and _text(there[0].get(compare)) != _text(one[compare])):
            found.append(one)
    return found


def _text(value: t.Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


class Drop:
    """The folder that the server watches."""

    def __init__(self, cli: Cli, owner: str = "cycle_server") -> None:
        self.cli, self.owner = cli, owner
        self.folder = Path(cli.params["home"]) / "config" / "data"

    def have(self, kind: str, name: str) -> list[Json]:
        return self.cli.query(f"select * from {kind} where Name == {quoted(name)}")  # noqa: S608 - no SQL, and quoted

    def leftovers(self) -> list[Path]:
        """What an earlier run left that was killed: it holds a password."""
        places = (self.folder, self.folder.parent)
        return [path for place in places for one in (f"{OURS}*", f".{OURS}*") for path in sorted(place.glob(one))]

    def put(self, records: t.Sequence[Json], timeout: float) -> None:
        """Move a complete file in, wait until the server took it, and remove what it leaves."""
        path = self.folder / f"{OURS}{uuid.uuid4().hex}.json"
        try:
            # Made beside the folder that is watched, with the right owner: the server never sees half of it.
            whole = self.folder.parent / path.name
            write(whole, json.dumps(list(records)), self.owner)
            whole.replace(path)
            self._await(path, time.monotonic() + timeout, timeout)
        finally:
            for one in self.leftovers():
                one.unlink()

    def _await(self, path: Path, end: float, timeout: float) -> None:
        taken = path.with_name(f"{path.name}.imported")
        while not taken.exists():
            others = [one.name for one in self.folder.glob(f"{path.name}.*")]
            if others:
                raise CliError(
                    f"the server did not take the records in: it made {', '.join(others)} of them; see its log"
                )
            if time.monotonic() > end:
                raise CliError(
                    f"the server did not take the records in {self.folder} within {timeout:g} s: is it running, and do"
                    " they belong to cycle_server? See /opt/cycle_server/logs/cycle_server.log"
                )
            time.sleep(0.5)
