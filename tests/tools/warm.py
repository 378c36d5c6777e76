# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An interpreter for ``ansible_python_interpreter`` that has imported already what modules import.

Starting Python and importing is nine tenths of what most modules cost. Here one process imports once: Ansible's own
files for all modules, and what is asked for, such as Azure's SDKs. What Ansible sends is run as it is, by a fork of
that process, with the arguments, environment, directory, umask and open files of who called (lab_python.py, which does
the same on the lab's nodes, takes them over). The module and everything of a collection come out of what was sent, and
a file of Ansible's that was not sent is not found.

``Warm(python, modules).interpreter`` is the program to name. The process ends with who started it. ``Forking`` is what
such a process has in common with that of other programs (emulated_machine.py).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import typing as t
from pathlib import Path

import lab_python

# What is there before any module is, by any of them: Ansible's, and the standard library's.
COMMON = """ansible.module_utils.basic ansible.module_utils._internal._ansiballz._loader ansible.module_utils.urls
concurrent.futures dataclasses decimal difflib fractions grp gzip hmac http.client ipaddress pwd queue runpy secrets
shutil statistics uuid xml.etree.ElementTree zipfile""".split()
# What every module of azure.azcollection imports, for seconds.
SDKS = [
    f"ansible_collections.azure.azcollection.plugins.modules.azure_rm_{name}"
    for name in ("resourcegroup", "storageaccount", "virtualmachine")
]
# Who calls is in Perl, as to start Python and to import what speaks with a socket cost more than most calls do. See
# lab_python, of the lab's nodes.
CLIENT = r"""#!/usr/bin/perl
use strict;
if ({forks}) {{
    my ($server, $said);
    # AF_UNIX and SOCK_STREAM
    if (socket($server, 1, 1, 0) && connect($server, pack("Sa*", 1, '{socket}'))) {{
        (sysread($server, $said, 4) || 0) == 4 or die "the process that was forked ended without a status\n";
        my $status = unpack("L", $said);
        exit($status) if $status < {itself};
    }} else {{
        {lost}
    }}
}}
{otherwise}
"""
# What Ansible sends is a file of this name, or standard input; the rest is a version, or a probe.
SENT = r"!@ARGV || $ARGV[0] =~ m{(?:^|/)AnsiballZ_[^/]*\z}"
LAB = Path(__file__).parents[2] / "lab/roles/lab/files"
# What a fork does: from the path that was called and the arguments to an exit status.
Perform = t.Callable[[str, t.List[str]], int]
ITSELF = 256  # what is told who has to be Python itself: where nobody may take over another process's files


class Forking:
    """A process that forks for whoever calls, from its start to its end."""

    def __init__(self, *argv: str | Path, **environment: str) -> None:
        """Start it with the path of its socket as one argument more."""
        self.directory = tempfile.TemporaryDirectory()
        self.socket = f"{self.directory.name}/socket"
        settings = {**os.environ, **environment}
        settings["PYTHONPATH"] = os.pathsep.join(filter(None, [str(LAB), settings.get("PYTHONPATH")]))
        words = [*map(str, argv), self.socket]
        self.process = subprocess.Popen(words, env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout and self.process.stdout.readline() == b"ready\n", "it does not start"

    def client(self, path: Path, forks: str, otherwise: str, lost: str = "") -> Path:
        """Write a program that is run by a fork, if a condition of Perl says so, and else does something itself.

        ``lost`` is what it does before that where it should be forked and nobody answers.
        """
        words = {"forks": forks, "socket": self.socket, "itself": ITSELF, "otherwise": otherwise, "lost": lost}
        path.write_text(CLIENT.format(**words))
        path.chmod(0o755)
        return path

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()
        self.directory.cleanup()


class Warm(Forking):
    """One for modules that Ansible sends."""

    def __init__(self, python: Path, modules: t.Sequence[str] = (), **environment: str) -> None:
        """Start it with a Python that has Ansible, and import what is asked for besides."""
        super().__init__(python, __file__, *COMMON, *modules, **environment)
        itself = f"exec('{python}', @ARGV) or die \"no Python: $!\\n\";"
        lost = r'die "no module is run: $!\n";'
        self.interpreter = self.client(Path(self.directory.name, "python"), SENT, itself, lost)


class Sent:
    """Where the files of a package of Ansible's are: in what was sent, which stands first once it is unpacked."""

    def __init__(self, package: str) -> None:
        self.place = package.replace(".", "/")

    def __iter__(self) -> t.Iterator[str]:
        return iter([f"{sys.path[0]}/{self.place}"])


def _load(modules: t.Sequence[str]) -> None:
    """Import everything, and forget what is sent by itself and where it was found."""
    for name in modules:
        importlib.import_module(name)
    found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [place for place in sys.path if place not in found]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "ansible_collections":
            del sys.modules[name]
        elif name.partition(".")[0] == "ansible" and hasattr(module, "__path__"):
            module.__path__ = Sent(name)  # type: ignore[assignment]


def _end_with(caller: socket.socket) -> None:
    if not caller.recv(1):
        os._exit(1)


def _run(caller: socket.socket, perform: Perform) -> None:
    """Be the program for one caller; whom a caller's end ends, too."""
    pid = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    try:
        called = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1])
        argv = lab_python.become(pid)
    except OSError:
        caller.sendall(struct.pack("=I", ITSELF))
        return
    threading.Thread(target=_end_with, args=(caller,), daemon=True).start()
    status = perform(called, argv)
    with contextlib.suppress(BrokenPipeError):  # of a job that outlived its task
        caller.sendall(struct.pack("=I", status))


def serve(place: str, perform: Perform) -> None:
    """Fork for each caller until standard input ends."""
    import gc

    gc.collect()
    gc.freeze()
    children = 0
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen(64)
        print("ready", flush=True)
        while True:
            readable = select.select([server, sys.stdin], [], [], 1 if children else None)[0]
            while children and os.waitpid(-1, os.WNOHANG)[0]:
                children -= 1
            if sys.stdin in readable:
                break
            if server in readable:
                caller = server.accept()[0]
                if not os.fork():
                    server.close()
                    try:
                        _run(caller, perform)
                    finally:
                        os._exit(1)
                caller.close()
                children += 1
    while children:
        os.wait()
        children -= 1


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))
    _load(sys.argv[1:-1])
    serve(sys.argv[-1], lambda called, argv: lab_python.perform(argv))
