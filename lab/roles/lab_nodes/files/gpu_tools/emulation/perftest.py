# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ib_write_bw, ib_read_bw and ib_send_bw of perftest: a server and a client that really connect over TCP."""

from __future__ import annotations

import json
import socket
import sys
import time
import typing as t

from emulation.machine import Json, Machine

PORT = 18515
RULE = "-" * 87
EFFICIENCY = 0.983
# Options that take a value, by their short names.
VALUED = {
    **dict.fromkeys(
        "--use_cuda --use_cuda_bus_id --out_json_file --bw_threads --output --cqe_poll --CPU-freq".split(),
        "",
    ),
    "--ib-dev": "-d",
    "--ib-port": "-i",
    "--port": "-p",
    "--size": "-s",
    "--iters": "-n",
    "--duration": "-D",
    "--qp": "-q",
    "--gid-index": "-x",
    "--mtu": "-m",
    "--tx-depth": "-t",
    "--post_list": "-l",
    "--qp-timeout": "-u",
    "--sl": "-S",
    "--inline_size": "-I",
    "--cq-mod": "-Q",
    "--connection": "-c",
    "--margin": "-f",
    "--post": "-g",
    "--rx-depth": "-r",
    "--outs": "-o",
    "--tos": "-T",
    "--limit_bw": "-w",
    "--limit_msgrate": "-y",
}
SHORT = {short for short in VALUED.values() if short}
WORDS = {"ib_write_bw": "RDMA_Write", "ib_read_bw": "RDMA_Read", "ib_send_bw": "Send"}


class Failed(Exception):
    """The test ends; the text goes to standard error."""


def main(machine: Machine, name: str, arguments: t.Sequence[str]) -> int:
    options, peers = _parse(list(arguments))
    try:
        nic = _device(machine, options.get("-d", ""))
        mine = {"device": nic["name"], "gbps": _speed(machine, nic, options)}
        size = 65536 if "-s" not in options else int(options["-s"])
        other = (
            _connect(peers[0], int(options.get("-p", PORT)), mine)
            if peers
            else _serve(int(options.get("-p", PORT)), mine)
        )
    except Failed as exc:
        print(exc, file=sys.stderr)
        return 1
    time.sleep(machine["seconds"])
    _print(name, options, nic, size, min(mine["gbps"], other["gbps"]), bool(peers))
    return 0


def _parse(words: list[str]) -> tuple[dict[str, str], list[str]]:
    found: dict[str, str] = {}
    peers: list[str] = []
    while words:
        word, equals, value = words.pop(0).partition("=")
        key = VALUED.get(word) or word
        if not word.startswith("-"):
            peers.append(word)
        elif word in VALUED or word in SHORT:
            found[key] = value if equals else words.pop(0) if words else ""
        elif word[:2] in SHORT and not word.startswith("--"):
            found[word[:2]] = word[2:]
        else:
            found[key] = ""
    return found, peers


def _device(machine: Machine, wanted: str) -> Json:
    ports = [
        nic for nic in machine["nics"] if nic["name"] == wanted or (not wanted and nic["link_layer"] == "InfiniBand")
    ]
    if not ports:
        raise Failed(f" IB device {wanted} not found\n Unable to find the Infiniband/RoCE device")
    if machine.listed("ib_down", ports[0]["name"]):
        raise Failed(" Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device")
    return dict(ports[0])


def _speed(machine: Machine, nic: Json, options: dict[str, str]) -> float:
    """What the adapter carries; copies of a slow GPU hold it back when they start there."""
    share = float(machine.fault("ib_slow", nic["name"], 1.0)) * machine.jitter("ib", nic["name"], spread=0.002)
    both = 1.9 if "-b" in options else 1.0
    return float(nic["rate"] * EFFICIENCY * share * both)


def _serve(port: int, mine: Json) -> Json:
    """Wait for one client."""
    print(
        "\n************************************\n* Waiting for client to connect... *",
        "************************************",
        sep="\n",
        flush=True,
    )
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            server.bind(("::", port))
        except OSError as exc:
            raise Failed(f"Couldn't listen to port {port}\n Unable to init the socket connection") from exc
        server.listen(1)
        connection = server.accept()[0]
    return _exchange(connection, mine)


def _connect(host: str, port: int, mine: Json) -> Json:
    try:
        return _exchange(socket.create_connection((host, port), 5), mine)
    except OSError as exc:
        raise Failed(
            f"Couldn't connect to {host}:{port}\nUnable to open file descriptor for socket connection"
            "\n Unable to init the socket connection"
        ) from exc


def _exchange(connection: socket.socket, mine: Json) -> Json:
    with connection, connection.makefile("rw", encoding="utf-8") as stream:
        stream.write(json.dumps(mine) + "\n")
        stream.flush()
        line = stream.readline()
    if not line:
        raise Failed(
            " Failed to exchange data between server and clients\n Failed to close connection between server and client"
        )
    return dict(json.loads(line))


def _print(name: str, options: dict[str, str], nic: Json, size: int, gbps: float, client: bool) -> None:
    bits = "--report_gbits" in options
    unit = "Gb/sec" if bits else "MiB/sec"
    sizes = [1 << power for power in range(1, 24)] if {"-a", "--all"} & set(options) else [size]
    both = "Bidirectional " if "-b" in options else ""
    print(RULE)
    print(f"                    {WORDS[name]} {both}BW Test")
    print(f" Dual-port       : OFF\t\tDevice         : {nic['name']}")
    print(f" Number of qps   : {options.get('-q', 1)}\t\tTransport type : IB")
    print(" Connection type : RC\t\tUsing SRQ      : OFF\n PCIe relax order: ON\t\tLock-free      : OFF")
    print(" ibv_wr* API     : ON\t\tUsing Enhanced Reorder      : OFF")
    if client:
        print(" TX depth        : 128")
    print(f" CQ Moderation   : 1\n CQE Poll Batch  : 16\n Mtu             : 4096[B]\n Link type       : {_link(nic)}")
    print(" Max inline data : 0[B]\n rdma_cm QPs\t : OFF\n Data ex. method : Ethernet")
    print(RULE)
    print(" local address: LID 0x01 QPN 0x0040 PSN 0x7d2f5a RKey 0x1fff00 VAddr 0x007f6c0a000000")
    print(" remote address: LID 0x02 QPN 0x0041 PSN 0x11b2c3 RKey 0x1fff01 VAddr 0x007f6c0b000000")
    print(f"{RULE}\n #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]")
    if "-F" not in options and client:
        print("Conflicting CPU frequency values detected: 2445.000000 != 3240.000000. CPU Frequency is not max.")
    for each in sizes:
        speed = gbps * each / (each + 1000)
        rate = speed / each / 8 * 1000
        shown = speed if bits else speed / 0.008388608
        # Measured by time there is no peak.
        peak, count = (0.0, int(rate * 1e6)) if "-D" in options else (shown * 1.002, int(options.get("-n") or 5000))
        decimals = 6 if bits and speed < 0.1 else 2
        print(
            f" {each:<7}    {count:<10}       {peak:<7.{decimals}f}            {shown:<7.{decimals}f}"
            f"\t\t     {rate:<7.6f}"
        )
    print(RULE)


def _link(nic: Json) -> str:
    return "IB" if nic["link_layer"] == "InfiniBand" else "Ethernet"
