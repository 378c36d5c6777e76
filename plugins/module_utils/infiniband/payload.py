# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that infiniband_bandwidth runs on the nodes. Standard library only; it imports nothing of the collection,
since its text is sent as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import typing as t

# The ports of this node.


Json = t.Dict[str, t.Any]


def read(*parts: str) -> str:
    try:
        with open(os.path.join(*parts), errors="replace") as file:  # noqa: PTH118, PTH123
            return file.read().strip()
    except OSError:
        return ""


def natural(name: str) -> list[tuple[int, str]]:
    """Sort mlx5_ib10 after mlx5_ib2."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"([0-9]{1,9})", name)]


def listed(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path), key=natural)  # noqa: PTH208
    except OSError:
        return []


def port_state(sysfs: str, nic: str) -> Json:
    """Return link layer, state, NUMA node and CPUs of a port (``device`` or ``device:port``)."""
    device, dummy, number = nic.partition(":")
    base = f"{sysfs}/class/infiniband/{device}"
    port, node = f"{base}/ports/{number or 1}", read(base, "device/numa_node")
    cpus = read(f"{sysfs}/devices/system/node/node{node}/cpulist") if node.isdigit() else ""
    state = read(port, "state").partition(": ")[2].capitalize()
    return {"link_layer": read(port, "link_layer"), "state": state, "numa_node": node, "cpus": cpus}


def plan(task: Json) -> list[str]:
    """Return the ports to measure: the requested ones, else all of the link layer that are up."""
    if task["devices"]:
        return list(task["devices"])
    base = f"{task['sysfs']}/class/infiniband"
    devices = {device: listed(f"{base}/{device}/ports") for device in listed(base)}
    names = [d if len(ports) == 1 else f"{d}:{port}" for d, ports in devices.items() for port in ports]
    states = [(name, port_state(task["sysfs"], name)) for name in names]
    return [n for n, at in states if at["state"] == "Active" and at["link_layer"] == task["link_layer"]]


def numbers(cpus: str) -> set[int]:
    """Return the numbers of a CPU list as Linux writes it."""
    cpu_numbers: set[int] = set()
    for piece in filter(None, cpus.split(",")):
        first, dummy, last = piece.partition("-")
        cpu_numbers.update(range(int(first), int(last or first) + 1))
    return cpu_numbers


# Servers and clients of perftest, and the reports about them.


MARK = "HPCAI_INFINIBAND "
# perftest gives up at once when nobody listens: the server is not ready yet.
NOT_READY = "Couldn't connect to"
LONGEST = 6000
# Seconds by which one node may be behind the other.
PATIENCE = 5


def first_host(hostlist: str) -> str:
    """Return the first name of a Slurm host list."""
    first = re.split(r",(?![^\[]*\])", hostlist)[0]
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first)


def arguments(task: Json, nic: str, port: int, host: str = "") -> list[str]:
    """Return the command line of the server, or with a host of the client."""
    device, dummy, number = nic.partition(":")
    gpu = task["gpus"].get(nic)
    cuda = [] if gpu is None else [f"--use_cuda={gpu}"]
    options = ["-d", device, "-i", number or "1", "-p", str(port), *task["options"], *cuda]
    return [task["program"], *options, *([host] if host else [])]


def shorten(text: str) -> str:
    """Keep both ends of a long text: the error about a wrong option comes first, pages of help follow."""
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]}\n...\n{text[-half:]}"


class PayloadProcess:
    """A program on the CPUs of a NUMA node; its memory is allocated there too, since it touches it first."""

    def __init__(self, argv: t.Sequence[str], cpus: str) -> None:
        self.argv, self.begin = list(argv), time.monotonic()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, numbers(cpus) & before or before)
        try:
            self.child = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT
            )
        finally:
            os.sched_setaffinity(0, before)

    def wait(self, limit: float) -> Json:
        """Wait for the end, kill it after the limit or when the parent is gone, and return its output and status."""
        parent, deadline = os.getppid(), time.monotonic() + limit
        while self.child.poll() is None and time.monotonic() < deadline and os.getppid() == parent:
            time.sleep(0.05)
        rc = self.child.poll()
        if rc is None:
            self.child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(2)
            self.child.kill()
        self.log.seek(0)
        text = self.log.read().decode(errors="replace")
        seconds = round(time.monotonic() - self.begin, 3)
        return {"argv": self.argv, "rc": rc, "out": shorten(text), "seconds": seconds}


def refusal(task: Json, nic: str, at: Json) -> Json:
    """Return why a port is not measured: it is missing, has another link layer, or the program is not installed."""
    if not at["link_layer"]:
        return {"problem": f"{nic} is not there"}
    if at["link_layer"] != task["link_layer"]:
        return {"problem": f"{nic}: link layer is {at['link_layer']}, not {task['link_layer']}"}
    if shutil.which(task["program"]):
        return {}
    return {"problem": f"{task['program']} is not installed (package perftest)", "missing": task["program"]}


def client(task: Json, nic: str, cpus: str, port: int, host: str, server: PayloadProcess | None = None) -> Json:
    """Start the client again until the server listens, which may still be busy with the port before."""
    deadline = time.monotonic() + task["window"] + task["limit"]
    while True:
        result = PayloadProcess(arguments(task, nic, port, host), cpus).wait(task["limit"])
        again = result["rc"] and NOT_READY in result["out"] and (server is None or server.child.poll() is None)
        if not again or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if result["rc"] != 0 and server is None:
        knock(host, port)
    return result


def knock(host: str, port: int) -> None:
    """Connect and leave, which ends a server without a client; try for some seconds, as it may not listen yet."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection((host, port), 1).close()
            return
        time.sleep(0.1)


def stand_in(port: int, limit: float) -> None:
    """Accept one connection and close it, so that a client without a server fails at once."""
    with contextlib.suppress(OSError), socket.create_server(("", port)) as waiting:
        waiting.settimeout(limit)
        waiting.accept()[0].close()


def report(**fields: t.Any) -> None:
    sys.stdout.write(f"{MARK}{json.dumps({'host': socket.gethostname(), **fields})}\n")
    sys.stdout.flush()


def loopback(task: Json, nics: t.Sequence[str]) -> None:
    """Measure each port against itself, or against the next one of this node."""
    for index, nic in enumerate(nics):
        partner = nics[(index + 1) % len(nics)] if task["partner"] == "next" else nic
        states = {name: port_state(task["sysfs"], name) for name in (nic, partner)}
        refused = next(filter(None, (refusal(task, name, at) for name, at in states.items())), {})
        if refused:
            report(nic=nic, partner=partner, role="client", **refused, **states[nic])
            continue
        with socket.create_server(("", 0)) as probe:
            port = probe.getsockname()[1]  # free now, and perftest takes it at once
        server = PayloadProcess(arguments(task, partner, port), states[partner]["cpus"])
        result = client(task, nic, states[nic]["cpus"], port, "localhost", server)
        report(nic=nic, partner=partner, role="client", **result, **states[nic])
        report(nic=nic, partner=partner, role="server", **server.wait(3), **states[partner])


def between(task: Json, nics: t.Sequence[str], rank: int, host: str) -> None:
    """Be the server or the client of two nodes; a port has the same index on both."""
    for index, nic in enumerate(nics):
        port, at, role = task["port"] + index, port_state(task["sysfs"], nic), "client" if rank else "server"
        refused = refusal(task, nic, at)
        if refused:
            report(nic=nic, role=role, **refused, **at)
            if rank:
                knock(host, port)
            else:
                stand_in(port, task["window"])
        elif rank:
            report(nic=nic, role=role, **client(task, nic, at["cpus"], port, host), **at)
        else:
            server = PayloadProcess(arguments(task, nic, port), at["cpus"])
            report(nic=nic, role=role, **server.wait(task["window"] + task["limit"]), **at)


def main() -> None:
    """Measure, and print one marked line of JSON for what is planned and for each program that ran."""
    task = json.loads(sys.argv[1])
    nics = plan(task)
    rank = int(os.environ.get("SLURM_PROCID", "0")) if task["nodes"] > 1 else None
    if rank != 0:
        report(plan=nics)
    if rank is None:
        loopback(task, nics)
    else:
        nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST") or ""
        between(task, nics, rank, first_host(nodes))


if __name__ == "__main__":
    main()
