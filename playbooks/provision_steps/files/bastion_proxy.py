# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH's ProxyCommand through Azure Bastion: bastion_proxy.py --bastion ID --target ID --port 22.

One `az network bastion tunnel` for each connection, since a tunnel serves one at a time. It listens on a port of this
machine, on which anybody here could answer in its place: SSH has to know the host key of the target, as with the
configuration that provision.yml writes. (`az network bastion ssh` switches this check off.)
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import typing as t

BASTION = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"/providers/Microsoft\.Network/bastionHosts/(?P<name>[^/]+)",
    re.IGNORECASE,
)
SIZE = 65536


class TunnelError(Exception):
    """Why there is no tunnel, and what to do."""


def command(az: str, bastion: str, target: str, port: int, local: int) -> list[str]:
    """Return what opens a tunnel from a port of this machine."""
    found = BASTION.fullmatch(bastion)
    if found is None:
        raise TunnelError(f"{bastion!r} is no resource ID of an Azure Bastion")
    place = ["--subscription", found["subscription"], "--resource-group", found["group"], "--name", found["name"]]
    ends = ["--target-resource-id", target, "--resource-port", str(port), "--port", str(local)]
    return [az, "network", "bastion", "tunnel", *place, *ends]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def tunnel(argv: list[str]) -> t.Iterator[tuple[subprocess.Popen[bytes], t.Callable[[], str]]]:
    """Run az, and end it so that it closes its session at the Bastion."""
    with tempfile.TemporaryFile() as log:
        # Not in the terminal's group: an interrupt is for SSH, and az has to outlive it for a moment.
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )

        def said() -> str:
            log.seek(0)
            return " ".join(log.read()[-1500:].decode(errors="replace").split()) or "it said nothing"

        try:
            yield process, said
        finally:
            for number in (signal.SIGINT, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                    break


def connect(process: subprocess.Popen[bytes], said: t.Callable[[], str], local: int, wait: float) -> socket.socket:
    """Connect as soon as az listens. It serves the first connection and no second, so that there can be no probe."""
    end = time.monotonic() + wait
    while time.monotonic() < end:
        if process.poll() is not None:
            raise TunnelError(f"az ended with {process.returncode}: {said()}")
        try:
            return socket.create_connection(("127.0.0.1", local), timeout=5)
        except OSError:
            time.sleep(0.1)
    raise TunnelError(f"az opened no tunnel in {wait:.0f} s: {said()}")


def relay(connection: socket.socket) -> None:
    """Copy standard input to the connection and back, until either ends; close the connection."""
    connection.settimeout(None)
    with connection, selectors.DefaultSelector() as both:
        both.register(0, selectors.EVENT_READ)
        both.register(connection, selectors.EVENT_READ)
        while True:
            for key, dummy in both.select():
                if key.fileobj is connection:
                    data = connection.recv(SIZE)
                    rest = memoryview(data)
                    while rest:
                        rest = rest[os.write(1, rest) :]
                else:
                    data = os.read(0, SIZE)
                    connection.sendall(data)
                if not data:
                    return


def main() -> int:
    parser = argparse.ArgumentParser(description="SSH's ProxyCommand through Azure Bastion.")
    parser.add_argument("--bastion", required=True, help="resource ID of the Azure Bastion")
    parser.add_argument("--target", required=True, help="resource ID of the virtual machine")
    parser.add_argument("--port", type=int, default=22, help="port of the virtual machine")
    parser.add_argument("--wait", type=float, default=90, help="seconds in which az has to open the tunnel")
    given = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *dummy: sys.exit(1))
    az = shutil.which("az")
    try:
        if az is None:
            raise TunnelError("az is not on the PATH: install the Azure CLI, then 'az extension add --name bastion'")
        local = free_port()
        argv = command(az, given.bastion, given.target, given.port, local)
        with tunnel(argv) as (process, said):
            relay(connect(process, said, local, given.wait))
    except TunnelError as exc:
        sys.stderr.write(f"No tunnel through {given.bastion} to {given.target}: {exc}\n")
        return 1
    except (BrokenPipeError, ConnectionResetError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
