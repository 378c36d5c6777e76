# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first user and the command line of CycleCloud, for module cyclecloud_site. Private."""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import tempfile
import typing as t
import zipfile
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import records, settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import Cli, CliError, Json, told
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.notes import Notes, folder, write


class Line:
    """The command line: installed from the server's own archive, with a login in its settings."""

    def __init__(self, cli: Cli, params: t.Mapping[str, t.Any]) -> None:
        self.cli, self.params = cli, params
        self.archive = Path(params["home"]) / "tools" / "cyclecloud-cli.zip"
        self.notes = Notes(params["state_dir"], "cli")

    def _digest(self) -> str:
        return hashlib.sha256(self.archive.read_bytes()).hexdigest() if self.archive.is_file() else ""

    def outdated(self) -> bool:
        """Whether it is missing, or older than the server; the server's upgrade brings another archive."""
        return not Path(self.params["program"]).exists() or self.notes.load().get("archive") != self._digest()

    def install(self) -> None:
        digest = self._digest()
        if not digest:
            raise CliError(f"{self.archive} is not there: is the package {self.params['home']} whole?")
        with tempfile.TemporaryDirectory(prefix="hpcai-cli-") as place:
            with zipfile.ZipFile(self.archive) as archive:
                archive.extractall(place)  # the server's own file, whose package apt verified
            script = next(Path(place).glob("*/install.sh"), None)
            if script is None:
                raise CliError(f"{self.archive} holds no install.sh")
            done = _command.run(["env", f"--chdir={script.parent}", "sh", str(script), "--system"], 900)
        if done.problem or not Path(self.params["program"]).exists():
            raise CliError(f"the command line is not installed as {self.params['program']}: {told(done)}")
        self.notes.save({"archive": digest})

    def wanted(self) -> tuple[str, str]:
        """Its settings before and after; sections that the command line itself writes stay."""
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
            return before, settings.with_section(before, "cyclecloud", values)
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
        """Log in; the command line says no more than that it was refused."""
        try:
            self.cli.read("account", "list")
        except CliError as exc:
            raise CliError(
                f"the login of {self.params['user']} at {self.params['url']} is refused: {exc}. A user who was there"
                " keeps the password: give that one, or run '/opt/cycle_server/cycle_server reset_access"
                f" {self.params['user']}' on the server and set it anew"
            ) from exc


def bring(params: t.Mapping[str, t.Any], check: bool) -> Json:
    """Have the records, the command line and its login."""
    wrong = records.password_problems(params["password"])
    if wrong:
        raise CliError(f"its password does not do: {'; '.join(wrong)}")
    cli = Cli(params)
    cli.secrets = [params["password"]]
    drop, line = records.Drop(cli), Line(cli, params)
    wanted = records.wanted(params["user"], params["password"], params["ssh_public_key"])
    missing = _missing(cli, drop, wanted, check)
    left = drop.leftovers()
    outdated, (before, after) = line.outdated(), line.wanted()
    names = [f"{one['AdType']} {one['Name']}" for one in missing]
    changed = bool(missing or left or outdated or before != after or line.loose())
    if not check:
        for one in left:
            one.unlink()
        if missing:
            drop.put(missing, params["timeout"])
        if outdated:
            line.install()
        line.change(before, after)
    steps = [*names, *(["command line"] if outdated else []), *([params["config"]] if before != after else [])]
    return {"changed": changed, "records": names, "diff": {"before": "", "after": "".join(f"{one}\n" for one in steps)}}


def _missing(cli: Cli, drop: records.Drop, wanted: list[Json], check: bool) -> list[Json]:
    try:
        return records.missing(wanted, drop.have)
    except CliError:
        if check:  # Nothing is installed yet, or it does not run: an earlier task of the play would have seen to it.
            return wanted
        raise
