# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What node_info tells, and that roles which are told something else ask for themselves."""

from __future__ import annotations

import hashlib
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _systemd
from ansible_collections.hpcai.gpu_cluster.plugins.modules import node_info

ROOT = Path(__file__).resolve().parents[4]


class Machine:
    """An AnsibleModule of a machine that answers with what a test gives it."""

    def __init__(self, tools: t.Mapping[str, tuple[int, str]], **params: t.Any) -> None:
        self.tools, self.asked = tools, list[list[str]]()
        self.params = {"slurm": True, **params}
        self.tmpdir = None

    def get_bin_path(self, name: str, *dummy: t.Any, **dummies: t.Any) -> str | None:
        return f"/usr/bin/{name}" if name in self.tools else None

    def run_command(self, argv: list[str], **dummy: t.Any) -> tuple[int, str, str]:
        self.asked.append(argv)
        return (*self.tools[argv[0].rpartition("/")[2]], "")


def machine(**tools: tuple[int, str]) -> t.Any:
    return Machine({name.replace("_", "-"): said for name, said in tools.items()})


def test_only_what_is_wholly_installed_counts() -> None:
    seen = machine(dpkg_query=(1, "installed munge\nconfig-files slurmd\nnot-installed fio\nunpacked mdadm\n"))
    assert node_info.installed(seen, ["munge", "slurmd", "fio", "mdadm", "unknown"]) == ["munge"]
    assert node_info.installed(machine(), ["munge"]) == []
    assert node_info.installed(seen, []) == []
    assert len(seen.asked) == 1


def test_services_by_name() -> None:
    seen = machine(systemctl=(3, "inactive\nactive\n"))
    assert node_info.services(seen, ["a.service", "b.service"]) == {"a.service": "inactive", "b.service": "active"}
    assert node_info.services(machine(), ["a.service"]) == {}


def test_a_slurm_that_does_not_tell_is_asked_by_whoever_needs_to_know() -> None:
    assert node_info.slurm(machine(sinfo=(0, "slurm-wlm 24.11.5\n"))) == "24.11.5"
    assert node_info.slurm(machine(sinfo=(127, "no such library"))) == ""
    assert node_info.slurm(machine()) == ""


def test_files_change_with_content_mode_and_kind(tmp_path: Path) -> None:
    path, folder, link = tmp_path / "file", tmp_path / "folder", tmp_path / "link"
    path.write_bytes(b"\0one")
    path.chmod(0o640)
    folder.mkdir(mode=0o700)
    link.symlink_to(path)
    found = node_info.files([str(path), str(folder), str(link), str(tmp_path / "none")])
    assert list(found) == [str(path), str(folder), str(link)]
    assert found[str(path)].split()[1:] == ["0640", hashlib.sha256(b"\0one").hexdigest()]
    assert found[str(folder)].split()[1:] == ["0700"]
    assert found[str(link)].split()[1:] == ["0777"]


def test_the_files_of_a_service_are_told_of_where_nobody_else_could_exchange_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, link = tmp_path / "library", tmp_path / "link"
    (library / "below").mkdir(parents=True)
    (library / "below/a.py").write_bytes(b"one")
    (library / "below/a.cpython-311.pyc").write_bytes(b"written when the program runs")
    link.symlink_to(library / "below/a.py")
    wanted = [
        {"name": "settled", "files": [str(library), str(link), str(tmp_path / "none")]},
        {"name": "stopped", "files": []},
    ]
    asked: dict[str, t.Any] = {}

    def settled(dummy: t.Any, services: dict[str, list[str]]) -> list[str]:
        asked.update(services)
        return ["settled"]

    monkeypatch.setattr(_systemd, "settled", settled)
    (file,) = (told := node_info.units(machine(systemctl=(0, "")), wanted)["settled"])
    assert asked == {"settled": [file, str(link), str(tmp_path / "none")], "stopped": []}
    assert file == str(library / "below/a.py") and told[file].split()[2] == hashlib.sha256(b"one").hexdigest()
    (library / "below").chmod(0o777)
    assert node_info.units(machine(systemctl=(0, "")), wanted) == {"settled": {}}
    assert node_info.units(machine(), wanted) == {}


@pytest.mark.parametrize(
    "role, name, files",
    [
        ("nvme_scratch", "unit", ["settings", "library", "program"]),
        ("gpu_clocks", "unit", ["settings", "library", "program"]),
        ("node_health_check", "gate", ["config", "zipapp", "agent", "program"]),
        ("boot_order", "target", ["target_file", "program"]),
    ],
)
def test_configure_has_looked_at_what_roles_have_of_their_services(role: str, name: str, files: list[str]) -> None:
    """Another path costs time in each run; the scenario faults has a run in which nothing of this is left to do."""
    plays = yaml.safe_load((ROOT / "playbooks/configure_steps/inventory.yml").read_text())
    units = {unit["name"]: unit["files"] for unit in plays[0]["tasks"][0]["hpcai.gpu_cluster.node_info"]["units"]}
    values = yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text())
    looked = units[values[f"__{role}_{name}"]]
    for file in files:
        assert values[f"__{role}_{file}"].replace(f"{{{{ __{role}_{name} }}}}", values[f"__{role}_{name}"]) in looked


def test_facts_have_the_names_that_setup_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Machine({}, facts=["!all", "!min", "distribution"])
    monkeypatch.setattr(node_info, "ansible_facts", lambda module, wanted: {"distribution": wanted[-1], "local": {}})
    assert node_info.facts(t.cast(t.Any, seen)) == {"ansible_distribution": "distribution", "ansible_local": {}}


@pytest.mark.parametrize(
    "role, packages",
    [
        ("munge", "munge_packages"),
        ("nvme_scratch", "__nvme_scratch_packages_of[nvme_scratch_filesystem]"),
        ("shared_storage", "__shared_storage_packages"),
    ],
)
def test_a_role_installs_what_it_was_not_told_of(role: str, packages: str) -> None:
    (task,) = yaml.safe_load((ROOT / f"roles/{role}/tasks/install.yml").read_text())
    assert task["when"] == f"__{role}_missing | length > 0"
    missing = yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text())[f"__{role}_missing"]
    told = f"{packages} | difference((hpcai_node | default({{}}))['packages'] | default([]))"
    assert " ".join(missing.split()) == f"{{{{ {told} }}}}"


def test_role_slurm_installs_what_it_was_not_told_of_and_takes_one_step_where_nothing_is_missing() -> None:
    (step,) = yaml.safe_load((ROOT / "roles/slurm/tasks/packages.yml").read_text())
    wanted = yaml.safe_load((ROOT / "roles/slurm/vars/main.yml").read_text())
    assert step["when"] == "slurm_packages_due"
    assert "__slurm_packages_missing | length > 0" in wanted["slurm_packages_due"]
    told = "(hpcai_node | default({}))['packages'] | default([])"
    assert wanted["__slurm_packages_missing"] == f"{{{{ __slurm_packages_by_apt | difference({told}) }}}}"


def test_configure_asks_for_all_that_roles_install_by_default() -> None:
    plays = yaml.safe_load((ROOT / "playbooks/configure_steps/inventory.yml").read_text())
    asked = set(plays[0]["tasks"][0]["hpcai.gpu_cluster.node_info"]["packages"])
    for role in ("munge", "slurm_controller", "slurm_compute", "slurm_login", "slurm_database"):
        defaults = yaml.safe_load((ROOT / f"roles/{role}/defaults/main.yml").read_text())
        assert {one for key, value in defaults.items() if key.endswith("_packages") for one in value} <= asked, role
