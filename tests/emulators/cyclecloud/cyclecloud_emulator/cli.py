# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The `cyclecloud` command: reads files here, asks the server, prints what it says."""

from __future__ import annotations

import argparse
import base64
import configparser
import contextlib
import getpass
import json
import os
import ssl
import sys
import typing as t
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

from .projects import project_ini
from .store import Json, UserError

SECTION = "cyclecloud"


class Server:
    def __init__(self, url: str, username: str, password: str, verify: bool) -> None:
        self.url = url.rstrip("/")
        self.login = base64.b64encode(f"{username}:{password}".encode()).decode()
        self.context = ssl.create_default_context(cafile=os.environ.get("REQUESTS_CA_BUNDLE") or None)
        if not verify:
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE

    def ask(self, path: str, body: bytes, kind: str = "application/json") -> Json:
        request = urllib.request.Request(f"{self.url}{path}", body, method="POST")
        request.add_header("Authorization", f"Basic {self.login}")
        request.add_header("Content-Type", kind)
        try:
            with urllib.request.urlopen(request, timeout=120, context=self.context) as answer:
                return t.cast(Json, json.loads(answer.read()))
        except urllib.error.HTTPError as exc:
            text = {401: "Invalid username or password", 403: "You have no rights to do this"}.get(exc.code)
            raise UserError(text or f"The server at {self.url} answered {exc.code}") from None
        except (urllib.error.URLError, OSError, ValueError) as exc:
            raise UserError(f"Could not connect to {self.url}: {getattr(exc, 'reason', exc)}") from None

    def command(self, command: str, **options: t.Any) -> Json:
        return self.ask("/_emulator/cli", json.dumps({"command": command, "options": options}).encode())


def config_path(options: argparse.Namespace) -> Path:
    return Path(options.config or Path.home() / ".cycle/config.ini")


def configured(options: argparse.Namespace) -> Server:
    path = config_path(options)
    parser = configparser.ConfigParser(interpolation=None)
    if not parser.read(path) or not parser.has_section(SECTION):
        raise UserError("CycleCloud CLI is not initialized. Please run: cyclecloud initialize")
    one = parser[SECTION]
    for name in ("url", "username", "password"):
        if name not in one:
            raise UserError(f"{path}: [{SECTION}] has no {name}")
    return Server(one["url"], one["username"], one["password"], one.getboolean("verify_certificates", True))


def _ask(prompt: str, default: str) -> str:
    print(f"{prompt}: [{default}] ", end="", flush=True)
    return sys.stdin.readline().strip() or default


def initialize(options: argparse.Namespace) -> int:
    path = config_path(options)
    if options.batch and not (options.url and options.username and options.password is not None):
        raise UserError("--batch needs --url, --username and --password")
    if options.batch and path.exists() and not options.force:
        raise UserError(f"{path} exists; use --force to overwrite it")
    if path.exists() and not options.batch:
        print("Re-initializing. (Note: Current settings may be modified.)")
    url = options.url or _ask("CycleServer URL", "http://localhost")
    verify = options.verify_ssl != "false"
    if not options.batch and options.verify_ssl is None and url.startswith("https"):
        verify = not _untrusted(url)
    username = options.username or _ask("CycleServer username", getpass.getuser())
    password = options.password if options.password is not None else getpass.getpass("CycleServer password: ")
    server = Server(url, username, password, verify)
    there = server.command("ping")
    print("\nGenerating CycleServer key...")
    if there["out"]:
        print("Initial account already exists, skipping initial account creation.")
    parser = configparser.ConfigParser(interpolation=None)
    parser[SECTION] = {
        "url": url,
        "username": username,
        "password": password,
        "verify_certificates": str(verify).lower(),
    }
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        parser.write(file)
    print(f"CycleCloud configuration stored in {path}")
    return 0


def _untrusted(url: str) -> bool:
    try:
        with contextlib.closing(urllib.request.urlopen(f"{url.rstrip('/')}/health_monitor", timeout=30)):
            return False
    except urllib.error.URLError as exc:
        if not isinstance(exc.reason, ssl.SSLError):
            raise UserError(f"Could not connect to {url}: {exc.reason}") from None
    if _ask("Detected untrusted certificate.  Allow?", "yes") not in {"y", "yes"}:
        raise UserError("The certificate is not trusted")
    return True


def _read(path: str | None) -> str | None:
    try:
        return Path(path).read_text() if path else None
    except OSError as exc:
        raise UserError(f"{path}: {exc.strerror}") from None


def _arguments(options: argparse.Namespace) -> Json:
    given = {key: value for key, value in vars(options).items() if key not in {"config", "loglevel", "command", "sub"}}
    if given.get("parameters"):
        if not given["parameters"].endswith(".json"):
            raise UserError("The name of a parameters file must end with .json")
        given["parameters"] = _read(given["parameters"])
    file = given.pop("file", None)
    if file:
        given["content" if options.command == "account" else "text"] = _read(file)
    return given


PUBLIC = Path("/etc/ssl/certs/ca-certificates.crt")


def _storage_trusted(locker: str) -> None:
    """The real one sends files to Azure's storage, which only the public authorities vouch for."""
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
    if not bundle or not PUBLIC.is_file():
        return
    trusted, public = (
        set(ssl.create_default_context(cafile=str(path)).get_ca_certs(binary_form=True)) for path in (bundle, PUBLIC)
    )
    if not trusted & public:
        raise UserError(
            f"HTTPSConnectionPool(host='{locker or 'locker'}.blob.core.windows.net', port=443): SSLError: certificate"
            " verify failed: unable to get local issuer certificate"
        )


def upload(server: Server, options: argparse.Namespace) -> int:
    """Send specs and blobs of the project in this directory."""
    _storage_trusted(options.locker)
    home = Path(options.project_dir or ".")
    name, version, blobs = project_ini(_read(str(home / "project.ini")) or "")
    missing = [one for one in blobs if not (home / "blobs" / one).is_file()]
    if missing:
        raise UserError(f"project.ini lists blobs that are not there: {missing}")
    files = {str(p.relative_to(home / "specs")): p for p in (home / "specs").rglob("*") if p.is_file()}
    files.update({f"blobs/{p.relative_to(home / 'blobs')}": p for p in (home / "blobs").rglob("*") if p.is_file()})
    if not files:
        raise UserError("The project has neither specs nor blobs")
    ident = uuid.uuid4().hex
    for place, path in sorted(files.items()):
        server.ask(
            f"/_emulator/locker/{ident}/{urllib.parse.quote(place)}", path.read_bytes(), "application/octet-stream"
        )
    project = {"name": name, "version": version, "files": sorted(files)}
    return _show(server.command("project upload", locker=options.locker, upload=ident, project=project))


def _show(answer: Json, output: str | None = None) -> int:
    if output and not answer["rc"]:
        Path(output).write_text(answer["out"])
    else:
        sys.stdout.write(answer["out"])
    sys.stderr.write(answer["err"])
    return int(answer["rc"])


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="cyclecloud", allow_abbrev=False)
    top.add_argument(
        "-v",
        "--version",
        action="version",
        version=f"CycleCloud {os.environ.get('CYCLECLOUD_CLI_VERSION', '8.9.3-3500')}",
    )
    verbs = top.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    shared.add_argument("--config")
    shared.add_argument("--loglevel")

    def verb(where: t.Any, name: str, *arguments: str) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = where.add_parser(name, parents=[shared], allow_abbrev=False)
        for argument in arguments:
            _add(one, argument)
        return one

    verb(verbs, "initialize", "--batch", "--force", "--url=", "--verify-ssl=", "--username=", "--password=", "--name=")
    account = verbs.add_parser("account").add_subparsers(dest="sub", required=True)
    verb(account, "list")
    verb(account, "show", "name")
    verb(account, "create", "-f/file", "-o/output", "--dry-run")
    verb(account, "edit", "name", "-f/file", "-o/output", "--dry-run")
    verb(account, "delete", "name", "--force")
    locker = verbs.add_parser("locker").add_subparsers(dest="sub", required=True)
    verb(locker, "list")
    verb(locker, "show", "name")
    project = verbs.add_parser("project").add_subparsers(dest="sub", required=True)
    verb(project, "upload", "locker?", "--project-dir=")
    verb(
        verbs,
        "import_cluster",
        "name?",
        "-c/cluster",
        "-f/file",
        "-p/parameters",
        "-P/override*",
        "--force",
        "-t/as_template!",
    )
    verb(verbs, "import_template", "name", "-c/cluster", "-f/file", "--force")
    verb(verbs, "create_cluster", "template", "name", "-p/parameters", "-P/override*", "--force")
    for name in ("start_cluster", "terminate_cluster", "retry"):
        verb(verbs, name, "name", "-r/recursive!", "-t/test!")
    verb(verbs, "delete_cluster", "name", "-r/recursive!", "--force")
    verb(verbs, "show_cluster", "name?", "-l/long!", "-r/recursive!")
    verb(
        verbs,
        "show_nodes",
        "names*",
        "-c/cluster",
        "-f/filter",
        "-o/output",
        "--attrs=",
        "--format=",
        "--states=",
        "-l/long!",
    )
    verb(verbs, "export_parameters", "name", "-p/output", "-o/output")
    return top


LONG = {
    "-f": "--file",
    "-p": "--parameters",
    "-P": "--parameter-override",
    "-c": "--cluster",
    "-o": "--output",
    "-t": "--as-template",
    "-r": "--recursive",
    "-l": "--long",
}


def _add(one: argparse.ArgumentParser, text: str) -> None:
    """name, name?, names*, --flag, --option=, -x/dest, -x/dest* (repeats), -x/dest! (a flag)."""
    if text.startswith("--"):
        one.add_argument(text.rstrip("="), **({} if text.endswith("=") else {"action": "store_true"}))
    elif text.startswith("-"):
        short, dummy, dest = text.partition("/")
        names = [short] if short == "-t" and dest == "test!" else [short, LONG[short]]
        names = [name for name in names if name not in one._option_string_actions]
        if dest.startswith("output") and short == "-p":
            names = ["-p"]
        kind: Json = {"action": {"*": "append", "!": "store_true"}.get(dest[-1], "store")}
        one.add_argument(*names, dest=dest.rstrip("*!"), **kind)
    else:
        one.add_argument(text.rstrip("?*"), **({"nargs": text[-1]} if text[-1] in "?*" else {}))


def main() -> int:
    options = parser().parse_args()
    try:
        if options.command == "initialize":
            return initialize(options)
        server = configured(options)
        if options.command == "project":
            return upload(server, options)
        given = _arguments(options)
        output = given.pop("output", None)
        name = f"{options.command} {options.sub}" if hasattr(options, "sub") else options.command
        return _show(server.command(name, **given), output)
    except UserError as exc:
        sys.stderr.write(f"Error: {exc}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
