# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An ib_write_bw whose server and client really connect: FAKE_FAULT says what goes wrong, ``log`` above has calls."""

from __future__ import annotations

import os
import pathlib
import socket
import sys
import time

words = sys.argv[1:]
nic, port = words[words.index("-d") + 1], int(words[words.index("-p") + 1])
host = words[-1] if words[-1] in ("localhost", "127.0.0.1") else None
fault = os.environ.get("FAKE_FAULT", "").split(":")
fault = fault[0] if fault[-1] in ("", nic, fault[0]) else ""
with (pathlib.Path(__file__).resolve().parents[1] / "log").open("a") as log:
    log.write(" ".join([str(os.getpid()), "client" if host else "server", *words]) + "\n")
if fault == "no_server" and not host:
    sys.exit("Couldn't allocate MR")
if host:
    try:
        connection = socket.create_connection((host, port), 5)
    except OSError:
        sys.exit(f"Couldn't connect to {host}:{port}\n Unable to init the socket connection")
else:
    listening = socket.create_server(("", port))
    connection = listening.accept()[0]
connection.sendall(b"x")
if connection.recv(1) != b"x":
    sys.exit("ethernet_read_keys: Couldn't read remote address")
if fault == "hang":
    time.sleep(600)
rule, link = "-" * 87, "Ethernet" if fault == "ethernet" else "IB"
print(rule + "\n                    RDMA_Write BW Test")
print(f" Dual-port       : OFF\t\tDevice         : {nic}\n Link type       : {link}\n" + rule)
print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
if fault == "broken" and host:
    sys.exit(" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81")
speed = "20.00" if fault == "slow" else "196.58"
print(" " + words[words.index("-s") + 1] + f"    14650    0.00    {speed}  0.0029\n" + rule)
