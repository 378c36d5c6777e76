# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What enroot is told, and what the host has to allow."""

from __future__ import annotations

import os
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_config
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_host as host

# As the package carries them.
CARRIED = ["50-mig-config.sh", "50-sharp.sh", "50-slurm-pmi.sh", "50-slurm-pytorch.sh"]


def test_settings_are_lines_that_enroot_reads() -> None:
    values = {"ENROOT_ROOTFS_WRITABLE": True, "ENROOT_DATA_PATH": "/scratch/$EUID/data", "https_proxy": "http://p:3128"}
    text = enroot_config.settings({**values, "ENROOT_MOUNT_HOME": False, "ENROOT_MAX_CONNECTIONS": 4})
    assert text == (
        f"{enroot_config.HEAD}ENROOT_DATA_PATH /scratch/$EUID/data\nENROOT_MAX_CONNECTIONS 4\nENROOT_MOUNT_HOME no\n"
        "ENROOT_ROOTFS_WRITABLE yes\nhttps_proxy http://p:3128\n"
    )
    assert subprocess.run(["bash", "-n"], input=text.encode(), check=False).returncode == 0
    assert enroot_config.settings({}) is None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ENROOT_data": 1}, "no setting ENROOT_data"),
        ({"PATH": "/tmp"}, "no setting PATH"),
        ({"ENROOT_DATA_PATH": "/a\nENROOT_X y"}, "one line"),
        ({"ENROOT_DATA_PATH": '/a"'}, "no shell can read"),
    ],
)
def test_settings_that_would_be_lost_or_stop_every_container_are_refused(values: t.Any, said: str) -> None:
    with pytest.raises(enroot_config.ConfError, match=said):
        enroot_config.settings(values)


def test_environment_and_mounts() -> None:
    assert enroot_config.environment({"B": 2, "A": "x y"}) == f"{enroot_config.HEAD}A=x y\nB=2\n"
    assert enroot_config.mounts(["/a /b none bind", "/c /d"]) == f"{enroot_config.HEAD}/a /b none bind\n/c /d\n"
    assert enroot_config.environment({}) is None
    assert enroot_config.mounts([]) is None
    for call in (
        lambda: enroot_config.environment({"1A": 1}),
        lambda: enroot_config.environment({"A": "x\ny"}),
        lambda: enroot_config.mounts(["/a"]),
    ):
        with pytest.raises(enroot_config.ConfError):
            call()


def test_hooks_are_links_of_our_own_name() -> None:
    assert enroot_config.hooks(["slurm-pmi", "sharp"], CARRIED) == {
        "/etc/enroot/hooks.d/50-hpcai-slurm-pmi.sh": "/usr/share/enroot/hooks.d/50-slurm-pmi.sh",
        "/etc/enroot/hooks.d/50-hpcai-sharp.sh": "/usr/share/enroot/hooks.d/50-sharp.sh",
    }
    assert enroot_config.is_ours("50-hpcai-sharp.sh")
    assert not enroot_config.is_ours("50-sharp.sh")
    with pytest.raises(
        enroot_config.ConfError, match=r"carries no hook pmi in .*, but mig-config, sharp, slurm-pmi, slurm-pytorch"
    ):
        enroot_config.hooks(["pmi"], CARRIED)


def test_links_come_and_go_and_others_stay(tmp_path: Path) -> None:
    extra, place = tmp_path / "usr/share/enroot/hooks.d", tmp_path / "etc/enroot/hooks.d"
    for directory in (extra, place):
        directory.mkdir(parents=True)
    for name in CARRIED:
        (extra / name).touch()
    (place / "50-sharp.sh").symlink_to("/elsewhere")
    (place / "50-hpcai-sharp.sh").symlink_to("/usr/share/enroot/hooks.d/50-sharp.sh")
    changes = enroot_config.plan(["slurm-pmi"], present=True, root=str(tmp_path))
    assert [(one.path, bool(one.after)) for one in changes] == [
        ("/etc/enroot/hooks.d/50-hpcai-sharp.sh", False),
        ("/etc/enroot/hooks.d/50-hpcai-slurm-pmi.sh", True),
    ]
    enroot_config.apply([one._replace(path=str(tmp_path) + one.path) for one in changes])
    assert enroot_config.plan(["slurm-pmi"], present=True, root=str(tmp_path)) == []
    assert os.readlink(place / "50-sharp.sh") == "/elsewhere"
    assert [one.before for one in enroot_config.plan([], present=False, root=str(tmp_path))] == [changes[1].after]
    assert enroot_config.differences(changes)[1]["after"] == "-> /usr/share/enroot/hooks.d/50-slurm-pmi.sh\n"
    assert enroot_config.setting_differences({"a": "1"}) == [
        {"before_header": "a", "after_header": "a", "before": "", "after": "1\n"}
    ]


OPEN = {"user.max_user_namespaces": "96364", "user.max_mnt_namespaces": "96364"}


@pytest.mark.parametrize(
    ("now", "noted", "lines"),
    [
        (OPEN, "", None),
        ({**OPEN, "kernel.unprivileged_userns_clone": "1"}, "", ["kernel.unprivileged_userns_clone = 1"]),
        ({**OPEN, "user.max_user_namespaces": "0"}, "", ["user.max_user_namespaces = 5000"]),
        # Once raised it is open, and stays in the file that keeps it so.
        (OPEN, "user.max_user_namespaces = 4000\n", ["user.max_user_namespaces = 4000"]),
    ],
)
def test_only_what_is_closed_is_opened(now: dict[str, str], noted: str, lines: list[str] | None) -> None:
    text = enroot_config.sysctls(now, noted, 10000)
    assert text == (lines and enroot_config.HEAD + "".join(f"{line}\n" for line in lines))


def machine(root: Path, **files: str) -> str:
    """A host whose kernel says this."""
    known = {
        "proc/sys/kernel/threads-max": "10000\n",
        "proc/sys/user/max_user_namespaces": "0\n",
        "proc/sys/user/max_mnt_namespaces": "5000\n",
        **files,
    }
    for name, text in known.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def test_a_closed_kernel_is_opened_now_and_at_boot(tmp_path: Path) -> None:
    root = machine(tmp_path)
    text = host.kernel_file(root)
    assert host.closed(text, root) == {"user.max_user_namespaces": "5000"}
    host.allow(host.closed(text, root), root)
    assert host.closed(text, root) == {}
    (tmp_path / "etc/sysctl.d").mkdir(parents=True)
    (tmp_path / host.SYSCTL[1:]).write_text(text or "")
    assert host.kernel_file(root) == text


RESTRICT = "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
LOADED = "sys/kernel/security/apparmor/profiles"


def test_apparmor_is_asked_for_leave_where_it_restricts(tmp_path: Path) -> None:
    root = machine(tmp_path, **{"usr/share/enroot/apparmor.profile": "/usr/bin/enroot-nsenter {}\n"})
    assert host.apparmor_file(root) is None
    assert not host.profile_missing(root)
    machine(tmp_path, **{RESTRICT: "1\n", LOADED: "cups (enforce)\n"})
    text = host.apparmor_file(root)
    assert text and text.endswith("/usr/bin/enroot-nsenter {}\n")
    assert not host.profile_missing(root), "there is no file to load yet"
    machine(tmp_path, **{"etc/apparmor.d/enroot": text})
    assert host.profile_missing(root)
    assert host.apparmor_file(root) == text
    machine(tmp_path, **{LOADED: "/usr/bin/enroot-nsenter (unconfined)\n"})
    assert not host.profile_missing(root)
    machine(tmp_path, **{"etc/apparmor.d/enroot": "another's\n"})
    assert host.apparmor_file(root) is None


def answering(monkeypatch: pytest.MonkeyPatch, **answers: tuple[int, str]) -> list[list[str]]:
    """Let programs answer; return what was asked."""
    asked: list[list[str]] = []

    def run(argv: t.Sequence[str], *dummy: t.Any, **dummies: t.Any) -> _process.Outcome:
        asked.append(list(argv))
        rc, text = answers.get(argv[0], (0, ""))
        return _process.Outcome(rc, text if rc == 0 else "", "" if rc == 0 else text, 0.0)

    monkeypatch.setattr(host, "run", run)
    return asked


def test_lost_capabilities_are_seen_and_given_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.touch(mode=0o755)
    wanted = {str(program): "cap_sys_admin=ep", str(tmp_path / "absent"): "cap_sys_admin=ep"}
    answering(monkeypatch, getcap=(0, f"{program} cap_sys_admin=ep\n"))
    assert host.capabilities_lost(wanted) == {}
    asked = answering(monkeypatch)
    assert host.capabilities_lost(wanted) == {str(program): "cap_sys_admin=ep"}
    host.give({str(program): "cap_sys_admin=ep"})
    assert asked[-1] == ["setcap", "cap_sys_admin=ep", str(program)]


@pytest.mark.parametrize("call", [lambda: host.give({"/x": "cap_sys_admin=ep"}), host.load_profile, host.prove])
def test_a_host_that_cannot_run_containers_is_an_error(monkeypatch: pytest.MonkeyPatch, call: t.Any) -> None:
    answering(monkeypatch, setcap=(1, "no"), apparmor_parser=(1, "no"), runuser=(1, "Operation not permitted"))
    with pytest.raises(host.HostError):
        call()
