# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How soon a training on two hosts takes its first step, by where its PyTorch is and in what form.

The hosts are namespaces of this machine (tests/integration/plain_hosts.py). Their shared directory is a real network
file system: sshfs without ssh, from a server that they reach by TCP. Every round takes all ways in turns, each first on
hosts that have read nothing of it, and then once more. Only ratios mean something elsewhere. See README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from environments import Bench, module

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))

from plain_hosts import NAMES, PlainHosts  # noqa: E402

PORT = 29600
STAGING = ROOT / "roles/training_job/files/staging.py"
IMAGE = "environment.sqsh"
ARCHIVE = "environment.tar"
SFTP = "/usr/lib/openssh/sftp-server"
PROGRAMS = ("sshfs", "squashfuse", "mksquashfs", "unsquashfs", SFTP)
# Not compressed, as role enroot has it for images.
SQUASH = ("-noI", "-noD", "-noF", "-noX", "-no-duplicates", "-no-progress", "-quiet")
SERVER = f"""
import socket, socketserver, subprocess
class One(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        subprocess.run(["{SFTP}"], stdin=self.request.fileno(), stdout=self.request.fileno(), check=False)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
Server(("", {PORT}), One).serve_forever()
"""
TRAINING = """
import gc
import torch
from torch import distributed, nn
distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(32, 8)).pow(2).mean().backward()
optimizer.step()
print("first step", flush=True)
del model, optimizer
gc.collect()  # DDP's reducer holds the process group, and gloo would abort
distributed.barrier()
distributed.destroy_process_group()
"""

# Does what a start on a host needs, and returns the interpreter, with what is to be called in front of it.
Way = t.Callable[[str], t.Sequence[object]]


class Start(t.NamedTuple):
    """Seconds until both hosts have taken the first step, and of processor time until they have ended."""

    seconds: float
    processor: float


class Hosts:
    """Two hosts, each with a scratch of its own and the shared directory, which is mounted when it is asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.plain = directory, PlainHosts(directory / "hosts")
        self.export = directory / "export"
        self.export.mkdir()
        enter = ["nsenter", f"--target={self.plain.inside[NAMES[0]]}", "--net"]
        self.server = subprocess.Popen([*enter, sys.executable, "-c", SERVER])

    def close(self) -> None:
        self.server.kill()
        self.server.wait()
        self.plain.close()

    def path(self, name: str, part: str) -> Path:
        """Return where a host has its scratch, its shared directory, or a mounted image."""
        found = self.directory / name / part
        found.mkdir(parents=True, exist_ok=True)
        return found

    def on(self, name: str, *words: object) -> str:
        argv = [*self.plain.enter(name), *map(str, words)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def everywhere(self, work: t.Callable[[str], object]) -> float:
        """Do it on both hosts at once; return the seconds."""
        begin = time.monotonic()
        with ThreadPoolExecutor() as pool:
            list(pool.map(work, NAMES))
        return time.monotonic() - begin

    def unmount(self, name: str) -> None:
        for part in ("image", "shared"):
            if str(self.path(name, part)) in self.on(name, "cat", "/proc/mounts"):
                self.on(name, "umount", self.path(name, part))

    def forget(self, name: str) -> None:
        """Leave a host nothing that it has read of its scratch or of the shared directory, or that a start staged."""
        self.unmount(name)
        for part in (f"hpcai-staged-{os.geteuid()}", "unpacked"):
            shutil.rmtree(self.path(name, "scratch") / part, ignore_errors=True)
        address = f"{self.plain.address(NAMES[0])}:{self.export}"
        # Over sftp-server sshfs reads no link by itself: "Operation not permitted".
        options = f"directport={PORT},auto_cache,follow_symlinks"
        self.on(name, "sshfs", address, self.path(name, "shared"), "-o", options)
        for path in self.path(name, "scratch").rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def start(self, way: Way) -> Start:
        """Train on both hosts; what serves the shared directory is not in the processor time."""
        script = self.directory / "training.py"
        script.write_text(TRAINING)
        first = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=static"]
        first += [f"--master-addr={self.plain.address(NAMES[0])}", "--master-port=29500"]
        begin, seconds, before = time.monotonic(), [], processor()

        def run(name: str) -> None:
            words = [*way(name), *first, f"--node-rank={NAMES.index(name)}", script]
            argv = [*self.plain.enter(name), "env", "GLOO_SOCKET_IFNAME=eth0", "OMP_NUM_THREADS=1", *map(str, words)]
            with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
                assert process.stdout
                lines = []
                for line in process.stdout:
                    lines.append(line)
                    if "first step" in line:
                        seconds.append(time.monotonic() - begin)
            if process.returncode:
                raise SystemExit(f"the training failed on {name}: {''.join(lines)[-3000:]}")

        self.everywhere(run)
        return Start(max(seconds), processor() - before)


def processor() -> float:
    """Return the processor time of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ways(hosts: Hosts, forms: t.Sequence[str]) -> dict[str, Way]:
    """Return the ways by name; a form is an environment's directory on the shared directory and on each scratch."""

    def plain(part: str, form: str) -> Way:
        return lambda name: [hosts.path(name, part) / form / "bin/python"]

    def mounted(part: str) -> Way:
        def way(name: str) -> t.Sequence[object]:
            image = hosts.path(name, "image")
            if str(image) not in hosts.on(name, "cat", "/proc/mounts"):
                hosts.on(name, "squashfuse", hosts.path(name, part) / IMAGE, image)
            return [image / "bin/python"]

        return way

    def staged(name: str) -> t.Sequence[object]:
        """Start as the roles training_job and ddp_launch do; the first start on a host copies."""
        python = hosts.path(name, "shared") / "venv/bin/python"
        request = {"scratch": str(hosts.path(name, "scratch")), "python": str(python)}
        return ["env", f"HPCAI_STAGE={json.dumps(request)}", python, STAGING, python]

    def unpacked(name: str) -> t.Sequence[object]:
        directory = hosts.path(name, "scratch") / "unpacked"
        hosts.on(
            name,
            "unsquashfs",
            "-force",
            "-no-progress",
            "-quiet",
            "-dest",
            directory,
            hosts.path(name, "shared") / IMAGE,
        )
        return [directory / "bin/python"]

    found = {f"{form}, {part}": plain(part, form) for form in forms for part in ("scratch", "shared")}
    return {
        **found,
        "venv, staged by its first start": staged,
        "image, scratch": mounted("scratch"),
        "image, shared": mounted("shared"),
        "image, unpacked by each start": unpacked,
    }


def fill(hosts: Hosts, conda: str) -> list[str]:
    """Put the environments and the image on the shared directory and the scratches; return the environments' forms."""
    with tempfile.TemporaryDirectory(prefix="environments-", dir=hosts.directory) as folder:
        bench = Bench(Path(folder), "cpu", "/usr/bin/python3", None)
        built = Path(folder) / "built"
        made = module("python_environment", path=str(built), folders=bench.folders, archive=True, **bench.given)
        shutil.copytree(made["environment"]["path"], hosts.export / "venv", symlinks=True)
    forms = ["venv"]
    if conda:
        shutil.copytree(conda, hosts.export / "conda", symlinks=True)
        forms.append("conda")
    else:
        print("conda: left out, as --conda names no environment with PyTorch")
    hosts.on(NAMES[0], "mksquashfs", hosts.export / "venv", hosts.export / IMAGE, *SQUASH, "-e", ARCHIVE)
    for name in NAMES:
        for form in forms:
            directory, left_out = hosts.path(name, "scratch") / form, shutil.ignore_patterns(ARCHIVE)
            shutil.copytree(hosts.export / form, directory, symlinks=True, ignore=left_out)
    hosts.everywhere(hosts.forget)

    def stage(name: str) -> None:
        hosts.on(name, "cp", hosts.path(name, "shared") / IMAGE, hosts.path(name, "scratch"))

    size = (hosts.export / IMAGE).stat().st_size / 1e6
    print(f"image of {size:.0f} MB staged to both scratches in {hosts.everywhere(stage):.1f} s", flush=True)
    return forms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", help="a directory on the file system to measure")
    parser.add_argument("--conda", default="", help="directory of a conda environment with PyTorch for CPUs")
    parser.add_argument("--without", action="append", default=[], help="a way to leave out, by its name in the table")
    asked = parser.parse_args()
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        sys.exit(f"missing: {', '.join(missing)} (Debian: sshfs, squashfuse, squashfs-tools, openssh-sftp-server)")
    found: dict[str, list[tuple[Start, Start]]] = {}
    signal.signal(signal.SIGTERM, lambda dummy, frame: sys.exit(1))  # and the hosts go with it
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="first-step-", dir=asked.dir))
        hosts = stack.enter_context(contextlib.closing(Hosts(Path(folder))))
        every = {name: way for name, way in ways(hosts, fill(hosts, asked.conda)).items() if name not in asked.without}
        for number in range(asked.rounds):
            for name in (*list(every)[number % len(every) :], *list(every)[: number % len(every)]):
                hosts.everywhere(hosts.forget)
                found.setdefault(name, []).append((hosts.start(every[name]), hosts.start(every[name])))
                values = [value for one in found[name][-1] for value in one]
                print("  {}: {:.1f} s (processor {:.1f} s), {:.1f} s ({:.1f} s)".format(name, *values), flush=True)
        hosts.everywhere(hosts.unmount)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores; ratios are medians of {asked.rounds} rounds' own")
    print(
        f"{'':<34}{'first start':>12}{'second':>10}{'/ venv, scratch':>18}{'second':>10}{'processor':>12}{'second':>10}"
    )
    for name, samples in found.items():
        cells = []
        for kind, width in ((seconds, (12, 10)), (ratio_to(found["venv, scratch"]), (18, 10)), (spent, (12, 10))):
            values = [kind(samples, part) for part in (0, 1)]
            cells += [f"{value:>{columns}.2f}" for value, columns in zip(values, width)]
        print(f"{name:<34}{''.join(cells)}")


Samples = t.Sequence[t.Tuple[Start, Start]]


def seconds(samples: Samples, part: int) -> float:
    return statistics.median(one[part].seconds for one in samples)


def spent(samples: Samples, part: int) -> float:
    return statistics.median(one[part].processor for one in samples)


def ratio_to(others: Samples) -> t.Callable[[Samples, int], float]:
    return lambda samples, part: statistics.median(
        one[part].seconds / other[part].seconds for one, other in zip(samples, others)
    )


if __name__ == "__main__":
    main()
