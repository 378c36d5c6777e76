# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One virtual machine of the lab: what it is, its QEMU, its disks; start, stop, break and mend it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import signal
import socket
import time
import typing as t
import zlib
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run

# What a machine is told before it boots: files in an archive behind its initial RAM disk.


class SeedFile(t.NamedTuple):
    """One file below /seed, which the initial RAM disk copies to /etc/lab."""

    name: str
    content: bytes
    mode: int = 0o644


def archive(files: t.Iterable[SeedFile]) -> bytes:
    """A cpio archive (newc), as the kernel unpacks it after the one before it."""
    entries = [("seed", b"", 0o040755), *((f"seed/{file.name}", file.content, 0o100000 | file.mode) for file in files)]
    body = b"".join(_entry(number, *entry) for number, entry in enumerate([*entries, ("TRAILER!!!", b"", 0)], 1))
    return body + bytes(-len(body) % 512)


def append(base: bytes, files: t.Iterable[SeedFile]) -> bytes:
    """The initial RAM disk of one machine."""
    return base + bytes(-len(base) % 512) + archive(files)


def _entry(number: int, name: str, content: bytes, mode: int) -> bytes:
    path = name.encode() + b"\0"
    # inode, mode, uid, gid, links, mtime, size, device (2), special device (2), length of the name, checksum
    fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    return head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)


# What a virtual machine of the lab is: plain data, checked when it is read.


_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}\Z")
_DISK = re.compile(r"[a-z][a-z0-9]{0,19}\Z")
_SERIAL = re.compile(r"[A-Za-z0-9_-]{1,20}\Z")
_ACCELERATORS = ("kvm", "tcg")
# Below the range that Linux takes for outgoing connections.
_PORTS = range(23000, 32000)


class MachineError(ValueError):
    """A machine cannot be what is wanted; the text is fit for the user."""


class MachineDisk(t.NamedTuple):
    """An NVMe controller with one namespace."""

    name: str
    size: int
    serial: str


class MachineSpec(t.NamedTuple):
    """Everything that decides how a machine is started; a machine with another one is another machine."""

    name: str
    image: str
    memory: int
    cpus: int
    port: int
    address: str
    network: str
    accelerator: str
    disks: tuple[MachineDisk, ...]
    slots: int
    route_out: bool
    kernel_options: tuple[str, ...]
    options: tuple[str, ...]


def read(data: t.Mapping[str, t.Any]) -> MachineSpec:
    """Make a specification of what JSON or YAML held."""
    try:
        disks = tuple(MachineDisk(str(disk["name"]), int(disk["size"]), str(disk["serial"])) for disk in data["disks"])
        spec = MachineSpec(
            name=str(data["name"]),
            image=str(data["image"]),
            memory=int(data["memory"]),
            cpus=int(data["cpus"]),
            port=int(data["port"]),
            address=str(data["address"]),
            network=str(data["network"]),
            accelerator=str(data["accelerator"]),
            disks=disks,
            slots=int(data["slots"]),
            route_out=bool(data["route_out"]),
            kernel_options=tuple(str(option) for option in data["kernel_options"]),
            options=tuple(str(option) for option in data["options"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise MachineError(f"the description of a machine is not sound: {exc!r}") from exc
    found = _findings(spec)
    if found:
        raise MachineError(f"machine {spec.name}: {'; '.join(found)}")
    return spec


def plain(spec: MachineSpec) -> dict[str, t.Any]:
    """The specification as JSON holds it."""
    lists = {"kernel_options": list(spec.kernel_options), "options": list(spec.options)}
    return {**spec._asdict(), **lists, "disks": [disk._asdict() for disk in spec.disks]}


def _findings(spec: MachineSpec) -> list[str]:
    names, serials = [disk.name for disk in spec.disks], [disk.serial for disk in spec.disks]
    rules = [
        (_NAME.match(spec.name), f"name {spec.name!r}; accepted: up to 20 lower-case letters, digits and hyphens"),
        (256 <= spec.memory <= 1 << 20, f"memory {spec.memory} MiB; accepted: 256 to 1048576"),
        (1 <= spec.cpus <= 64, f"{spec.cpus} cpus; accepted: 1 to 64"),
        (1024 <= spec.port < 65536, f"port {spec.port}; accepted: 1024 to 65535"),
        (spec.accelerator in _ACCELERATORS, f"accelerator {spec.accelerator}; accepted: {', '.join(_ACCELERATORS)}"),
        (
            len(spec.disks) <= spec.slots <= 30,
            f"{len(spec.disks)} disks in {spec.slots} slots; accepted: up to 30 slots",
        ),
        (all(map(_DISK.match, names)), f"disks {names}; accepted: names of lower-case letters and digits"),
        (len(set(names)) == len(names), f"disks {names}; accepted: each name once"),
        (all(map(_SERIAL.match, serials)), f"serials {serials}; accepted: up to 20 letters, digits, _ and -"),
        (len(set(serials)) == len(serials), f"serials {serials}; accepted: each serial once"),
        (all(disk.size >= 1 << 20 for disk in spec.disks), "a disk below 1 MiB"),
    ]
    return [text for sound, text in rules if not sound]


def group(directory: str) -> str:
    """A multicast group for the machines of one lab, so that two labs do not hear each other."""
    digest = zlib.crc32(directory.encode())
    return f"239.{digest >> 16 & 255}.{digest >> 8 & 255}.{digest & 255}:{_PORTS.start - 1}"


def port(directory: str, taken: t.Container[int], free: t.Callable[[int], bool]) -> int:
    """Choose the port of this machine that leads to a machine's SSH: the same again as long as nobody else has it."""
    first = zlib.crc32(directory.encode()) % len(_PORTS)
    for number in (*_PORTS[first:], *_PORTS[:first]):
        if number not in taken and free(number):
            return number
    raise MachineError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}")


# The process that is a running machine: only ever the one that we started.


_PROCESS_PAUSE = 0.1


def pid_of(directory: Path) -> int | None:
    """The process of a machine; a number that somebody else has by now is nobody's."""
    try:
        pid = int((directory / "pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if is_machine(words, directory) else None


def is_machine(words: t.Sequence[bytes], directory: Path) -> bool:
    """Whether a process with this command line is the machine with this directory."""
    own = os.fsencode((directory / "pid").resolve())
    files = [os.path.realpath(value) for word, value in zip(words, words[1:]) if word == b"-pidfile"]
    return b"qemu-system" in words[0] and own in files


def start(argv: t.Sequence[str], directory: Path) -> None:
    """Start a machine; it goes on by itself."""
    for name in ("pid", "qmp"):
        with contextlib.suppress(FileNotFoundError):
            (directory / name).unlink()
    done = run(argv, timeout=60)
    if done.problem:
        raise MachineError(f"Cannot start {directory.name}. {argv[0]}: {done.problem}")
    if not pid_of(directory):
        raise MachineError(f"{argv[0]} of {directory.name} ended at once; see {directory}/console.log")


def await_end(directory: Path, seconds: float) -> bool:
    """Wait until a machine is off; tell whether it is."""
    end = time.monotonic() + seconds
    while pid_of(directory):
        if time.monotonic() >= end:
            return False
        time.sleep(_PROCESS_PAUSE)
    return True


def kill(directory: Path) -> None:
    """Take a machine's power away."""
    pid = pid_of(directory)
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if not await_end(directory, 30):
        raise MachineError(f"process {pid} of {directory.name} does not end")


# Which disks of a machine are plugged in, and what their serial numbers are by now.


_SERIAL_LENGTH = 20


class Plugs:
    """The state of a machine's disks, beside its description: that one never changes."""

    def __init__(self, path: Path, disks: t.Sequence[MachineDisk]) -> None:
        self._path = path
        self._disks = disks
        found = json.loads(path.read_text()) if path.exists() else {}
        self._out: list[str] = found.get("out", [])
        self._replaced: dict[str, int] = found.get("replaced", {})

    def all(self) -> list[MachineDisk]:
        """Every disk, as it would be plugged in now."""
        return [disk._replace(serial=self._serial(disk)) for disk in self._disks]

    def present(self) -> list[MachineDisk]:
        """The disks that are plugged in."""
        return [disk for disk in self.all() if disk.name not in self._out]

    def chosen(self, names: t.Sequence[str]) -> list[MachineDisk]:
        """The disks with these names; without names all."""
        known = {disk.name: disk for disk in self.all()}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise MachineError(f"no disk {', '.join(unknown)}; there are {', '.join(known) or 'none'}")
        return [known[name] for name in names] if names else list(known.values())

    def pull(self, disks: t.Iterable[MachineDisk]) -> None:
        """Remember that these are out."""
        self._out = sorted({*self._out, *(disk.name for disk in disks)})
        self._save()

    def push(self, disks: t.Iterable[MachineDisk]) -> None:
        """Remember that these are in."""
        self._out = sorted({*self._out} - {disk.name for disk in disks})
        self._save()

    def replace(self, disk: MachineDisk) -> None:
        """Take another disk in its place."""
        self._replaced[disk.name] = self._replaced.get(disk.name, 0) + 1
        self._save()

    def _serial(self, disk: MachineDisk) -> str:
        count = self._replaced.get(disk.name, 0)
        suffix = f"-R{count}" if count else ""
        return disk.serial[: _SERIAL_LENGTH - len(suffix)] + suffix

    def _save(self) -> None:
        self._path.write_text(json.dumps({"out": self._out, "replaced": self._replaced}, indent=1) + "\n")


# Reach the system in a machine: has it booted, run a command there.


_BOOT_PAUSE = 0.2
_GREETING = 2.0  # seconds until SSH says something, at first
# Prints the boot's identity and the state, once systemd has nothing more to start.
_BOOTED = "cat /proc/sys/kernel/random/boot_id; systemctl is-system-running --wait"
_STATES = ("running", "degraded")


class System(t.NamedTuple):
    """How to reach the system in a machine."""

    port: int
    state_dir: Path

    @property
    def control(self) -> Path:
        """The socket of the connection that commands share: under emulation a new one costs a second."""
        return self.state_dir / f"ssh-{self.port}"

    def argv(self, *command: str) -> list[str]:
        """The ssh command; without arguments that of a shell."""
        options = {
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": f"{self.state_dir}/known_hosts",
            # Of an emulated machine on a busy one an answer may be late.
            "ConnectTimeout": "60",
            "LogLevel": "ERROR",
            "ControlMaster": "auto",
            "ControlPath": str(self.control),
            "ControlPersist": "120",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        key = ["-i", f"{self.state_dir}/ssh_key"]
        return ["ssh", *key, *words, "-p", str(self.port), "root@127.0.0.1", *command]

    def run(self, *command: str, timeout: float = 60.0, data: str | None = None) -> Outcome:
        """Run a command as root."""
        return run(self.argv(*command), timeout, data)

    def hang_up(self) -> None:
        """End the shared connection: what is on its other side goes away."""
        if self.control.exists():
            run(["ssh", "-O", "exit", "-o", f"ControlPath={self.control}", "127.0.0.1"], 10)
            with contextlib.suppress(FileNotFoundError):
                self.control.unlink()

    def await_boot(self, seconds: float, alive: t.Callable[[], object], after: str = "") -> str:
        """Wait until the system has booted, into another boot than this one; return the boot's identity."""
        # The boot before may still answer on the connection that it knows.
        self.hang_up()
        end = time.monotonic() + seconds
        said = "SSH does not answer"
        patience = _GREETING
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise MachineError(f"not booted after {seconds:g} s: {said}")
            if not alive():
                raise MachineError(f"it went off while it should boot: {said}")
            begin = time.monotonic()
            if not self._listens(min(patience, left)):
                # Each question is a process there: what was too late is asked less often.
                if time.monotonic() - begin > patience / 2:
                    patience = min(2 * patience, 60.0)
                time.sleep(_BOOT_PAUSE)
                continue
            # The connection stays for the commands that follow, if this is the boot that was waited for.
            done = self.run(_BOOTED, timeout=left)
            boot, *state = done.out.split() or [""]
            if state and state[0] in _STATES and boot != after:
                return boot
            self.hang_up()
            said = f"systemd says {state[0]}" if state else done.problem
            time.sleep(_BOOT_PAUSE)

    def boot_id(self) -> str:
        """The identity of the running boot."""
        done = self.run("cat", "/proc/sys/kernel/random/boot_id")
        if done.problem:
            raise MachineError(f"the system does not answer: {done.problem}")
        return done.out.strip()

    def _listens(self, seconds: float) -> bool:
        """QEMU takes every connection; what counts is that the system says something on it."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False


# The command line of a virtual machine of the lab: pure functions.


QEMU = "qemu-system-x86_64"
# Under emulation five-level page tables only cost time, and what protects a kernel from its users protects nobody.
# Where a processor says that it copies strings fast (erms), the C library and the kernel copy and clear memory by
# instructions that QEMU goes through byte by byte; the kernel also where REP_GOOD is set.
ACCELERATION = {
    "kvm": ["-accel", "kvm", "-cpu", "host"],
    "tcg": ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max,la57=off,erms=off,smap=off,smep=off,svm=off"],
}
# An emulated processor counts its host's ticks: to measure them against other clocks takes longer than a second. Tests
# of ciphers, and a look through all page tables for what may be written and run (rodata), are a fifth of a boot.
_EMULATED = ["tsc=reliable", "clearcpuid=rep_good", "rodata=off", "cryptomgr.notests", "init_on_alloc=0", "audit=0"]
_EMULATED += ["hardened_usercopy=off", "randomize_kstack_offset=off"]
# What QEMU translated is good for one address: a program that starts at another one each time is translated each time.
_EMULATED += ["norandmaps"]
# A unit that is late is not broken: beside a load of 25 on two cores the login manager took longer than 90 s to start.
_EMULATED += ["systemd.default_timeout_start_sec=1200"]
# The initial RAM disk knows its root; named here, systemd would wait for it once more.
_KERNEL = ["console=ttyS0", "quiet", "loglevel=4", "net.ifnames=0", "mitigations=off", "panic=10"]


def qemu(spec: MachineSpec, directory: str, disks: t.Sequence[MachineDisk], initrd: str) -> list[str]:
    """Return the command that starts a machine whose files are in a directory, with these disks plugged in."""
    # Where there can be one processor alone, QEMU 7.2 leaves a guest's memory barriers out, and the guest's disks miss
    # commands: its drivers and QEMU's devices are different threads. With room for a second one they are kept.
    cpus = f"{spec.cpus},maxcpus={max(spec.cpus, 2)}"
    return [
        *[QEMU, "-name", spec.name, "-daemonize", "-pidfile", f"{directory}/pid"],
        *["-machine", "q35,smbus=off,sata=off,usb=off", *ACCELERATION[spec.accelerator]],
        *["-smp", cpus, "-m", str(spec.memory), "-nodefaults", "-display", "none"],
        *["-serial", f"file:{directory}/console.log", "-qmp", f"unix:{directory}/qmp,server=on,wait=off"],
        *["-kernel", f"{spec.image}/vmlinuz", "-initrd", initrd, "-append", kernel(spec)],
        # Of a lab nothing has to survive this machine's power cut, only its own.
        *["-drive", f"if=none,id=root,file={directory}/root.qcow2,format=qcow2,cache=unsafe,discard=unmap"],
        *["-device", "virtio-blk-pci,drive=root"],
        *_network(spec),
        *["-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng"],
        *_slots(spec),
        *[word for disk in disks for word in _disk(spec, directory, disk)],
        *spec.options,
    ]


def kernel(spec: MachineSpec) -> str:
    """The kernel's command line."""
    return " ".join([*_KERNEL, *(_EMULATED if spec.accelerator == "tcg" else []), *spec.kernel_options])


def backing(directory: str, disk: MachineDisk) -> str:
    """The file that holds a disk's content."""
    return f"{directory}/{disk.name}.raw"


def block_node(directory: str, disk: MachineDisk) -> dict[str, t.Any]:
    """The arguments of blockdev-add for a disk."""
    file = {"driver": "file", "filename": backing(directory, disk)}
    # Not flushed, as the system disk (cache=unsafe): the host may take longer for it than a driver waits.
    name, cache = f"{disk.name}-content", {"no-flush": True}
    return {"driver": "raw", "node-name": name, "discard": "unmap", "cache": cache, "file": file}


def device(spec: MachineSpec, disk: MachineDisk) -> dict[str, t.Any]:
    """The arguments of device_add for a disk: always in the slot of its own."""
    bus = f"slot{slot(spec, disk)}"
    return {"driver": "nvme", "id": disk.name, "bus": bus, "drive": f"{disk.name}-content", "serial": disk.serial}


def slot(spec: MachineSpec, disk: MachineDisk) -> int:
    """Where a disk is plugged in, from 1."""
    return 1 + [known.name for known in spec.disks].index(disk.name)


def _network(spec: MachineSpec) -> list[str]:
    restrict = "off" if spec.route_out else "on"
    mac = "02:00:{:02x}:{:02x}:{:02x}:{:02x}".format(*map(int, spec.address.split("/")[0].split(".")))
    return [
        *["-netdev", f"user,id=host,ipv6=off,restrict={restrict},hostfwd=tcp:127.0.0.1:{spec.port}-:22"],
        *["-device", "virtio-net-pci,netdev=host,romfile="],
        *["-netdev", f"socket,id=lab,mcast={spec.network},localaddr=127.0.0.1"],
        *["-device", f"virtio-net-pci,netdev=lab,mac={mac},romfile="],
    ]


def _slots(spec: MachineSpec) -> list[str]:
    ports = [f"pcie-root-port,id=slot{number},chassis={number},slot={number}" for number in range(1, spec.slots + 1)]
    return [word for port in ports for word in ("-device", port)]


def _disk(spec: MachineSpec, directory: str, disk: MachineDisk) -> list[str]:
    node = json.dumps(block_node(directory, disk))
    return ["-blockdev", node, "-device", ",".join(_property(item) for item in device(spec, disk).items())]


def _property(item: tuple[str, t.Any]) -> str:
    return str(item[1]) if item[0] == "driver" else f"{item[0]}={item[1]}"


# The files that stand for a machine's disks.


_BLOCK = 1 << 16


def make_root(directory: Path, image: str) -> None:
    """Make the system disk: everything that differs from the image."""
    path = directory / "root.qcow2"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", f"{image}/root.raw", str(path)]
    done = run(argv, timeout=60)
    if done.problem:
        raise MachineError(f"Cannot make {path} on {image}/root.raw. qemu-img: {done.problem}")


def make(directory: Path, disks: t.Iterable[MachineDisk]) -> None:
    """Make the disks that are not there; they take no room until something is written."""
    for disk in disks:
        path = Path(backing(str(directory), disk))
        if not path.exists():
            _extend(path, disk.size)


def blank(directory: Path, disks: t.Iterable[MachineDisk]) -> None:
    """Make disks empty again."""
    for disk in disks:
        _extend(Path(backing(str(directory), disk)), disk.size)


def _extend(path: Path, size: int) -> None:
    with path.open("wb") as handle:
        handle.truncate(size)


def digest(directory: Path, disk: MachineDisk) -> str:
    """SHA-256 of a disk's size and of its blocks that are not zero, with their places.

    The same for the same content and for no other; a hole is the zeros that it reads as. Most of a disk is nothing,
    and to hash nothing takes as long as to hash anything.
    """
    found = hashlib.sha256()
    with Path(backing(str(directory), disk)).open("rb", buffering=0) as content:
        size = os.fstat(content.fileno()).st_size
        found.update(size.to_bytes(8, "little"))
        begin = 0
        while begin < size:
            begin = content.seek(_next_data(content.fileno(), begin, size))
            block = content.read(_BLOCK)
            if block.strip(b"\0"):
                found.update(begin.to_bytes(8, "little") + len(block).to_bytes(8, "little") + block)
            begin += _BLOCK
    return found.hexdigest()


def _next_data(handle: int, begin: int, size: int) -> int:
    """The block with the next byte that is not in a hole; the end when there is none."""
    try:
        return os.lseek(handle, begin, os.SEEK_DATA) // _BLOCK * _BLOCK
    except OSError as exc:
        if exc.errno != errno.ENXIO:
            raise
        return size


# Talk to a running QEMU through its QMP socket.


Json = t.Dict[str, t.Any]


class Qmp:
    """One conversation with the monitor of a machine."""

    def __init__(self, path: str, timeout: float = 60.0) -> None:
        self._path = path
        self._events: list[Json] = []
        self._rest = b""
        self._timeout = timeout
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(path)
        except OSError as exc:
            self._socket.close()
            raise MachineError(f"QEMU does not answer on {path}: {exc}") from exc
        with contextlib.ExitStack() as stack:
            stack.callback(self._socket.close)
            self._answer("the connection")  # the greeting
            self.ask("qmp_capabilities")
            stack.pop_all()

    def __enter__(self) -> Qmp:
        return self

    def __exit__(self, *dummy: object) -> None:
        self._socket.close()

    def ask(self, command: str, arguments: t.Mapping[str, t.Any] | None = None) -> t.Any:
        """Send a command, return what it returned; events that come in between are kept."""
        message = {"execute": command, **({"arguments": arguments} if arguments else {})}
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as exc:
            raise MachineError(f"QEMU did not take {command} on {self._path}: {exc}") from exc
        while True:
            answer = self._answer(command)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise MachineError(f"QEMU refused {command} {dict(arguments or {})}: {answer['error'].get('desc')}")

    def await_event(self, name: str, seconds: float, **data: t.Any) -> bool:
        """Wait for an event that carries these values; tell whether it came."""
        end = time.monotonic() + seconds
        while True:
            for event in self._events:
                if event["event"] == name and data.items() <= event.get("data", {}).items():
                    return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._socket.settimeout(left)
            with contextlib.suppress(socket.timeout):
                self._message()

    def _answer(self, command: str) -> Json:
        try:
            return self._message()
        except socket.timeout as exc:
            raise MachineError(f"QEMU did not answer {command} on {self._path} within {self._timeout:g} s") from exc

    def _message(self) -> Json:
        while b"\n" not in self._rest:
            try:
                data = self._socket.recv(65536)
            except socket.timeout:
                raise
            except OSError as exc:
                raise MachineError(f"QEMU broke off on {self._path}: {exc}") from exc
            if not data:
                raise MachineError(f"QEMU ended the conversation on {self._path}")
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        message: Json = json.loads(line)
        if "event" in message:
            self._events.append(message)
        return message


# One virtual machine of the lab: start, stop, break and mend it. Private; for the module, the program and tests.


PATIENCE = 120.0


class Machine:
    """A machine that has a directory ``<state directory>/machines/<name>`` with its description in machine.json."""

    def __init__(self, state_dir: str | Path, name: str) -> None:
        self.name = name
        self.state_dir = Path(state_dir).resolve()
        self.directory = self.state_dir / "machines" / name
        try:
            self.spec: MachineSpec = read(json.loads((self.directory / "machine.json").read_text()))
        except (OSError, json.JSONDecodeError) as exc:
            raise MachineError(f"there is no machine {name} in {self.state_dir}: {exc}") from exc
        self.plugs = Plugs(self.directory / "plugs.json", self.spec.disks)
        self.system = System(self.spec.port, self.state_dir)

    @property
    def pid(self) -> int | None:
        """Its process, none while it is off."""
        return pid_of(self.directory)

    def start(self) -> bool:
        """Switch it on; tell whether it was off."""
        if self.pid:
            return False
        make(self.directory, self.plugs.present())
        base = Path(self.spec.image, "initrd").read_bytes()
        initrd = self.directory / "initrd"
        initrd.write_bytes(append(base, self._told()))
        start(qemu(self.spec, str(self.directory), self.plugs.present(), str(initrd)), self.directory)
        return True

    def stop(self, seconds: float = PATIENCE) -> bool:
        """Press its power button and wait until it is off; tell whether it was on."""
        if not self.pid:
            return False
        self.system.hang_up()
        # A system that is just booting does not notice the button.
        for dummy in range(max(1, int(seconds // 10))):
            with contextlib.suppress(MachineError):
                self.ask("system_powerdown")
            if await_end(self.directory, min(10.0, seconds)):
                return True
        raise MachineError(f"{self.name} did not switch itself off within {seconds:g} s; `kill` takes its power away")

    def kill(self) -> bool:
        """Take its power away; tell whether it was on."""
        running = self.pid is not None
        self.system.hang_up()
        kill(self.directory)
        return running

    def reset(self) -> None:
        """Press its reset button."""
        self.system.hang_up()
        self.ask("system_reset")

    def wait(self, seconds: float = PATIENCE, after: str = "") -> str:
        """Wait until it has booted, into another boot than ``after``; return the boot's identity."""
        try:
            return self.system.await_boot(seconds, lambda: self.pid, after)
        except MachineError as exc:
            raise MachineError(f"{self.name}: {exc}; its console: {self.directory}/console.log") from exc

    def blank(self, names: t.Sequence[str] = (), replace: bool = False) -> None:
        """Empty disks (all by default), as after a redeployment; `replace`: by others with other serial numbers."""
        for disk in self.plugs.chosen(names):
            self._unused(disk)
            if replace:
                self.plugs.replace(disk)
            blank(self.directory, [disk])

    def remove(self, names: t.Sequence[str]) -> bool:
        """Pull disks out, also while it runs; tell whether any was in."""
        pulled = [disk for disk in self.plugs.chosen(names) if disk in self.plugs.present()]
        if self.pid and pulled:
            with Qmp(str(self.directory / "qmp")) as qmp:
                for disk in pulled:
                    _pull(qmp, disk)
                    self.plugs.pull([disk])
        self.plugs.pull(pulled)
        return bool(pulled)

    def add(self, names: t.Sequence[str]) -> bool:
        """Push disks in, also while it runs; tell whether any was out."""
        pushed = [disk for disk in self.plugs.chosen(names) if disk not in self.plugs.present()]
        make(self.directory, pushed)
        if self.pid and pushed:
            with Qmp(str(self.directory / "qmp")) as qmp:
                for disk in pushed:
                    self._push(qmp, disk)
                    self.plugs.push([disk])
        self.plugs.push(pushed)
        return bool(pushed)

    def _push(self, qmp: Qmp, disk: MachineDisk) -> None:
        node = block_node(str(self.directory), disk)
        qmp.ask("blockdev-add", node)
        try:
            qmp.ask("device_add", device(self.spec, disk))
        except MachineError:
            with contextlib.suppress(MachineError):
                qmp.ask("blockdev-del", {"node-name": node["node-name"]})
            raise

    def digest(self, name: str) -> str:
        """SHA-256 of a disk's content; what a running system holds back in its memory is not in it."""
        return digest(self.directory, self.plugs.chosen([name])[0])

    def backing(self, name: str) -> Path:
        """The file with a disk's content, to be written to while the machine is off."""
        return self.directory / f"{self.plugs.chosen([name])[0].name}.raw"

    def ask(self, command: str, arguments: t.Mapping[str, t.Any] | None = None) -> t.Any:
        """Send one QMP command."""
        if not self.pid:
            raise MachineError(f"{self.name} is off")
        with Qmp(str(self.directory / "qmp")) as qmp:
            return qmp.ask(command, arguments)

    def _unused(self, disk: MachineDisk) -> None:
        if self.pid and disk in self.plugs.present():
            raise MachineError(f"{disk.name} is plugged into {self.name}, which runs: stop it or remove the disk first")

    def _told(self) -> list[SeedFile]:
        """What it learns at boot: of the lab, and of itself."""
        own = {"hostname": f"{self.name}\n", "address": f"{self.spec.address}\n"}
        if self.spec.route_out:
            own["route_out"] = "10.0.2.2\n"
        files = [SeedFile(name, text.encode()) for name, text in own.items()]
        for folder in (self.state_dir / "node", self.directory / "seed"):
            paths = sorted(folder.iterdir()) if folder.is_dir() else []
            files += [SeedFile(path.name, path.read_bytes(), path.stat().st_mode & 0o777) for path in paths]
        return files


def _pull(qmp: Qmp, disk: MachineDisk) -> None:
    qmp.ask("device_del", {"id": disk.name})
    if not qmp.await_event("DEVICE_DELETED", PATIENCE, device=disk.name):
        raise MachineError(
            f"the system did not let go of {disk.name} within {PATIENCE:g} s; a system that is still booting cannot"
        )
    qmp.ask("blockdev-del", {"node-name": f"{disk.name}-content"})


# Whether KVM works on this machine: found out by booting a kernel with it.


# What the initial RAM disk says before it switches the machine off (files/make_boot_files.sh).
MARK = "hpcai: this accelerator boots"
# KVM needs one second. A host that only pretends to have it hangs, or emulates slower than QEMU does.
LIMIT = 10.0


class AcceleratorAnswer(t.NamedTuple):
    """The accelerator to use, and why."""

    accelerator: str
    reason: str


def choose(image: Path, memory: Path) -> AcceleratorAnswer:
    """Tell which accelerator boots here; an answer for the same image, kernel and processor is remembered."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return AcceleratorAnswer("tcg", "/dev/kvm is not there or not ours to use")
    key = identity(image)
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(memory.read_text())
        if found.get("for") == key:
            return AcceleratorAnswer(str(found["accelerator"]), f"{found['reason']} (found out earlier)")
    if not (image / "vmlinuz").exists():
        return AcceleratorAnswer("tcg", f"not known yet: there is no image {image}")
    answer = _try(image)
    memory.write_text(json.dumps({"for": key, **answer._asdict()}, indent=1) + "\n")
    return answer


def probe(image: Path) -> list[str]:
    """The command that boots a kernel under KVM and ends."""
    return [
        *[QEMU, *ACCELERATION["kvm"], "-machine", "q35", "-m", "256", "-nodefaults", "-display", "none"],
        *["-no-reboot", "-serial", "stdio", "-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd")],
        *["-append", "console=ttyS0 quiet panic=-1 hpcai.probe"],
    ]


def identity(image: Path) -> str:
    """Everything that the answer depends on."""
    processor = ""
    with contextlib.suppress(OSError):
        found = re.search(r"^model name.*|^flags.*", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        processor = found[0] if found else ""
    text = "\n".join([image.name, platform.release(), platform.version(), processor, *probe(image)])
    return hashlib.sha256(text.encode()).hexdigest()


def _try(image: Path) -> AcceleratorAnswer:
    done = run(probe(image), LIMIT)
    if MARK in done.out:
        return AcceleratorAnswer("kvm", f"a kernel booted under KVM in {done.seconds:.1f} s")
    return AcceleratorAnswer("tcg", f"no kernel boots under KVM here ({done.problem or 'it ended without a word'})")
