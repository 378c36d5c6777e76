# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that make a node's settings permanent: drop-ins under names of our own. Pure, private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lines import LineError, one_line
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import MARK

LIMITS = "/etc/security/limits.d/90-hpcai.conf"
SLURMD = "/etc/systemd/system/slurmd.service.d/hpcai-limits.conf"
# Before 99-sysctl.conf and sysctl.conf, where administrators and Azure's images write: what they say wins.
SYSCTL = "/etc/sysctl.d/90-hpcai.conf"
HUGEPAGES = "/etc/tmpfiles.d/hpcai-hugepages.conf"
# After the 99-nfs.rules of nfs-utils 2.6 and later, which sets 128 KiB on every NFS mount.
READAHEAD = "/etc/udev/rules.d/99-zz-hpcai-nfs-readahead.rules"
SUNRPC = "/etc/modprobe.d/hpcai-sunrpc.conf"
MODULES = "/etc/modules-load.d/hpcai.conf"
# The name of rdma-core's own file, which this one replaces: a second one would come too late to know the device.
RDMA = "/etc/udev/rules.d/60-rdma-persistent-naming.rules"
# Not in containers: systemd reads these when a container boots, too, and a privileged one would set its host by them.
KERNEL = (SYSCTL, HUGEPAGES, READAHEAD, SUNRPC, MODULES, RDMA)
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
