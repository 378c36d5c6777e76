# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The `cycle_server` command, for root on the server itself."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import typing as t
import urllib.error
import urllib.request
from pathlib import Path

from .store import Json, UserError
from .tls import certificate, properties

UNIT = "cycle_server"


def home() -> Path:
    return Path(os.environ.get("CS_HOME", "/opt/cycle_server"))


def _pid() -> int:
    """The server's, or 0 when it does not run."""
    try:
        pid = int((home() / "data/server.pid").read_text())
        return pid if b"cyclecloud_emulator.server" in Path(f"/proc/{pid}/cmdline").read_bytes() else 0
    except (OSError, ValueError):
        return 0


def _url() -> str:
    given = properties(home() / "config/cycle_server.properties")
    return f"https://127.0.0.1:{given.get('webServerClusterPort', 9443)}"


def ask(path: str, body: Json | None = None) -> t.Any:
    """Ask the server on this machine."""
    try:
        secret = (home() / "data/local.secret").read_text()
    except PermissionError:
        raise UserError("You must be root or cycle_server to do this") from None
    except OSError:
        raise UserError("CycleServer is not running") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"{_url()}{path}", data, {"X-Secret": secret, "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as exc:
        raise UserError(f"CycleServer answered {exc.code}") from None
    except (urllib.error.URLError, OSError) as exc:
        raise UserError(f"CycleServer is not running: {getattr(exc, 'reason', exc)}") from None


def administer(**request: t.Any) -> t.Any:
    answer = ask("/_emulator/admin", request)
    if answer["rc"]:
        raise UserError(answer["err"])
    return answer["out"]


def systemd() -> bool:
    return (
        Path("/run/systemd/system").is_dir()
        and home() == Path("/opt/cycle_server")
        and shutil.which("systemctl") is not None
    )


def java() -> None:
    """The real one needs Java 8 and says so."""
    found = shutil.which("java")
    text = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr if found else ""
    if '"1.8.' not in text:
        raise UserError("Java 8 is required to run CycleServer; install a Java 8 runtime (java -version says 1.8)")


def start(options: argparse.Namespace) -> None:
    if _pid():
        print("CycleServer is already running")
    else:
        java()
        print("Starting CycleServer...")
        if systemd():
            subprocess.run(["systemctl", "start", UNIT], check=True)
        else:
            argv = [sys.executable, "-m", "cyclecloud_emulator.server", "--home", str(home())]
            with (home() / "logs/cycle_server.log").open("ab") as log:
                subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    if getattr(options, "wait", False):
        await_startup(options)


def stop(dummy: argparse.Namespace) -> None:
    if systemd():
        subprocess.run(["systemctl", "stop", UNIT], check=True)
    elif _pid():
        os.kill(_pid(), signal.SIGTERM)
    for dummy in range(100):
        if not _pid():
            print("CycleServer stopped")
            return
        time.sleep(0.1)
    raise UserError("CycleServer did not stop")


def restart(options: argparse.Namespace) -> None:
    stop(options)
    start(options)


def status(dummy: argparse.Namespace) -> None:
    if not _pid():
        print("CycleServer is not running")
        raise SystemExit(1)
    print("CycleServer is running")


def await_startup(options: argparse.Namespace) -> None:
    end = time.time() + getattr(options, "timeout", 300)
    while time.time() < end:
        try:
            ask("/health_monitor")
            print("CycleServer is up")
            return
        except UserError as exc:
            if "root" in str(exc):
                raise
        time.sleep(0.2)
    raise UserError("CycleServer is not up yet")


def keystore(options: argparse.Namespace) -> None:
    keys = home() / "config/keystore"
    keys.mkdir(exist_ok=True)
    if options.verb == "automatic":
        names = [one for one in options.files if one != "--accept-terms"]
        if len(names) != 1 or len(options.files) != 2:
            raise UserError("usage: keystore automatic --accept-terms FQDN")
        certificate(keys, [names[0], "localhost", "127.0.0.1"], home() / "data/automatic-ca.pem")
    elif options.verb == "import":
        _import_key(keys, options.files)
    elif options.verb not in {"update", "reconfig"}:
        raise UserError(f"keystore {options.verb} is not emulated")
    for path in keys.iterdir():
        shutil.chown(path, *_owner())
    if _pid():
        os.kill(_pid(), signal.SIGHUP)
    print("Keystore updated")


def _owner() -> tuple[int, int]:
    found = (home() / "config").stat()
    return found.st_uid, found.st_gid


def _import_key(keys: Path, files: list[str]) -> None:
    if len(files) != 2:
        raise UserError("usage: keystore import KEY CERTIFICATE")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files[1], files[0])
    except (OSError, ssl.SSLError) as exc:
        raise UserError(f"The key and the certificate do not fit: {exc}") from None
    for name, source in (("key.pem", files[0]), ("server.pem", files[1])):
        fresh = keys / f"{name}.new"
        fresh.touch(mode=0o600)
        fresh.write_bytes(Path(source).read_bytes())
        fresh.replace(keys / name)


def reset_access(options: argparse.Namespace) -> None:
    print(f"This will reset the password of {options.user}. Type 'yes' to continue: ", end="", flush=True)
    if sys.stdin.readline().strip() != "yes":
        raise UserError("Nothing was changed")
    print(f"\nThe new password for {options.user} is: {administer(command='reset_access', user=options.user)}")


def execute(options: argparse.Namespace) -> None:
    found = administer(command="execute", query=options.query)
    if options.format == "json":
        print(json.dumps(found, indent=2))
        return
    for one in found:
        print("\n".join(f"{key} = {json.dumps(value)}" for key, value in one.items()), end="\n\n")


def run_action(options: argparse.Namespace) -> None:
    if bool(options.filter) == bool(options.eq):
        raise UserError("run_action needs -f FILTER or -eq ATTRIBUTE VALUE")
    text = options.filter or f'{options.eq[0]}=="{options.eq[1]}"'
    print(administer(command="run_action", action=options.action, filter=text))


def import_data(options: argparse.Namespace) -> None:
    try:
        found = json.loads(Path(options.file).read_text())
    except (OSError, ValueError) as exc:
        raise UserError(f"{options.file}: {exc}") from None
    print(administer(command="import_data", records=found if isinstance(found, list) else [found]))


def main() -> int:
    top = argparse.ArgumentParser(prog="cycle_server", allow_abbrev=False)
    verbs = top.add_subparsers(dest="command", required=True)
    known = {"start": start, "stop": stop, "restart": restart, "status": status, "await_startup": await_startup}
    for name in known:
        one = verbs.add_parser(name, allow_abbrev=False)
        if name in {"start", "restart"}:
            one.add_argument("--wait", action="store_true")
    one = verbs.add_parser("keystore", allow_abbrev=False)
    one.add_argument("verb")
    one.add_argument("files", nargs=argparse.REMAINDER)
    verbs.add_parser("reset_access").add_argument("user")
    one = verbs.add_parser("execute", allow_abbrev=False)
    one.add_argument("--format", choices=["json", "text"])
    one.add_argument("query")
    one = verbs.add_parser("run_action", allow_abbrev=False)
    one.add_argument("action")
    one.add_argument("-f", "--filter")
    one.add_argument("-eq", nargs=2)
    verbs.add_parser("import_data").add_argument("file")
    options = top.parse_args()
    more = {"keystore": keystore, "reset_access": reset_access, "execute": execute, "run_action": run_action}
    try:
        {**known, **more, "import_data": import_data}[options.command](options)
    except UserError as exc:
        sys.stderr.write(f"{re.sub(r'[.]$', '', str(exc))}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
