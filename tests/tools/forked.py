# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m MODULE`` from a process that has imported what MODULE imports.

Importing Ansible's and our own files costs a module ten times what it does itself, and Azure's libraries take seconds.
So one process per interpreter imports them (this file, as a program) and forks for each call: the call has a process
of its own, with the working directory, environment, standard input and output that were asked for, and its exit status.
What a module does while Ansible starts it for real is seen by the tests of roles and playbooks.

The same for ansible-playbook, one process per configuration, as Ansible reads that while it is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import typing as t
import warnings
from pathlib import Path

Program = t.Union[str, Path]


class Server:
    """The process that forks, of one interpreter."""

    def __init__(self, python: Program, env: t.Mapping[str, str], cwd: Program) -> None:
        self.ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [str(python), __file__, str(theirs.fileno())],
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def close(self) -> None:
        """End it: it waits for nothing but the next call."""
        self.ours.close()
        self.process.wait()
        atexit.unregister(self.close)

    def call(self, module: str, files: t.Sequence[t.IO[t.Any]], timeout: float, **where: t.Any) -> int:
        """Run a module with three files as standard input, output and error; return its exit status."""
        asked = json.dumps({"module": module, **where}).encode()
        socket.send_fds(self.ours, [len(asked).to_bytes(4, "big")], [file.fileno() for file in files])
        self.ours.sendall(asked)
        child = int.from_bytes(self._read(4), "big")
        self.ours.settimeout(timeout)
        try:
            return int.from_bytes(self._read(4), "big", signed=True)
        except TimeoutError:
            os.kill(child, 9)
            self.ours.settimeout(None)
            self._read(4)
            raise
        finally:
            self.ours.settimeout(None)

    def _read(self, size: int) -> bytes:
        data = self.ours.recv(size, socket.MSG_WAITALL)
        assert len(data) == size, f"{self.process.args} has ended: {self.process.wait()}"
        return data


MOST = 4  # each of them takes the memory of one ansible-playbook
servers: dict[t.Hashable, Server] = {}


def run_module(
    module: str,
    *arguments: Program,
    input: str = "",  # as subprocess.run calls it
    env: t.Mapping[str, str],
    cwd: Program = ".",
    timeout: float,
    python: Program = sys.executable,
    prepare: str = "",
) -> subprocess.CompletedProcess[str]:
    """Return what ``subprocess.run([python, "-m", module, *arguments], ...)`` would.

    ``prepare`` is Python that the process runs first.
    """
    of_ansible = module.startswith("ansible.")  # which reads its settings while it is imported
    counts = ("ANSIBLE_", "HOME", "PYTHON") if of_ansible else ("ANSIBLE_", "PYTHON")
    settings = {name: value for name, value in env.items() if name.startswith(counts)}
    looks_here = of_ansible and "ANSIBLE_CONFIG" not in env
    key = (str(python), str(cwd) if looks_here else "", *sorted(settings.items()))
    server = servers.pop(key, None) or Server(python, env, cwd)
    servers[key] = server
    if len(servers) > MOST:
        servers.pop(next(iter(servers))).close()  # the one that was not needed for the longest time
    pipe = functools.partial(tempfile.TemporaryFile, "w+")
    with pipe() as given, pipe() as out, pipe() as err:
        given.write(input)
        given.seek(0)
        argv = [str(word) for word in arguments]
        try:
            where = {"env": dict(env), "cwd": str(cwd), "argv": argv, "prepare": prepare}
            status = server.call(module, (given, out, err), timeout, **where)
        except TimeoutError:
            out.seek(0)
            raise subprocess.TimeoutExpired([module, *argv], timeout, out.read()) from None
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([str(python), "-m", module, *argv], status, out.read(), err.read())


def prepare_ansible() -> None:
    """Load what ansible-playbook loads before its first task."""
    from ansible import constants
    from ansible.plugins import loader
    from ansible.utils.collection_loader import _collection_finder

    # A thousand looks a second at its workers, as it has it from itself, are a tenth of a processor.
    constants.DEFAULT_INTERNAL_POLL_INTERVAL = 0.01
    loader.init_plugin_loader()
    warnings.filterwarnings("ignore", "AnsibleCollectionFinder has already been configured")
    _collection_finder._get_collection_metadata("ansible.builtin")
    # What it looks through at its start.
    for kind in ("connection", "shell", "become", "callback"):
        list(getattr(loader, f"{kind}_loader").all(class_only=True))
    with contextlib.suppress(ImportError):
        importlib.import_module("ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preload").preload()


def become(
    module: str, files: t.Sequence[int], env: dict[str, str], cwd: str, argv: list[str], prepare: str
) -> t.NoReturn:
    """Be the process that was asked for, up to its end."""
    status = 1
    atexit._clear()  # what was said before is for the process that forks
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, max(files) + 1)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = [module, *argv]
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        exec(prepare, {})
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else bool(end.code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve(asker: socket.socket) -> None:
    known = set()
    while True:
        size, files, dummy, dummy = socket.recv_fds(asker, 4, 3)
        if not size:
            return
        asked = json.loads(asker.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        if asked["module"] not in known:
            known.add(asked["module"])
            importlib.import_module(asked["module"])
            del sys.modules[asked["module"]]  # it will be __main__
            if asked["module"].startswith("ansible.cli."):
                prepare_ansible()
        child = os.fork()
        if not child:
            become(files=files, **asked)
        for file in files:
            os.close(file)
        asker.sendall(child.to_bytes(4, "big"))
        ended = os.waitpid(child, 0)[1]
        asker.sendall(os.waitstatus_to_exitcode(ended).to_bytes(4, "big", signed=True))


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))
    with socket.socket(fileno=int(sys.argv[1])) as asker:
        serve(asker)
