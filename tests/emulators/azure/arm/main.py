# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import typing as t
from pathlib import Path

from . import certificates, server
from .app import App
from .state import CLIENT, SECRET, SUBSCRIPTION, TENANT, State


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="azure", description=__doc__)
    parser.add_argument(
        "--dir", type=Path, required=True, help="keeps state, certificates, azure.json, environment.json"
    )
    parser.add_argument("--port", type=int, default=0, help="of HTTPS; any free one by default")
    parser.add_argument("--address", default="127.0.0.1", help="to listen on; 0.0.0.0 lets containers in")
    parser.add_argument("--name", nargs="*", default=[], help="more names and addresses for the certificate")
    parser.add_argument("--machines", type=Path, help='JSON {"vm name": "address"}: what emulated VMs answer at')
    parser.add_argument("--fresh", action="store_true", help="forget the state of an earlier run")
    return parser.parse_args()


def environment(origin: str, authority: Path, proxy: str, metadata: str) -> dict[str, str]:
    """Return the variables that lead azure.azcollection, the SDKs and urllib here; TLS is verified."""
    return {
        "AZURE_TENANT": TENANT,
        "AZURE_CLIENT_ID": CLIENT,
        "AZURE_SECRET": SECRET,
        "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
        "AZURE_POD_IDENTITY_AUTHORITY_HOST": metadata,
        "HTTPS_PROXY": proxy,
        "https_proxy": proxy,
        "NO_PROXY": "localhost,127.0.0.1",
        "no_proxy": "localhost,127.0.0.1",
        "REQUESTS_CA_BUNDLE": str(authority),
        "SSL_CERT_FILE": str(authority),
    }


def _write(path: Path, data: object) -> None:
    """In one step: whoever waits for the file reads it as soon as it is there."""
    aside = path.with_name(f".{path.name}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(data, file, indent=1)
    aside.replace(path)


def main() -> int:
    given = options()
    given.dir.mkdir(parents=True, exist_ok=True)
    given.dir.chmod(0o700)
    if given.fresh:
        (given.dir / "state.json").unlink(missing_ok=True)
    authority, certificate, key = certificates.make(given.dir.resolve() / "tls", [*given.name, *server.NAMES])
    app = App(State(given.dir, given.machines))
    servers = server.start(app, (given.address, given.port), (certificate, key))
    web, proxy, metadata = [f"{one.server_address[1]}" for one in servers]
    said: dict[str, t.Any] = {
        "url": f"https://localhost:{web}",
        "ca": str(authority),
        "tenant": TENANT,
        "subscription": SUBSCRIPTION,
    }
    said.update({"pid": os.getpid(), "client": CLIENT, "proxy": f"http://127.0.0.1:{proxy}"})
    said["metadata"] = f"http://127.0.0.1:{metadata}"
    variables = environment(said["url"], authority, said["proxy"], said["metadata"])
    app.state.surroundings = {**variables, "metadata": said["metadata"]}
    _write(given.dir / "environment.json", variables)
    _write(given.dir / "azure.json", said)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *dummy: stop.set())
    stop.wait()
    with app.state.lock:
        app.state.save()
    return 0
