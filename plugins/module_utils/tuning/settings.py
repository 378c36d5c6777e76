# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's settings: the files that make them permanent, and the running kernel's values, present, wanted and former.

The files are drop-ins under names of our own.
"""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lines import LineError, one_line
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import MARK, ForeignFile, Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run

# The files that make them permanent. Pure.


LIMITS = "/etc/security/limits.d/90-hpcai.conf"
SLURMD = "/etc/systemd/system/slurmd.service.d/hpcai-limits.conf"
# Before 99-sysctl.conf and sysctl.conf, where administrators and Azure's images write: what they say wins.
SYSCTL = "/etc/sysctl.d/90-hpcai.conf"
HUGEPAGES = "/etc/tmpfiles.d/hpcai-hugepages.conf"
# After the 99-nfs.rules of nfs-utils 2.6 and later, which sets 128 KiB on every NFS mount.
READAHEAD = "/etc/udev/rules.d/99-zz-hpcai-nfs-readahead.rules"
SUNRPC = "/etc/modprobe.d/hpcai-sunrpc.conf"
MODULES = "/etc/modules-load.d/hpcai.conf"
# For systemd's login manager, which else removes what a user's jobs share in /dev/shm when that user logs out.
LOGIND = "/etc/systemd/logind.conf.d/hpcai.conf"
# The name of rdma-core's own file, which this one replaces: a second one would come too late to know the device.
RDMA = "/etc/udev/rules.d/60-rdma-persistent-naming.rules"
# Not in containers: systemd reads these when a container boots, too, and a privileged one would set its host by them.
KERNEL = (SYSCTL, HUGEPAGES, READAHEAD, SUNRPC, MODULES, RDMA)
_LOGIN = "[Login]\nRemoveIPC=no\n"
_SYSTEMD = {"memlock": "LimitMEMLOCK", "stack": "LimitSTACK", "nofile": "LimitNOFILE", "nproc": "LimitNPROC"}
# limits.conf(5) counts these two in KiB, systemd.exec(5) in bytes unless a suffix says otherwise (K is 1024).
_UNITS = {"memlock": "K", "stack": "K"}
_UNLIMITED = ("unlimited", "infinity", "-1")
_LIMIT = re.compile(r"unlimited|[0-9]+")
_HEAD = f"# {MARK}, role node_tuning. Changes made here are lost.\n"


class SettingError(ValueError):
    """An option makes no sense; the text is fit for the user."""


class TuningSettings(t.NamedTuple):
    """The requested settings of a node; empty values leave a setting as it is."""

    limits: t.Mapping[str, str] = {}
    sysctl: t.Mapping[str, str] = {}
    transparent_hugepages: str = ""
    nfs_readahead_kb: int = 0
    sunrpc_slots: int = 0
    kernel_modules: t.Sequence[str] = ()
    rdma_names: t.Mapping[str, str] = {}
    keep_ipc: bool = False


def files(settings: TuningSettings) -> dict[str, str | None]:
    """Return the content of every file, None for those that shall not exist."""
    try:
        for name, value in settings._asdict().items():
            one_line(value, name)
    except LineError as exc:
        raise SettingError(str(exc)) from exc
    texts = {
        LIMITS: _limits(settings.limits),
        SLURMD: _slurmd(settings.limits),
        SYSCTL: "".join(f"{name} = {value}\n" for name, value in sorted(settings.sysctl.items())),
        HUGEPAGES: _hugepages(settings.transparent_hugepages),
        READAHEAD: _readahead(settings.nfs_readahead_kb),
        SUNRPC: _sunrpc(settings.sunrpc_slots),
        MODULES: "".join(f"{name}\n" for name in settings.kernel_modules),
        RDMA: _rdma(settings.rdma_names),
        LOGIND: _LOGIN if settings.keep_ipc else "",
    }
    return {path: f"{_HEAD}{text}" if text else None for path, text in texts.items()}


def _read(limits: t.Mapping[str, str]) -> dict[str, str]:
    """Return the limits as PAM writes them; refuses what is neither a number nor unlimited."""
    unknown = sorted(set(limits) - set(_SYSTEMD))
    if unknown:
        raise SettingError(f"limits has {', '.join(unknown)}; known are {', '.join(sorted(_SYSTEMD))}")
    read = {name: "unlimited" if str(value) in _UNLIMITED else str(value) for name, value in limits.items()}
    wrong = [f"{name} is {value!r}" for name, value in sorted(read.items()) if not _LIMIT.fullmatch(value)]
    if wrong:
        raise SettingError(
            f"limits: {', '.join(wrong)}; accepted: unlimited or a whole number, of KiB for memlock and stack"
        )
    return read


def _limits(limits: t.Mapping[str, str]) -> str:
    """Return the limits of PAM, for logins, SSH sessions and cron."""
    lines = [(kind, name, value) for name, value in sorted(_read(limits).items()) for kind in ("soft", "hard")]
    return "".join(f"*  {kind}  {name:8}  {value}\n" for kind, name, value in lines)


def _slurmd(limits: t.Mapping[str, str]) -> str:
    """Return the limits of slurmd, for jobs: they are its children, and PAM's limits do not apply to them."""
    lines = [
        f"{_SYSTEMD[name]}={'infinity' if value == 'unlimited' else value + _UNITS.get(name, '')}\n"
        for name, value in sorted(_read(limits).items())
    ]
    return "".join(["[Service]\n", *lines]) if lines else ""


def _hugepages(value: str) -> str:
    return f"w /sys/kernel/mm/transparent_hugepage/enabled - - - - {value}\n" if value else ""


def _readahead(kilobytes: int) -> str:
    """Return a udev rule for the devices that the kernel lists as NFS volumes, not for disks or FUSE."""
    if not kilobytes:
        return ""
    listed = "BEGIN{ret=1} {if ($$4 == bdi) {ret=0}} END{exit ret}"
    program = f"/usr/bin/awk -v bdi=$kernel '{listed}' /proc/fs/nfsfs/volumes"
    return f'SUBSYSTEM=="bdi", ACTION=="add", PROGRAM="{program}", ATTR{{read_ahead_kb}}="{kilobytes}"\n'


def _sunrpc(slots: int) -> str:
    return f"options sunrpc tcp_max_slot_table_entries={slots}\n" if slots else ""


def _rdma(names: t.Mapping[str, str]) -> str:
    """Return udev rules that name adapters by PCI domain, so that a missing adapter does not shift the names."""
    if not names:
        return ""
    rule = 'ACTION=="add", SUBSYSTEM=="infiniband"'
    lines = [
        f'{rule}, KERNELS=="{domain}:*", PROGRAM="rdma_rename %k NAME_FIXED {name}", GOTO="hpcai_rdma_end"\n'
        for domain, name in sorted(names.items())
    ]
    fallback = f'{rule}, PROGRAM="rdma_rename %k NAME_FALLBACK"\nLABEL="hpcai_rdma_end"\n'
    return "".join([*lines, "# All others as rdma-core names them.\n", fallback])


# Values of the running kernel: from present and requested ones to writes. Pure.


HUGEPAGES_NOW = "/sys/kernel/mm/transparent_hugepage/enabled"
SLOTS = "/sys/module/sunrpc/parameters/tcp_max_slot_table_entries"
NFS = "NFS read-ahead (KiB)"


class Value(t.NamedTuple):
    """A setting of the running kernel and the files in /proc and /sys that hold it."""

    name: str
    paths: t.Sequence[str]
    wanted: str


class Write(t.NamedTuple):
    name: str
    path: str
    before: str
    after: str


class TuningPlan(t.NamedTuple):
    """``record`` is what has to be noted before the writes."""

    writes: list[Write]
    record: Json
    findings: list[ForeignFile]


def sysctl_file(name: str) -> str:
    """Return the file of a sysctl; as sysctl(8), a name whose first separator is a slash is a path already."""
    first = re.search(r"[./]", name)
    swap = str.maketrans("./", "/.")
    return f"/proc/sys/{name.translate(swap) if first and first.group() == '.' else name}"


def normal(text: str) -> str:
    """Return a value as the kernel prints it; of several words the one in brackets is in effect."""
    chosen = re.search(r"\[([^]]+)\]", text)
    return chosen.group(1) if chosen else " ".join(text.split())


def values(settings: TuningSettings, nfs: t.Sequence[str]) -> list[Value]:
    """Return the values that belong to the settings; ``nfs`` are the files of the present NFS mounts."""
    values = [Value(name, [sysctl_file(name)], normal(str(value))) for name, value in sorted(settings.sysctl.items())]
    if settings.transparent_hugepages:
        values.append(Value("transparent huge pages", [HUGEPAGES_NOW], settings.transparent_hugepages))
    if settings.sunrpc_slots:
        values.append(Value("sunrpc slots", [SLOTS], str(settings.sunrpc_slots)))
    if settings.nfs_readahead_kb:
        values.append(Value(NFS, list(nfs), str(settings.nfs_readahead_kb)))
    return values


def outranked(later: t.Mapping[str, str], sysctl: t.Mapping[str, str]) -> tuple[set[str], list[ForeignFile]]:
    """Return settings to which a file that is read after ours gives another value, and findings about them."""
    settings_after: dict[str, tuple[str, str]] = {}
    for path, text in later.items():
        for line in text.splitlines():
            match = re.match(r"\s*-?([^#;=\s]+)\s*=\s*(.*?)\s*$", line)
            if match:
                settings_after[sysctl_file(match.group(1))] = (path, normal(match.group(2)))
    lost, findings = set(), []
    for name, value in sorted(sysctl.items()):
        path, value_after = settings_after.get(sysctl_file(name), ("", normal(str(value))))
        if value_after != normal(str(value)):
            lost.add(name)
            text = f"{path} says {value_after}, is read after {SYSCTL} and wins; the role's {value} is not set"
            findings.append(ForeignFile("warn", name, text))
    return lost, findings


def plan(values: t.Sequence[Value], current: t.Mapping[str, str], record: t.Mapping[str, t.Any]) -> TuningPlan:
    """Return the writes; ``current`` has the values of files that exist, ``record`` those before the role."""
    writes, noted, findings = [], {}, []
    for value in values:
        present = [path for path in value.paths if path in current]
        if value.paths and not present:
            text = "the running kernel does not have it; it is set when the kernel gets it"
            findings.append(ForeignFile("info", value.name, text))
        needed = [
            Write(value.name, path, current[path], value.wanted) for path in present if current[path] != value.wanted
        ]
        earlier = record.get(value.name)
        writes += needed
        if needed or earlier:
            before = earlier["before"] if earlier else needed[0].before
            noted[value.name] = {"before": before, "set": value.wanted, "paths": list(value.paths)}
    names = {value.name for value in values}
    for name, earlier in sorted(record.items()):
        if name not in names:
            writes += restore(name, earlier, current)
    return TuningPlan(writes, noted, findings)


def restore(name: str, earlier: t.Mapping[str, t.Any], current: t.Mapping[str, str]) -> list[Write]:
    """Restore the value from before the role; one that somebody changed since then stays."""
    return [
        Write(name, path, current[path], earlier["before"])
        for path in earlier["paths"]
        if path in current and current[path] == earlier["set"] != earlier["before"]
    ]


# Read and set the running kernel's values.


_SYSCTL_FOLDERS = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d")
# Of Docker and Podman; a container without systemd may have no other sign.
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_LOGIND_FOLDERS = tuple(f"{folder}/systemd" for folder in ("etc", "run", "usr/local/lib", "usr/lib", "lib"))
_NO = ("no", "false", "n", "f", "off", "0")
_UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")


class TuningError(Exception):
    """The kernel refused a value; the text is fit for the user."""


def container(root: str = "/") -> str:
    """Return the kind of container, empty for a machine with a kernel of its own."""
    kind = _text(Path(root, "run/systemd/container"))
    if kind:
        return kind.strip()
    environment = _text(Path(root, "proc/1/environ")) or ""
    match = re.search(r"(?:^|\0)container=([^\0]+)", environment)
    if match:
        return match.group(1)
    if any(Path(root, name).exists() for name in _CONTAINER_FILES):
        return "by its files"
    if root != "/":
        return ""
    virtualization = run(["systemd-detect-virt", "--container"], 10).out.strip()
    return "" if virtualization in ("", "none") else virtualization


def unit_exists(name: str, root: str = "/") -> bool:
    """Return whether there is a unit file of that name."""
    return any(Path(root, folder, name).exists() for folder in _UNIT_FOLDERS)


def read(paths: t.Iterable[str], root: str = "/") -> dict[str, str]:
    """Return the current values; files that do not exist are left out."""
    texts = {path: _text(Path(root, path.lstrip("/"))) for path in paths}
    return {path: normal(text) for path, text in texts.items() if text is not None}


def nfs_devices(root: str = "/") -> list[str]:
    """Return the read-ahead files of the NFS mounts of this machine."""
    mounts = (_text(Path(root, "proc/self/mountinfo")) or "").splitlines()
    devices = {
        fields[2]
        for fields, filesystem in ((line.split(), line.rpartition(" - ")[2].split()) for line in mounts)
        if filesystem and filesystem[0] in ("nfs", "nfs4")
    }
    return [f"/sys/class/bdi/{device}/read_ahead_kb" for device in sorted(devices)]


def _drop_ins(folders: t.Iterable[Path]) -> dict[str, Path]:
    """Return drop-ins by their names; of files with one name the first folder's."""
    path_by_name: dict[str, Path] = {}
    for folder in folders:
        for path in folder.glob("*.conf"):
            path_by_name.setdefault(path.name, path)
    return path_by_name


def later_sysctl(root: str = "/") -> dict[str, str]:
    """Return the files that sysctl reads after ours, in their order; of files with one name the first folder's."""
    path_by_name = _drop_ins(Path(root, folder) for folder in _SYSCTL_FOLDERS)
    after = [path_by_name[name] for name in sorted(path_by_name) if name > Path(SYSCTL).name]
    files = [*after, Path(root, "etc/sysctl.conf")]
    texts = {f"/{path.relative_to(root)}": _text(path) for path in files}
    return {path: text for path, text in texts.items() if text is not None}


def ipc_of_others(root: str = "/") -> tuple[str, bool] | None:
    """Return a file of somebody else that says whether logind removes what users share, and whether it is kept."""
    folders = [Path(root, folder) for folder in _LOGIND_FOLDERS]
    path_by_name = _drop_ins(folder / "logind.conf.d" for folder in folders)
    # The last name wins; of logind.conf itself there is one.
    drop_ins = [path_by_name[name] for name in sorted(path_by_name, reverse=True)]
    own = [folder / "logind.conf" for folder in folders if (folder / "logind.conf").is_file()][:1]
    for path in [*drop_ins, *own]:
        said = re.findall(r"(?m)^[ \t]*RemoveIPC[ \t]*=[ \t]*(\S*)", _text(path) or "")
        name = f"/{path.relative_to(root)}"
        if said and name != LOGIND:
            return name, said[-1].lower() in _NO
    return None


def misnamed(names: t.Mapping[str, str], root: str = "/") -> list[ForeignFile]:
    """Return findings about adapters whose names change at the next boot; none is renamed under running jobs."""
    findings = []
    folder = Path(root, "sys/class/infiniband")
    for device in sorted(folder.iterdir()) if folder.is_dir() else []:
        domain = Path(os.path.realpath(device / "device")).name.split(":")[0]
        if names.get(domain, device.name) != device.name:
            text = f"is called {names[domain]} from the next boot on"
            findings.append(ForeignFile("warn", device.name, text))
    return findings


def write(writes: t.Iterable[Write]) -> None:
    """Set the values one by one and read them back, since the kernel may accept a value and change it."""
    for request in writes:
        try:
            Path(request.path).write_text(request.after, encoding="ascii")
        except OSError as exc:
            raise TuningError(
                f"Cannot set {request.name} to {request.after} in {request.path}: {exc.strerror or exc}"
            ) from exc
        reading = read([request.path]).get(request.path)
        if reading != request.after:
            raise TuningError(
                f"{request.name} was set to {request.after} in {request.path}, but the kernel shows {reading}"
            )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
