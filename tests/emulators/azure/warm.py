# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An interpreter that has Azure's SDKs already, for ``ansible_python_interpreter``: only the standard library.

Each module of azure.azcollection imports all SDKs, which is most of what it does. Here one process imports them once.
What Ansible sends is run as it is, by a fork of that process, with the arguments, environment, directory, umask and
open files of who called: Ansible and the collection themselves come out of what was sent, as always.

``Warm(python, collections).interpreter`` is the program to name. The process ends with who started it.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

PACKAGE = "ansible_collections.azure.azcollection.plugins.modules.azure_rm_"
# What is no file of Ansible's is for the interpreter itself: a version, a probe.
CLIENT = """#!{python} -IS
import array, json, os, socket, sys
if len(sys.argv) < 2 or not os.path.basename(sys.argv[1]).startswith("AnsiballZ_"):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
os.umask(umask := os.umask(0o77))
call = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), umask]).encode()
with socket.socket(socket.AF_UNIX) as server:
    server.connect({socket!r})
    server.sendmsg([b"%12d" % len(call)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    server.sendall(call)
    said = server.recv(16)
sys.exit(int(said) if said else "the module's process ended without a status")
"""


class Warm:
    """The process, from its start to its end."""

    def __init__(self, python: Path, collections: Path) -> None:
        """Start it with the Python of the Azure environment, and the directory that has ansible_collections in it."""
        self.directory = tempfile.TemporaryDirectory()
        place = f"{self.directory.name}/socket"
        environment = {**os.environ, "PYTHONPATH": str(collections)}
        argv = [str(python), __file__, place]
        self.process = subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout and self.process.stdout.readline() == b"ready\n", "it does not start"
        self.interpreter = Path(self.directory.name, "python")
        self.interpreter.write_text(CLIENT.format(python=str(python), socket=place))
        self.interpreter.chmod(0o755)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()
        self.directory.cleanup()


def _load(collections: str) -> None:
    """Import what the modules import, and forget what Ansible sends by itself."""
    import importlib

    for name in ("resourcegroup", "storageaccount", "virtualmachine"):
        importlib.import_module(PACKAGE + name)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("ansible", "ansible_collections")]:
        del sys.modules[name]
    sys.path.remove(collections)


def _receive(caller: socket.socket) -> tuple[list[str], dict[str, str], str, int]:
    files = array.array("i")
    begin, control, dummy, dummy = caller.recvmsg(12, socket.CMSG_SPACE(3 * files.itemsize))
    files.frombytes(control[0][2])
    for goal, file in enumerate(files):
        os.dup2(file, goal)
        os.close(file)
    text = b""
    while len(text) < int(begin):
        text += caller.recv(1 << 16)
    return t.cast("tuple[list[str], dict[str, str], str, int]", json.loads(text))


def _end_with(caller: socket.socket) -> None:
    if not caller.recv(1):
        os._exit(1)


def _run(caller: socket.socket) -> None:
    """Be the interpreter for one caller; whom a caller's end ends, too."""
    import atexit
    import runpy
    import threading
    import traceback

    argv, environment, directory, umask = _receive(caller)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    os.umask(umask)
    threading.Thread(target=_end_with, args=(caller,), daemon=True).start()
    sys.argv, sys.path[0], status = argv, str(Path(argv[0]).parent), 0
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    caller.sendall(b"%d" % status)


def main(place: str) -> None:
    import gc

    _load(os.environ["PYTHONPATH"])
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
                        _run(caller)
                    finally:
                        os._exit(1)
                caller.close()
                children += 1
    while children:
        os.wait()
        children -= 1


if __name__ == "__main__":
    main(sys.argv[1])
