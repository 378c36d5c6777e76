# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An interpreter for ``ansible_python_interpreter`` that has imported already what modules import.

Starting Python and importing is nine tenths of what most modules cost. Here one process imports once: Ansible's own
files for all modules, and what is asked for, such as Azure's SDKs. What Ansible sends is run as it is, by a fork of
that process, with the arguments, environment, directory, umask and open files of who called. The module and everything
of a collection come out of what was sent, and a file of Ansible's that was not sent is not found.

``Warm(python, modules).interpreter`` is the program to name. The process ends with who started it.
"""

from __future__ import annotations

import array
import contextlib
import importlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import types
import typing as t
from pathlib import Path

# What is there before any module is, by any of them: Ansible's, and the standard library's.
COMMON = """ansible.module_utils.basic ansible.module_utils._internal._ansiballz._loader ansible.module_utils.urls
concurrent.futures dataclasses decimal difflib fractions grp gzip hmac http.client ipaddress pwd queue runpy secrets
shutil statistics uuid xml.etree.ElementTree zipfile""".split()
# What every module of azure.azcollection imports, for seconds.
SDKS = [
    f"ansible_collections.azure.azcollection.plugins.modules.azure_rm_{name}"
    for name in ("resourcegroup", "storageaccount", "virtualmachine")
]
# What Ansible sends is a file of this name, or standard input.
CLIENT = """#!{python} -IS
import array, json, os, socket, sys
if len(sys.argv) > 1 and not os.path.basename(sys.argv[1]).startswith("AnsiballZ_"):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]]) # a version, a probe
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

    def __init__(self, python: Path, modules: t.Sequence[str] = (), **environment: str) -> None:
        """Start it with a Python that has Ansible, and import what is asked for besides."""
        self.directory = tempfile.TemporaryDirectory()
        place = f"{self.directory.name}/socket"
        argv = [str(python), __file__, place, *COMMON, *modules]
        self.process = subprocess.Popen(
            argv, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout and self.process.stdout.readline() == b"ready\n", "it does not start"
        self.interpreter = Path(self.directory.name, "python")
        self.interpreter.write_text(CLIENT.format(python=str(python), socket=place))
        self.interpreter.chmod(0o755)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()
        self.directory.cleanup()


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
    import threading
    import traceback

    argv, environment, directory, umask = _receive(caller)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    os.umask(umask)
    threading.Thread(target=_end_with, args=(caller,), daemon=True).start()
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv, sys.path[0], status = argv or [""], "", 0
    source = Path("/dev/stdin")
    if argv:
        source = Path(argv[0])
        main.__file__, sys.path[0] = argv[0], str(source.parent)
    try:
        exec(compile(source.read_bytes(), str(source), "exec"), main.__dict__)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(BrokenPipeError):  # of a job that outlived its task
        caller.sendall(b"%d" % status)


def serve(place: str, modules: t.Sequence[str]) -> None:
    import gc

    _load(modules)
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
    sys.path.remove(str(Path(__file__).parent))
    serve(sys.argv[1], sys.argv[2:])
