# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first start of a CycleCloud server: its records and its first user."""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import json
import re
import tempfile
import time
import typing as t
import uuid
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import server
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import (
    Cli,
    CliError,
    Json,
    Notes,
    failure_text,
    folder,
    quoted,
    write,
)

# Records for the first boot: the server imports them from config/data, then they are removed, as they hold a password.


_CLASSES = ("[a-z]", "[A-Z]", "[0-9]", "[^a-zA-Z0-9]")
OURS = "hpcai-"


def password_problems(password: str) -> list[str]:
    """Say why CycleCloud, or the settings file of its command line, would not take a password."""
    faults = []
    if not 8 <= len(password) <= 123:
        faults.append(f"it has {len(password)} characters, 8 to 123 are needed")
    if sum(bool(re.search(pattern, password)) for pattern in _CLASSES) < 3:
        faults.append("it needs three of: small letters, capitals, digits, signs")
    if "%" in password or not password.isprintable() or password != password.strip():
        faults.append(
            "a percent sign, control characters or spaces at its ends would be read differently by the command line"
        )
    return faults


def site_records(user: str, password: str, ssh_public_key: str) -> list[Json]:
    """Return the records of a site with its first user."""

    def setting(name: str, value: t.Any) -> Json:
        return {"AdType": "Application.Setting", "Name": name, "Value": value}

    records = [
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
        records.append(
            {
                "AdType": "Credential",
                "CredentialType": "PublicKey",
                "Name": f"{user}/public",
                "PublicKey": ssh_public_key.strip(),
            }
        )
    return records


def missing_records(records: t.Iterable[Json], have: t.Callable[[str, str], t.Sequence[Json]]) -> list[Json]:
    """Return the records that the server lacks; a user who exists keeps the password."""
    absent = []
    for record in records:
        existing = have(record["AdType"], record["Name"])
        compare = {"Application.Setting": "Value", "Credential": "PublicKey"}.get(record["AdType"])
        if not existing or (compare and _text(existing[0].get(compare)) != _text(record[compare])):
            absent.append(record)
    return absent


def _text(value: t.Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


class WatchedFolder:
    """The folder from which the server imports records."""

    def __init__(self, cli: Cli, owner: str = "cycle_server") -> None:
        self.cli, self.owner = cli, owner
        self.folder = Path(cli.params["home"]) / "config" / "data"

    def have(self, kind: str, name: str) -> list[Json]:
        return self.cli.query(f"select * from {kind} where Name == {quoted(name)}")  # noqa: S608 - no SQL, and quoted

    def leftovers(self) -> list[Path]:
        """Return the files that a killed run left; they hold a password."""
        folders = (self.folder, self.folder.parent)
        return [
            path for folder in folders for pattern in (f"{OURS}*", f".{OURS}*") for path in sorted(folder.glob(pattern))
        ]

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
            for leftover in self.leftovers():
                leftover.unlink()

    def _await(self, path: Path, end: float, timeout: float) -> None:
        while True:
            # One look: the server may rename the file between two.
            results = sorted(result.name for result in self.folder.glob(f"{path.name}.*"))
            if f"{path.name}.imported" in results:
                return
            if results:
                raise CliError(
                    f"the server did not take the records in: it made {', '.join(results)} of them; see its log"
                )
            if time.monotonic() > end:
                raise CliError(
                    f"the server did not take the records in {self.folder} within {timeout:g} s: is it running, and do"
                    " they belong to cycle_server? See /opt/cycle_server/logs/cycle_server.log"
                )
            time.sleep(0.5)


# The first user's login of the command line.


class CommandLine:
    """The command line: installed from the server's own archive, with a login in its settings."""

    def __init__(self, cli: Cli, params: t.Mapping[str, t.Any]) -> None:
        self.cli, self.params = cli, params
        self.archive = Path(params["home"]) / "tools" / "cyclecloud-cli.zip"
        self.notes = Notes(params["state_dir"], "cli")

    def _digest(self) -> str:
        return hashlib.sha256(self.archive.read_bytes()).hexdigest() if self.archive.is_file() else ""

    def outdated(self) -> bool:
        """Whether the command line is missing or not that of the server's archive, which an upgrade replaces."""
        return not Path(self.params["program"]).exists() or self.notes.load().get("archive") != self._digest()

    def install(self) -> None:
        """Install the command line that the server's package brings, and note its digest."""
        digest = self._digest()
        if not digest:
            raise CliError(f"{self.archive} is not there: is the package {self.params['home']} whole?")
        with tempfile.TemporaryDirectory(prefix="hpcai-cli-") as directory:
            # The server's own file, whose package apt verified. It has programs and links, which Python's zipfile does
            # not restore: the command line brings its own Python since 8.9.0.
            unpacked = _process.run(["unzip", "-q", str(self.archive), "-d", directory], 300)
            if unpacked.problem:
                raise CliError(
                    f"{self.archive} cannot be unpacked (is the package unzip installed?): {failure_text(unpacked)}"
                )
            script = next(Path(directory).glob("*/install.sh"), None)
            if script is None:
                raise CliError(f"{self.archive} holds no install.sh")
            # As a program, by its own first line, in its own directory: that is how the manual starts it.
            done = _process.run(["env", f"--chdir={script.parent}", "./install.sh", "--system"], 900)
        if done.problem or not Path(self.params["program"]).exists():
            raise CliError(
                f"the command line is not installed as {self.params['program']}: {failure_text(done)}{_offline(done)}"
            )
        self.notes.save({"archive": digest})

    def planned_settings(self) -> tuple[str, str]:
        """Return the settings before and after; sections that the command line itself writes stay."""
        path = Path(self.params["config"])
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        with contextlib.suppress(configparser.Error):
            configparser.ConfigParser(interpolation=None).read_string(before)
            values = {
                "url": self.params["url"],
                "username": self.params["user"],
                "password": self.params["password"],
                "timeout": 60,
                "verify_certificates": True,
            }
            return before, server.with_section(before, "cyclecloud", values)
        raise CliError(f"{path} cannot be read as settings: move it away")

    def loose(self) -> bool:
        """Whether others than root could read the password."""
        path = Path(self.params["config"])
        return path.exists() and bool(path.stat().st_mode & 0o077)

    def configure(self, text: str) -> None:
        path = Path(self.params["config"])
        if self.loose() or not path.is_file() or path.read_text(encoding="utf-8") != text:
            folder(path.parent)
            write(path, text)

    def change(self, before: str, after: str) -> None:
        """Write the settings and prove them; a login that is refused does not replace one that worked."""
        self.configure(after)
        try:
            self.prove()
        except CliError:
            if before:
                self.configure(before)
            raise

    def prove(self) -> None:
        """Log in; the command line reports only that a login was refused, not why."""
        try:
            self.cli.read("account", "list")
        except CliError as exc:
            raise CliError(
                f"the login of {self.params['user']} at {self.params['url']} is refused: {exc}. A user who was there"
                " keeps the password: give that one, or run '/opt/cycle_server/cycle_server reset_access"
                f" {self.params['user']}' on the server and set it anew"
            ) from exc


_NO_ROUTE = re.compile(
    r"name or service not known|temporary failure in name resolution|network is unreachable|no route to host"
    r"|connection (timed out|refused)|could not resolve|url[o]pen error",
    re.IGNORECASE,
)


def _offline(outcome: _process.Outcome) -> str:
    """Say what an installer that found no way out was looking for."""
    if not _NO_ROUTE.search(f"{outcome.err}\n{outcome.out}"):
        return ""
    return (
        ". The installer may load AzCopy, which 'cyclecloud project upload' needs, from the Internet: the server's"
        " subnet needs a way out (docs/azure.md), or the task HTTPS_PROXY in its environment"
    )


def bring(params: t.Mapping[str, t.Any], check: bool) -> Json:
    """Make the records, install the command line and log it in; return the module's result."""
    wrong = password_problems(params["password"])
    if wrong:
        raise CliError(f"its password does not do: {'; '.join(wrong)}")
    cli = Cli(params)
    cli.secrets = [params["password"]]
    drop, line = WatchedFolder(cli), CommandLine(cli, params)
    records = site_records(params["user"], params["password"], params["ssh_public_key"])
    missing = _missing(cli, drop, records, check)
    leftovers = drop.leftovers()
    outdated, (before, after) = line.outdated(), line.planned_settings()
    names = [f"{entry['AdType']} {entry['Name']}" for entry in missing]
    changed = bool(missing or leftovers or outdated or before != after or line.loose())
    if not check:
        for entry in leftovers:
            entry.unlink()
        if missing:
            drop.put(missing, params["timeout"])
        if outdated:
            line.install()
        line.change(before, after)
    steps = [*names, *(["command line"] if outdated else []), *([params["config"]] if before != after else [])]
    return {
        "changed": changed,
        "records": names,
        "diff": {"before": "", "after": "".join(f"{entry}\n" for entry in steps)},
    }


def _missing(cli: Cli, drop: WatchedFolder, records: list[Json], check: bool) -> list[Json]:
    try:
        return missing_records(records, drop.have)
    except CliError:
        if check:  # Nothing is installed yet, or it does not run: an earlier task of the play would have seen to it.
            return records
        raise
