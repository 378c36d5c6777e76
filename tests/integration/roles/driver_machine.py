# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node in a directory, with real apt and dpkg, and a signed repository of small packages that do what NVIDIA's do.

They are called and depend on each other as those of NVIDIA's CUDA repository for Debian, and their scripts leave what
DKMS leaves: a module for the running kernel, or none. modinfo, dkms, modprobe and systemctl use the directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import yaml
from ansible_playbook import ansible_playbook, interpreter
from forked import run_module
from patience import patience
from stand_in import program, stand_in

ROOT = Path(__file__).resolve().parents[3]
KERNEL = "6.1.0-40-amd64"
OLD, NEW, NEWEST = "580.95.05", "580.105.08", "620.10.01"
ARCHITECTURE = subprocess.run(
    ["dpkg", "--print-architecture"], capture_output=True, text=True, check=False
).stdout.strip()
_CONFIG = """\
Dir "{root}";
Dir::State::status "{root}/var/lib/dpkg/status";
Dir::Bin::methods "/usr/lib/apt/methods";
Dir::Bin::dpkg "/usr/bin/dpkg";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "root";
Acquire::Languages "none";
Debug::NoLocking "true";
DPkg::Options {{ "--root={root}"; "--force-script-chrootless"; "--force-not-root"; "--force-bad-path"; }};
"""
_TOOLS = ("modinfo", "dkms", "modprobe", "nv-fabricmanager", "systemctl")


class Repository:
    """A flat repository of packages with a key of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder.with_name("gnupg")
        folder.mkdir(parents=True)
        self.home.mkdir(mode=0o700)
        self._gpg("--quick-gen-key", "driver test <driver@example.com>", "ed25519", "sign", "never")
        (folder / "key.pub").write_text(self._gpg("--armor", "--export").stdout)
        rows = self._gpg("--list-keys", "--with-colons").stdout.splitlines()
        self.fingerprint = next(row.split(":")[9] for row in rows if row.startswith("fpr:"))
        for version in (OLD, NEW, NEWEST):
            self._driver(version)
        for version in (OLD, NEW):
            manager = program("answer.sh", out=f"\n\n\tFabric Manager version is : {version}\n\n")
            self.package("nvidia-fabricmanager", f"{version}-1", files={"usr/bin/nv-fabricmanager": manager})
        self.package("datacenter-gpu-manager-4-cuda13", "1:4.4.2-1")
        self.package("site-tool", "1.0", depends=f"nvidia-driver-cuda (= {OLD}-1)")
        try:
            self.publish()
        finally:  # gpg leaves an agent behind for its directory
            subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], check=False, capture_output=True)

    def _driver(self, version: str) -> None:
        library = {f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}": ""}
        links = {"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": f"libnvidia-ml.so.{version}"}
        self.package("libnvidia-ml1", f"{version}-1", files=library, links=links)
        self.package("nvidia-driver-cuda", f"{version}-1", depends=f"libnvidia-ml1 (= {version}-1)")
        self.package("nvidia-persistenced", f"{version}-1")
        for name, other, licence in (
            ("nvidia-kernel-open-dkms", "nvidia-kernel-dkms", "Dual MIT/GPL"),
            ("nvidia-kernel-dkms", "nvidia-kernel-open-dkms", "NVIDIA"),
        ):
            built = program("driver_postinst.sh", kernel=KERNEL, version=version, licence=licence)
            files = {f"usr/src/nvidia-{version}/dkms.conf": f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\n'}
            scripts = {"postinst": built, "prerm": program("driver_prerm.sh", kernel=KERNEL)}
            relations = {"depends": f"nvidia-driver-cuda (= {version}-1)", "conflicts": other}
            self.package(name, f"{version}-1", files=files, scripts=scripts, **relations)

    def package(
        self,
        name: str,
        version: str,
        *,
        depends: str = "",
        conflicts: str = "",
        files: t.Mapping[str, str] | None = None,
        links: t.Mapping[str, str] | None = None,
        scripts: t.Mapping[str, str] | None = None,
    ) -> None:
        tree = self.folder.with_name("tree")
        shutil.rmtree(tree, ignore_errors=True)
        (tree / "DEBIAN").mkdir(parents=True)
        fields = {
            "Package": name,
            "Version": version,
            "Architecture": ARCHITECTURE,
            "Maintainer": "Test <t@example.com>",
        }
        fields |= {"Depends": depends, "Conflicts": conflicts, "Replaces": conflicts, "Description": f"small {name}"}
        (tree / "DEBIAN/control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items() if value))
        for path, text in (files or {}).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
            (tree / path).chmod(0o755 if "/bin/" in path else 0o644)
        for path, target in (links or {}).items():
            (tree / path).symlink_to(target)
        for script, text in (scripts or {}).items():
            (tree / "DEBIAN" / script).write_text(text)
            (tree / "DEBIAN" / script).chmod(0o755)
        package = self.folder / f"{name}_{version.replace(':', '%3a')}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, package], check=True, capture_output=True
        )

    def publish(self) -> None:
        entries = []
        for path in sorted(self.folder.glob("*.deb")):
            fields = subprocess.run(
                ["dpkg-deb", "--field", path], capture_output=True, text=True, check=True
            ).stdout.rstrip()
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            entries.append(f"{fields}\nFilename: ./{path.name}\nSize: {len(content)}\nSHA256: {digest}\n")
        packages = "\n".join(entries)
        (self.folder / "Packages").write_text(packages)
        row = f" {hashlib.sha256(packages.encode()).hexdigest()} {len(packages.encode())} Packages\n"
        (self.folder / "Release").write_text(f"Origin: test\nDate: Mon, 01 Jan 2024 00:00:00 UTC\nSHA256:\n{row}")
        (self.folder / "InRelease").unlink(missing_ok=True)
        self._gpg("--clearsign", "--output", str(self.folder / "InRelease"), str(self.folder / "Release"))

    def _gpg(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["gpg", "--batch", "--quiet", "--passphrase", "", "--homedir", str(self.home), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True)

    @property
    def url(self) -> str:
        return f"file://{self.folder}/"


class Node:
    """Eight H100 on four NVSwitches and nothing installed; ``play`` runs roles on it."""

    def __init__(self, folder: Path, repository: Repository, *roles: str) -> None:
        self.folder, self.repository, self.root, self.bin = folder, repository, folder / "root", folder / "bin"
        for name in (
            *("etc/apt/sources.list.d", "etc/apt/preferences.d", "etc/apt/apt.conf.d", "etc/apt/trusted.gpg.d"),
            *(
                "var/lib/dpkg/info",
                "var/lib/dpkg/updates",
                "var/lib/apt/lists/partial",
                "var/cache/apt/archives/partial",
            ),
            *("usr/sbin", f"lib/modules/{KERNEL}/build", "var/log/apt", "proc", "etc/apt/keyrings"),
        ):
            (self.root / name).mkdir(parents=True)
        self.write("var/lib/dpkg/status", "")
        self.write("proc/sys/kernel/osrelease", f"{KERNEL}\n")
        for number in range(8):
            self.device(f"0000:{0x18 + number:02x}:00.0", "0x2330", "0x030200")
        for number in range(4):
            self.device(f"0000:{0x05 + number:02x}:00.0", "0x22a3", "0x068000")
        self.bin.mkdir()
        for name in _TOOLS:
            values = {"kernel": KERNEL} if name == "modprobe" else {}
            stand_in(self.bin / name, f"driver_{name.replace('-', '_')}.sh", **values)
        (folder / "apt.conf").write_text(_CONFIG.format(root=self.root, architecture=ARCHITECTURE))
        for role in roles:
            shutil.copytree(ROOT / "roles" / role, folder / "roles" / role)
            for path in (folder / "roles" / role).glob("*/*.yml"):
                path.write_text(self._moved(path.read_text()))

    def _moved(self, text: str) -> str:
        """Return a file of a role with the paths and the names of roles that hold here."""
        moves = {
            "/var/lib/hpcai": f"{self.folder}/lib",
            "/etc/modules-load.d": str(self.folder),
            "/proc/driver": f"{self.root}/proc/driver",
            "name: hpcai.gpu_cluster.nvidia_driver\n": "name: nvidia_driver\n",
            # A local connection cannot reboot.
            "ansible.builtin.reboot:\n": "ansible.builtin.command:\n    cmd: node-reboot\n  vars:\n",
        }
        for path, place in moves.items():
            text = text.replace(path, place)
        return text

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def device(self, address: str, device: str, kind: str) -> None:
        for name, text in (("vendor", "0x10de"), ("device", device), ("class", kind)):
            self.write(f"sys/bus/pci/devices/{address}/{name}", f"{text}\n")

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "APT_", "DPKG_"))},
            "PATH": f"{self.folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "APT_CONFIG": str(self.folder / "apt.conf"),
            "DPKG_ROOT": str(self.root),
            "NODE_ROOT": str(self.root),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".build/collections"),
            "ANSIBLE_ROLES_PATH": str(self.folder / "roles"),
            "ANSIBLE_LOCAL_TEMP": str(self.folder / "tmp"),
            "ANSIBLE_REMOTE_TEMP": str(self.folder / "tmp"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_RETRY_FILES_ENABLED": "0",
        }

    def module(self, program: str, /, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        """Run a module as Ansible does, with the places of this node and the role's own table of packages."""
        given = {**self._places, **self.tables, "version": NEW, **options} if program == "nvidia_driver" else options
        given = {"root": str(self.root), **given, "_ansible_check_mode": check, "_ansible_remote_tmp": str(self.folder)}
        name = f"ansible_collections.hpcai.gpu_cluster.plugins.modules.{program}"
        text = json.dumps({"ANSIBLE_MODULE_ARGS": given})
        kept = {key: value for key, value in self.environment.items() if not key.startswith("ANSIBLE_")}
        environment = {**kept, "PYTHONPATH": str(ROOT / ".build/collections")}
        done = run_module(name, input=text, env=environment, cwd=self.folder, timeout=patience(600))
        assert done.stdout.lstrip().startswith("{"), done.stdout + done.stderr
        return dict(json.loads(done.stdout))

    def add_repository(self) -> None:
        site = {"url": self.repository.url, "key": f"{self.repository.url}key.pub"}
        fingerprints = [self.repository.fingerprint]
        added = self.module("package_repository", name="nvidia-cuda", manager="apt", fingerprints=fingerprints, **site)
        assert added["changed"], added

    @property
    def tables(self) -> dict[str, t.Any]:
        known = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/main.yml").read_text())
        return {
            "manager": "apt",
            "catalog": known["__nvidia_driver_catalogs"]["nvidia"]["Debian"],
            "fabric_manager": True,
        }

    @property
    def _places(self) -> dict[str, t.Any]:
        return {
            "root": str(self.root),
            "record": f"{self.folder}/lib/nvidia_driver.json",
            "hold_records": [f"{self.folder}/lib/nvidia_driver_hold.json"],
        }

    def play(
        self, role: str, *more: str, part: str = "main", hosts: str = "c1,", **given: t.Any
    ) -> subprocess.CompletedProcess[str]:
        places = self._places
        facts = {
            "os_family": "Debian",
            "distribution": "Debian",
            "distribution_major_version": "12",
            "architecture": "x86_64",
        }
        play = {
            "hosts": "all",
            "gather_facts": False,
            "serial": 1,
            "max_fail_percentage": 0,
            "module_defaults": {
                "hpcai.gpu_cluster.nvidia_driver": places,
                "hpcai.gpu_cluster.nvidia_driver_info": places,
                "hpcai.gpu_cluster.package_repository": {"root": str(self.root)},
            },
            "tasks": [
                {"ansible.builtin.set_fact": {**facts, "cacheable": True}},
                {"ansible.builtin.include_role": {"name": role, "tasks_from": part}},
                {
                    "ansible.builtin.copy": {
                        "dest": f"{self.folder}/result.json",
                        "content": "{{ nvidia_driver_result | default({}) | to_json }}",
                    },
                    "check_mode": False,
                    "changed_when": False,
                },
            ],
        }
        (self.folder / "play.json").write_text(json.dumps([play]))
        site = {
            "url": self.repository.url,
            "key": f"{self.repository.url}key.pub",
            "fingerprints": [self.repository.fingerprint],
        }
        variables = {
            "ansible_python_interpreter": interpreter(),
            "ansible_connection": "local",
            "ansible_remote_tmp": str(self.folder / "tmp"),
            "nvidia_driver_version": NEW,
            "nvidia_driver_repositories": {"cuda": site},
            **given,
        }
        words = ["-i", hosts, "-e", json.dumps(variables), *more, str(self.folder / "play.json")]
        return ansible_playbook(*words, env=self.environment, cwd=self.folder)

    @property
    def result(self) -> dict[str, t.Any]:
        return dict(json.loads((self.folder / "result.json").read_text()))

    def packages(self) -> dict[str, str]:
        """Return what is installed, and how dpkg was told to treat it."""
        argv = ["dpkg-query", "--show", "--showformat", "${Package} ${Version} ${db:Status-Want}\\n"]
        text = subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=False).stdout
        rows = [line.split() for line in text.splitlines()]
        return {name: f"{version} {want}" for name, version, want in rows if want != "deinstall"}

    def apt(self, *words: str) -> None:
        """An administrator's own apt."""
        subprocess.run(["apt-get", "--yes", *words], env=self.environment, capture_output=True, text=True, check=True)

    def mark(self, *words: str) -> None:
        subprocess.run(["apt-mark", *words], env=self.environment, capture_output=True, text=True, check=True)

    def reboot(self) -> None:
        """What is on the disk is loaded, and enabled units start."""
        subprocess.run(["modprobe", "nvidia"], env=self.environment, check=True)
        for path in (self.root / "units").glob("*.enabled"):
            path.with_suffix(".active").touch()
