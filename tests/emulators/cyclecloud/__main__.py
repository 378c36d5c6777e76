# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulator on a plain host: python3 tests/emulators/cyclecloud --dir D [--port N] -> D/cyclecloud.json."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import typing as t
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cyclecloud_emulator import server, tls

USER, PASSWORD = "admin", "Emulated-1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--name", action="append", default=[], help="more names or addresses for the certificate")
    parser.add_argument("--speed", type=float, help="virtual seconds per second")
    parser.add_argument("--version", default="8.9.3-3500")
    options = parser.parse_args()
    folder = options.dir.resolve()
    home = server.Home(folder / "home", options.version, options.speed)
    if not home.store.find("AuthenticatedUser", Name=USER):
        admin = {"AdType": "AuthenticatedUser", "Name": USER, "Superuser": True}
        home.store.set_password(admin, PASSWORD)
        home.store.put(admin)
    keys = folder / "home/config/keystore"
    keys.mkdir(exist_ok=True)
    ca = folder / "ca.pem"
    tls.certificate(keys, ["localhost", "127.0.0.1", *options.name], ca)
    one = server.Server((options.address, options.port), home)
    one.context = tls.context(keys)
    home.store.save()
    port = one.server_address[1]
    about = {"url": f"https://localhost:{port}", "ca": str(ca), "user": USER, "password": PASSWORD, "pid": os.getpid()}
    fresh = folder / "cyclecloud.json.new"
    fresh.write_text(json.dumps(about))
    fresh.chmod(0o600)
    fresh.replace(folder / "cyclecloud.json")

    def stop(*dummy: t.Any) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    threading.Thread(target=one.serve_forever, daemon=True).start()
    home.watch()


main()
