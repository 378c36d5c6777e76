# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run modules that Ansible sends, in forks of one process that has imported what they need of the standard library.

To start Python and to import that is most of what a small module costs, above all where the processor is emulated. What
was sent runs as it is, as a process like the one that called: its arguments, environment, directory, umask, groups,
limits, cgroup and open files are the caller's, and so is its end. What modules import of Ansible and of collections is
imported once, too, for those that are sent the very same files. Nothing of a module is kept: each has a fork of its own
of a process that runs none.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import locale
import os
import resource
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import types
import typing as t
import zipfile
import zipimport
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

NEEDED = """argparse ast atexit base64 bz2 configparser dataclasses datetime decimal difflib encodings.cp437
encodings.idna fcntl fractions functools getpass gettext glob grp gzip hashlib http.client ipaddress json logging lzma
ntpath numbers pathlib pkgutil platform pwd queue random re runpy secrets select selectors shlex shutil statistics
stringprep subprocess syslog tempfile textwrap typing unicodedata urllib.parse uuid zipfile""".split()
PYTHON = "/usr/bin/python3"
# What every module imports of Ansible, and the archive that one of them came in: like bytecode, and root's alone.
COMMON = ("ansible.module_utils.basic", "ansible.module_utils._internal._ansiballz._loader")
ARCHIVE = Path("/var/cache/lab_bytecode/ansible.zip")
# What modules were sent and imported themselves, and in files with that end the names of what they imported of it.
NEW, TOLD = Path("/run/lab_python.new"), ".names"
PACKAGES = ("ansible", "ansible_collections")
UNIFIED = Path("/sys/fs/cgroup/unified")  # version 2 beside version 1
_PIDFD_GETFD = 438  # of all processors
_LIMITS = 16  # RLIM_NLIMITS of all processors
_CHILD = {signal.SIGCHLD}


def installed() -> list[int]:
    """When something was last put where Python finds modules, each directory."""
    return [Path(place).stat().st_mtime_ns for place in sys.path[1:] if Path(place).is_dir()]


def cgroup(line: str) -> Path:
    """Return where a line of /proc/<pid>/cgroup is; a machine with cgroup v1 has a tree for each controller."""
    dummy, controllers, path = line.split(":", 2)
    tree = controllers.rpartition("=")[2] or ("unified" if UNIFIED.is_dir() else "")
    return Path("/sys/fs/cgroup", tree, path.lstrip("/"))


def become(caller: int) -> list[str]:
    """Take over what makes the process of the caller, who waits; return its arguments."""
    handle = os.pidfd_open(caller)
    for number in range(3):
        file = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, handle, number, 0)
        if file < 0:
            raise OSError(ctypes.get_errno(), f"file {number} of process {caller}")
        os.dup2(file, number)
        os.close(file)
    os.close(handle)
    proc = Path(f"/proc/{caller}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    os.umask(int(status["Umask"], 8))
    groups = [int(number) for number in status["Groups"].split()]
    if groups != os.getgroups():
        os.setgroups(groups)
    for limit in range(_LIMITS):
        resource.setrlimit(limit, resource.prlimit(caller, limit))
    own = Path("/proc/self/cgroup").read_text().splitlines()
    for place in (proc / "cgroup").read_text().splitlines():
        if place not in own:
            (cgroup(place) / "cgroup.procs").write_text("0")
    os.chdir(proc / "cwd")
    os.environb.clear()
    for setting in (proc / "environ").read_bytes().split(b"\0")[:-1]:
        name, dummy, value = setting.partition(b"=")
        os.environb[name] = value
    time.tzset()
    _find_language()
    # Perl, the program, and what came after it.
    return [os.fsdecode(word) for word in (proc / "cmdline").read_bytes().split(b"\0")[2:-1]]


def _find_language() -> None:
    """Do as Python does when it starts, which takes UTF-8 where a caller has no language (LC_ALL: lab_python)."""
    try:
        language = locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:
        language = "C"
    if language == "C":
        os.environ["LC_CTYPE"] = locale.setlocale(locale.LC_CTYPE, "C.UTF-8")


def perform(arguments: list[str]) -> int:
    """Run the program that was sent, as Python would; return its exit status."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv, sys.path[0], source = arguments or [""], "", "<stdin>"
    if arguments:
        source = main.__file__ = arguments[0]
        sys.path[0] = str(Path(source).parent)
    status = 0
    try:
        sent = Path(source).read_bytes() if arguments else sys.stdin.buffer.read()
        exec(compile(sent, source, "exec"), main.__dict__)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if end.code is not None and not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        sys.excepthook(*t.cast("tuple[type, BaseException, t.Any]", sys.exc_info()))
        status = 1
    _end(main)
    return status & 255


def _end(main: types.ModuleType) -> None:
    """Do what Python does at its end, but for what this process has of the one that it was forked from."""
    import atexit

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    main.__dict__.clear()
    gc.collect()
    for thing in gc.get_objects():  # what was frozen is not among them
        if isinstance(thing, io.IOBase) and not thing.closed:
            with contextlib.suppress(OSError, ValueError):
                thing.flush()
    sys.stdout.flush()
    sys.stderr.flush()


class Imported:
    """What modules import of Ansible and of collections, imported before they are forked.

    A module brings these files in an archive of its own. Whoever brings the same files as another did before, by their
    checksums, has them imported: what a module imported itself is imported again, once, by the process that forks, from
    a copy of what that module was sent. Whoever brings another file of the same name imports its own, and these are
    imported from then on. The archive that Ansible's came in is kept, also when a machine boots anew.
    """

    def __init__(self) -> None:
        self.version = 0
        self.modules: dict[str, types.ModuleType] = {}
        self.files: dict[str, tuple[int, int]] = {}
        self.known: dict[str, tuple[int, int]] = {}  # the files that came with them, imported or not
        self.copy: Path | None = None  # of what a module was sent, which brings something new
        self.given: set[str] = set()  # what was imported for that module
        shutil.rmtree(NEW, ignore_errors=True)
        sys.meta_path.insert(0, t.cast("t.Any", self))
        self.renew()

    def renew(self) -> None:
        """Import Ansible from the archive that is kept, if it is another one than before, and what modules told."""
        try:
            version = ARCHIVE.stat().st_mtime_ns
        except OSError:
            version = 0
        told = list(NEW.glob(f"*{TOLD}"))
        if version == self.version and not told:
            return
        # What breaks here breaks again in the module, which can say so.
        with contextlib.suppress(Exception):
            if version != self.version:
                self.version, self.modules, self.files, self.known = version, {}, {}, {}
                if version:
                    self._import(ARCHIVE, COMMON)
            for file in told:
                self._add(file.with_suffix(".zip"), file.read_text().split())
        for file in told:
            file.unlink()
            file.with_suffix(".zip").unlink(missing_ok=True)
        gc.collect()
        gc.freeze()

    def _add(self, archive: Path, names: list[str]) -> None:
        """Import what a module told; of two releases of a collection the last one counts."""
        files = _files(str(archive))
        differ = _differ(self.files, files)
        if any(place.startswith("ansible/") for place in differ):
            return
        if differ:
            self.files = {place: what for place, what in self.files.items() if place.startswith("ansible/")}
            self.modules = {name: module for name, module in self.modules.items() if _place(name, self.files)}
            self.known = {}
        self._import(archive, names)
        self.known.update(files)

    def _import(self, kept: Path, names: t.Iterable[str]) -> None:
        archive = str(kept)
        zipimport._zip_directory_cache.pop(archive, None)  # type: ignore[attr-defined]
        for place in [place for place in sys.path_importer_cache if place.startswith(archive)]:
            del sys.path_importer_cache[place]
        self._find_in(archive, self.modules)
        sys.path.insert(0, archive)
        sys.modules.update(self.modules)
        try:
            for name in names:
                with contextlib.suppress(Exception):  # older ones of Ansible have not all
                    importlib.import_module(name)
        finally:
            sys.path.remove(archive)
            found = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in PACKAGES}
        files = _files(archive)
        self.modules = found
        self.files.update({place: files[place] for name in found if (place := _place(name, files))})

    @staticmethod
    def _find_in(archive: str, modules: dict[str, types.ModuleType]) -> None:
        """Have what was not imported be looked for in an archive."""
        for name, module in modules.items():
            if hasattr(module, "__path__"):
                module.__path__ = [f"{archive}/{name.replace('.', '/')}"]

    def find_spec(self, name: str, *dummy: object) -> ModuleSpec | None:
        """Where a module begins to import Ansible, give it all that is imported, or keep what it was sent."""
        if name != "ansible":
            return None
        spec = PathFinder.find_spec(name)
        archive = getattr(spec and spec.loader, "archive", "")
        if spec is None or archive == "" or archive == str(ARCHIVE) or archive.startswith(f"{NEW}/"):
            return None
        files = _files(archive)
        differ = _differ(self.files, files)
        if not self.files or any(place.startswith("ansible/") for place in differ):
            if "ansible/module_utils/basic.py" in files:
                _keep(archive, ARCHIVE)
            return None
        # Ansible's own import nothing of a collection.
        packages = PACKAGES[:1] if differ else PACKAGES
        given = {
            found: module
            for found, module in self.modules.items()
            if found.partition(".")[0] in packages and _place(found, files)
        }
        if name not in given:
            return None
        self._find_in(archive, given)
        # This one is on its way: were it there, it would be loaded by what loaded it before.
        sys.modules.update({found: module for found, module in given.items() if found != name})
        if differ or any("/module_utils/" in place and self.known.get(place) != what for place, what in files.items()):
            self.copy, self.given = NEW / f"{os.getpid()}.zip", set(given)
            NEW.mkdir(mode=0o700, exist_ok=True)
            _keep(archive, self.copy)
        return ModuleSpec(name, t.cast("t.Any", _Done(given[name])), origin=spec.origin, is_package=True)

    def tell(self) -> None:
        """At the end of a module, have imported what it had to import itself."""
        if self.copy is None:
            return
        names = [name for name in sys.modules if ".module_utils" in name and name.partition(".")[0] in PACKAGES]
        names = [name for name in names if name not in self.given]
        if names:
            _write(self.copy.with_suffix(TOLD), "\n".join(names).encode())
        else:
            self.copy.unlink(missing_ok=True)


def _place(name: str, files: t.Container[str]) -> str:
    """Return where in an archive the file of a module is, empty when it is not there."""
    places = [f"{name.replace('.', '/')}{end}" for end in (".py", "/__init__.py")]
    return next((place for place in places if place in files), "")


def _differ(files: dict[str, tuple[int, int]], sent: dict[str, tuple[int, int]]) -> list[str]:
    return [place for place, what in files.items() if sent.get(place, what) != what]


class _Done(t.NamedTuple):
    """A loader of what is loaded."""

    module: types.ModuleType

    def create_module(self, dummy: ModuleSpec) -> types.ModuleType:
        return self.module

    def exec_module(self, dummy: types.ModuleType) -> None:
        pass


def _files(archive: str) -> dict[str, tuple[int, int]]:
    """Return size and checksum of each file in an archive."""
    with zipfile.ZipFile(archive) as opened:
        return {entry.filename: (entry.file_size, entry.CRC) for entry in opened.infolist()}


def _keep(archive: str, place: Path) -> None:
    _write(place, Path(archive).read_bytes())


def _write(place: Path, content: bytes) -> None:
    new = place.with_name(f"{place.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # no room, or not root: then everybody imports
        new.write_bytes(content)
        new.replace(place)


class Server:
    """The process that forks."""

    def __init__(self, listening: socket.socket) -> None:
        self.listening = listening
        self.callers: dict[int, socket.socket] = {}
        for name in NEEDED:
            importlib.import_module(name)
        self.installed = installed()
        gc.collect()
        gc.freeze()
        self.imported = Imported()
        signal.signal(signal.SIGCHLD, self._reap)

    def serve(self) -> None:
        """Fork for each caller until something is installed: what starts next sees it."""
        current = True
        while current:
            caller = self.listening.accept()[0]
            current = installed() == self.installed
            self.imported.renew()
            signal.pthread_sigmask(signal.SIG_BLOCK, _CHILD)
            child = os.fork()
            if not child:
                self._be(caller, current)
            self.callers[child] = caller
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _CHILD)
        signal.pthread_sigmask(signal.SIG_BLOCK, _CHILD)
        while self.callers:
            self._tell(*os.waitpid(-1, 0))

    def _reap(self, *dummy: object) -> None:
        while self.callers and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            self._tell(*ended)

    def _tell(self, child: int, status: int) -> None:
        """Tell a caller how its process ended."""
        with self.callers.pop(child) as caller, contextlib.suppress(OSError):  # who is gone wants to know nothing
            caller.sendall(struct.pack("=I", status))

    def _be(self, caller: socket.socket, current: bool) -> t.NoReturn:
        status = 1
        try:
            os.setsid()  # as sshd does
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _CHILD)
            pid = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # this caller, others, and what listens
            arguments = become(pid)
            if not current:
                os.execv(PYTHON, [PYTHON, *arguments])
            importlib.invalidate_caches()
            status = perform(arguments)
            self.imported.tell()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)


if __name__ == "__main__":
    Server(socket.socket(fileno=3)).serve()  # of lab_python.socket
