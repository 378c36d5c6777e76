# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands cyclecloud and cycle_server on the CycleCloud VM, and the notes that modules keep there."""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import json
import re
import secrets
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _files, _owned_files, _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import rest

HOME = "/opt/cycle_server"
STATE = "/var/lib/hpcai/cyclecloud"
PROGRAM = "/usr/local/bin/cyclecloud"
CONFIG = "/root/.cycle/config.ini"
# The options that modules which run these commands share.
SPEC: dict[str, t.Any] = {
    "home": {"type": "path", "default": HOME},
    "state_dir": {"type": "path", "default": STATE},
}
CLI_SPEC: dict[str, t.Any] = {
    **SPEC,
    "program": {"type": "path", "default": PROGRAM},
    "config": {"type": "path", "default": CONFIG},
}
_NAME = re.compile(r"[\w. @:/+-]+")
# Said by the command line's HTTP client where no answer of the server is known.
_UNREACHED = re.compile(r"connection|timed out|timeout|reset by peer|refused|remote end closed|503|502", re.IGNORECASE)

Json = t.Dict[str, t.Any]


class CliError(Exception):
    """A command or its input failed; the text is fit for the user."""


class Login(t.NamedTuple):
    """The server and the credentials in the command line's settings file."""

    url: str
    user: str
    password: str
    verify: bool


def login(path: str) -> Login:
    """Read the settings file of the command line."""
    reader = configparser.ConfigParser(interpolation=None)
    try:
        reader.read_string(Path(path).read_text(encoding="utf-8"))
        section = reader["cyclecloud"]
        return Login(
            section["url"], section["username"], section["password"], section.getboolean("verify_certificates", True)
        )
    except (OSError, KeyError, ValueError, configparser.Error) as exc:
        raise CliError(
            f"{path} holds no login of CycleCloud ({type(exc).__name__}): run role cyclecloud_server"
        ) from exc


def quoted(value: str) -> str:
    """Return a text quoted for a query, or refuse it: the query language has no escapes for other characters."""
    if not _NAME.fullmatch(value):
        raise CliError(f"{value!r} cannot stand in a query of CycleCloud: use letters, digits and . - _ @ : / +")
    return f'"{value}"'


def records(text: str) -> list[Json]:
    """Read what ``cycle_server execute --format json`` printed: a list, one record, or nothing."""
    if not text.strip():
        return []
    try:
        document = json.loads(text[min(position for position in (text.find("["), text.find("{")) if position >= 0) :])
    except ValueError as exc:
        raise CliError(f"cycle_server execute did not print JSON: {text.strip()[:200]!r}") from exc
    rows = document if isinstance(document, list) else [document]
    if not all(isinstance(row, dict) for row in rows):
        raise CliError(f"cycle_server execute did not print records: {text.strip()[:200]!r}")
    return rows


class Cli:
    """Both commands; ``params`` are those of CLI_SPEC or SPEC."""

    def __init__(self, params: t.Mapping[str, t.Any], run: t.Callable[..., _process.Outcome] = _process.run) -> None:
        self.params, self._run = params, run
        self.server_program = str(Path(params["home"]) / "cycle_server")
        self.secrets: list[str] = []
        self.environment = {"HOME": str(Path.home())}
        bundle = trust_bundle(params["state_dir"])
        if bundle:
            # Of this process alone: the system's authorities may have changed since the last one, and check mode leaves
            # nothing behind.
            self._bundle = tempfile.NamedTemporaryFile(  # noqa: SIM115 - as long as this object
                "w", prefix="hpcai-ca-", suffix=".pem", encoding="utf-8"
            )
            self._bundle.write(bundle)
            self._bundle.flush()
            Path(self._bundle.name).chmod(0o644)
            self.environment.update(dict.fromkeys(_TRUST, self._bundle.name))

    def installed(self) -> bool:
        return Path(self.server_program).exists()

    def ready(self) -> bool:
        """Whether the command line is installed and has its settings."""
        return Path(self.params["program"]).exists() and Path(self.params["config"]).exists()

    def server(self, *words: str, timeout: float = 300) -> str:
        """Run cycle_server; any failure is an error."""
        return self._checked(self._run([self.server_program, *words], timeout, None, self.environment), words)

    def try_server(self, *words: str, timeout: float = 60) -> _process.Outcome:
        return self._run([self.server_program, *words], timeout, None, self.environment)

    def stop(self) -> None:
        """Stop the server; one that does not run counts as stopped."""
        done = self.try_server("stop", timeout=600)
        if done.problem and not self.try_server("status").problem:
            raise CliError(f"CycleCloud does not stop: {failure_text(done)}")

    def try_cyclecloud(self, *words: str, timeout: float = 300, folder: str = "") -> _process.Outcome:
        prefix = ["env", f"--chdir={folder}"] if folder else []
        return self._run([*prefix, self.params["program"], *words], timeout, None, self.environment)

    def read(self, *words: str, tries: int = 4, pause: float = 3, timeout: float = 300, folder: str = "") -> str:
        """Run a cyclecloud command that may be repeated, again where the server was not reached."""
        for last in range(tries - 1, -1, -1):
            done = self.try_cyclecloud(*words, timeout=timeout, folder=folder)
            if not done.problem or not last or not unreached(done):
                break
            time.sleep(pause)
        return self._checked(done, words)

    def query(self, text: str) -> list[Json]:
        return records(self.server("execute", "--format", "json", text))

    def _checked(self, outcome: _process.Outcome, words: t.Sequence[str]) -> str:
        if outcome.problem:
            raise CliError(self.hidden(f"'{' '.join(words)}' failed: {failure_text(outcome)}"))
        return outcome.out

    def hidden(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "********") if secret else text
        return text


def failure_text(outcome: _process.Outcome) -> str:
    """Return exit status and output of a failed command in one line: the cause may stand in any line."""
    output = " | ".join(line.strip() for line in f"{outcome.err}\n{outcome.out}".splitlines() if line.strip())
    return f"exit status {outcome.rc}: {output[-1500:]}" if output else outcome.problem


def unreached(outcome: _process.Outcome) -> bool:
    """Whether the outcome of a command is unknown: it timed out, or lost its connection to the server."""
    return outcome.rc is None or bool(outcome.rc and _UNREACHED.search(f"{outcome.err}\n{outcome.out}"))


def ca_file(state_dir: str) -> str:
    """Return the path of the certificate that verifies this server, empty where there is none."""
    path = Path(state_dir) / "ca.pem"
    return str(path) if path.is_file() else ""


# Where the certificates of this machine's authorities are, by distribution.
_SYSTEM = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
# Python's requests reads the first, its standard library and OpenSSL the second, curl the third. Go, in which AzCopy is
# written, reads the second as well.
_TRUST = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")


def trust_bundle(state_dir: str, system: t.Sequence[str] = _SYSTEM) -> str:
    """Return the certificates by which the command line trusts this server and whomever else this machine trusts.

    It speaks to the server and, to upload a project, to Azure's storage, and each of the variables that name a file of
    authorities replaces the system's. Empty where the system's own are enough.
    """
    own = ca_file(state_dir)
    if not own:
        return ""
    bundle = next((Path(path) for path in system if Path(path).is_file()), None)
    if bundle is None:
        raise CliError(f"none of {', '.join(system)} is there: install the package ca-certificates")
    text = bundle.read_text(encoding="utf-8", errors="replace").rstrip()
    return f"{text}\n{Path(own).read_text(encoding='utf-8').strip()}\n"


# The documented REST routes on the server itself.


class LocalServer:
    """The REST interface on this host, with the credentials of the command line."""

    def __init__(self, login: Login, ca: str, timeout: float = 60) -> None:
        self.client = rest.CycleClient(login.url, login.user, login.password, ca or None, login.verify, timeout)

    def exists(self, cluster: str) -> bool:
        """Whether the cluster exists: this route is documented to answer 404 where it does not."""
        try:
            self.client.get(f"/clusters/{rest.quoted(cluster)}/nodes")
        except rest.CycleCloudError as exc:
            if exc.status == 404:
                return False
            raise
        return True

    def status(self, cluster: str) -> Json:
        return self.client.status(cluster)

    def started(self, cluster: str) -> bool:
        return str(self.status(cluster).get("targetState")).lower() == "started"


# Notes of earlier runs, readable by root alone.


class Notes:
    """One JSON file below the state directory."""

    def __init__(self, state_dir: str, name: str) -> None:
        self.path = Path(state_dir) / f"{name}.json"

    def load(self) -> Json:
        try:
            notes = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as exc:
            raise CliError(
                f"Cannot read {self.path}, which tells what was set before: {exc}. Remove it to go on"
            ) from exc
        return notes if isinstance(notes, dict) else {}

    def save(self, notes: Json) -> None:
        folder(self.path.parent)
        write(self.path, json.dumps(notes, indent=1, sort_keys=True) + "\n")


def folder(path: Path) -> None:
    """Make a directory that only its owner can enter."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)


@contextlib.contextmanager
def alone(state_dir: str, check: bool) -> t.Iterator[None]:
    """Look and change while no other of these modules does: a task whose connection was lost may still run here when it
    is begun again. What is only waited for needs no lock, and check mode changes nothing."""
    if check:
        yield
        return
    folder(Path(state_dir))
    with _files.lock(Path(state_dir) / "lock"):
        yield


def write(path: Path, text: str, owner: str = "root", mode: int = 0o600) -> None:
    """Replace a file in one step; at no time more users can read it than in the end."""
    _owned_files.replace_owned(path, text.encode(), owner, mode)


def fingerprint(secret: str, salt: str = "") -> str:
    """Return a salted digest of a secret, so that it cannot be looked up in a table."""
    salt = salt or secrets.token_hex(16)
    digest = hashlib.pbkdf2_hmac("sha256", secret.encode(), salt.encode(), 200_000).hex()
    return f"{salt}:{digest}"


def same_secret(secret: str, noted: t.Any) -> bool:
    """Whether a secret is the one that was noted by its fingerprint."""
    return isinstance(noted, str) and ":" in noted and fingerprint(secret, noted.partition(":")[0]) == noted
