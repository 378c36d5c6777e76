# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An az network bastion tunnel, as azure-cli-extensions has it: one client at a time, ended by SIGINT.

``az.log`` above it has its sessions, ``az.target`` the port behind the Bastion.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import threading
from pathlib import Path

place = Path(__file__).resolve().parents[1]


def note(line):
    with (place / "az.log").open("a") as log:
        log.write(line + "\n")


def end(*dummy):
    note("session closed")
    sys.exit(0)


words = sys.argv[1:]
if words[:3] != ["network", "bastion", "tunnel"]:
    sys.exit("az: no such command")
parser = argparse.ArgumentParser(allow_abbrev=False)
for name in ("subscription", "resource-group", "name", "target-resource-id", "resource-port", "port"):
    parser.add_argument("--" + name, required=True)
given = parser.parse_args(words[3:])
if given.name != "hub":
    sys.exit("ERROR: (ResourceNotFound) The Resource 'bastionHosts/" + given.name + "' was not found.")
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(("127.0.0.1", int(given.port)))
signal.signal(signal.SIGINT, end)
sys.stderr.write("Opening tunnel on port: " + given.port + "\n")
listening.listen(100)
note(f"{given.subscription} {given.target_resource_id} {given.resource_port}")
client = listening.accept()[0]
target = socket.create_connection(("127.0.0.1", int((place / "az.target").read_text())))


def copy(source, sink):
    while data := source.recv(4096):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)


threading.Thread(target=copy, args=(target, client), daemon=True).start()
copy(client, target)
while True:
    signal.pause()
