# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bundle: what is in it, that it is the same every time, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import typing as t
import zipfile
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import bundle as node_bundle

ROOT = Path(__file__).resolve().parents[5]
GIVEN: dict[str, t.Any] = {"cluster_name": "lab", "cluster_sku": "generic", "slurm_controller_hosts": ["ctl"]}


def wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return folder


@pytest.fixture
def wheels(tmp_path: Path) -> list[str]:
    common = {"ansible/cli/playbook.py": "main = None", "ansible_test/x.py": "", "a-1.dist-info/WHEEL": "1"}
    one = wheel(tmp_path / "py311", "a-1-cp311.whl", {**common, "yaml/_yaml.cpython-311.so": "11"})
    two = {**common, "a-1.dist-info/WHEEL": "2", "yaml/_yaml.cpython-312.so": "12"}
    return [str(one), str(wheel(tmp_path / "py312", "a-1-cp312.whl", two))]


def request(dest: Path, wheels: list[str], **changes: t.Any) -> node_bundle.BundleRequest:
    wanted: dict[str, t.Any] = {
        "dest": str(dest),
        "collection": str(ROOT),
        "wheels": wheels,
        "scripts": {"bootstrap.sh": "#!/bin/sh\n"},
        "groups": ["slurm_compute"],
        "variables": GIVEN,
        "collections": [],
        "places": [],
        "budget": 900,
    }
    return node_bundle.BundleRequest(**{**wanted, **changes})


def test_what_the_playbook_calls_is_there_and_nothing_of_the_clouds() -> None:
    found, roles = node_bundle.collection(ROOT)
    assert {"nvme_scratch", "node_tuning", "gpu_clocks", "boot_order", "node_health_check", "slurm_compute"} <= {*roles}
    assert {"munge", "shared_storage", "slurm"} <= {*roles}  # by dependencies as well
    assert {"plugins/modules/nvme_scratch.py", "plugins/lookup/sku_profile.py", "plugins/filter/health_suites.py"} <= {
        *found
    }
    assert "plugins/plugin_utils/profiles/generic.yml" in found
    # Which version it is, for the check of the node's image.
    assert {"galaxy.yml", "plugins/lookup/collection_version.py"} <= {*found}
    clouds = (
        "plugins/module_utils/azure",
        "plugins/module_utils/cyclecloud",
        "plugins/modules/azure",
        "plugins/inventory",
    )
    assert not [path for path in found if path.startswith(clouds)]
    assert not [path for path in found if "__pycache__" in path]


def test_every_import_of_the_collection_is_there(tmp_path: Path) -> None:
    found, dummy = node_bundle.collection(ROOT)
    for path, file in found.items():
        if path.endswith(".py"):
            missing = [
                one
                for one in node_bundle.imported(ROOT, file.data.decode())
                if one.relative_to(ROOT).as_posix() not in found
            ]
            assert not missing, path


def test_the_node_s_part_runs_from_the_bundle_alone(tmp_path: Path) -> None:
    for path, file in node_bundle.collection(ROOT)[0].items():
        place = tmp_path / "ansible_collections/hpcai/gpu_cluster" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.data)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.apply import options\n"
        "print(options(['/b', 'd', '--budget', '5']).budget)"
    )
    done = subprocess.run([sys.executable, "-ISB", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "5\n"


def test_the_same_inputs_make_the_same_bytes(tmp_path: Path, wheels: list[str]) -> None:
    changed, first = node_bundle.keep(request(tmp_path / "a", wheels), False)
    assert changed
    again, second = node_bundle.keep(request(tmp_path / "a", wheels), False)
    assert not again
    assert second == first
    dummy, third = node_bundle.keep(request(tmp_path / "b", wheels), False)
    assert Path(third["path"]).read_bytes() == Path(first["path"]).read_bytes()
    assert first["name"] == f"hpcai-node-{first['digest'][:12]}.tar.gz"
    assert first["version"] == f"1.0.{int(first['digest'][:8], 16) & 0x7FFFFFFF}"


def test_other_variables_make_another_bundle(tmp_path: Path, wheels: list[str]) -> None:
    digests = {
        node_bundle.keep(request(tmp_path, wheels, variables={**GIVEN, "cluster_user": user}), False)[1]["digest"]
        for user in "ab"
    }
    assert len(digests) == 2


def test_a_bundle_that_was_cut_off_is_written_again(tmp_path: Path, wheels: list[str]) -> None:
    dummy, bundle = node_bundle.keep(request(tmp_path, wheels), False)
    path = Path(bundle["path"])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    changed, dummy = node_bundle.keep(request(tmp_path, wheels), False)
    assert changed
    assert path.read_bytes() == whole


def test_check_mode_writes_nothing_and_may_lack_wheels(tmp_path: Path, wheels: list[str]) -> None:
    changed, facts = node_bundle.keep(request(tmp_path / "a", wheels), True)
    assert changed
    assert facts["digest"] == node_bundle.keep(request(tmp_path / "b", wheels), False)[1]["digest"]
    assert node_bundle.keep(request(tmp_path / "a", ["/nowhere"]), True)[0]
    assert not (tmp_path / "a").exists()
    with pytest.raises(node_bundle.BundleError, match="no wheels in /nowhere"):
        node_bundle.keep(request(tmp_path / "a", ["/nowhere"]), False)


def test_the_archive_holds_what_it_says(tmp_path: Path, wheels: list[str]) -> None:
    dummy, bundle = node_bundle.keep(request(tmp_path, wheels, groups=["slurm_compute", "gpu"]), False)
    with tarfile.open(bundle["path"]) as archive:
        # What filter="data" would ask for, which not every Python 3.11 has: files below where it is unpacked.
        assert all(entry.isfile() or entry.isdir() for entry in archive)
        assert {Path(entry.name).parts[0] for entry in archive} == {bundle["folder"]}
        assert not any(".." in Path(entry.name).parts for entry in archive)
        archive.extractall(tmp_path)
        assert {entry.mtime for entry in archive} == {0}
        assert {(entry.uid, entry.uname) for entry in archive} == {(0, "")}
    home = tmp_path / bundle["folder"]
    done = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=home, capture_output=True, check=False)
    assert done.returncode == 0
    assert json.loads((home / "vars.yml").read_text()) == GIVEN
    assert {*json.loads((home / "inventory.yml").read_text())["all"]["children"]} == {"slurm_compute", "gpu"}
    assert json.loads((home / "manifest.json").read_text())["packages"] == ["a-1"]
    assert (home / "site/yaml/_yaml.cpython-311.so").is_file()
    assert (home / "site/yaml/_yaml.cpython-312.so").is_file()
    assert not (home / "site/ansible_test").exists()


def test_wheels_for_two_pythons_have_to_agree(tmp_path: Path) -> None:
    folders = [wheel(tmp_path / name, "a.whl", {"a.py": name}) for name in ("one", "two")]
    with pytest.raises(node_bundle.BundleError, match=r"another a\.py"):
        node_bundle.site(folders)


def test_another_collection_comes_from_the_first_place_that_has_it(tmp_path: Path) -> None:
    for place in ("one", "two"):
        home = tmp_path / place / "ansible_collections/a/b"
        (home / "tests").mkdir(parents=True)
        (home / "tests/x.py").touch()
        (home / "plugins").mkdir()
        (home / "plugins/p.py").write_text(place)
    assert node_bundle.whole("a.b", [str(tmp_path / "one"), str(tmp_path / "two")]) == {
        "plugins/p.py": node_bundle.BundleFile(b"one")
    }
    with pytest.raises(node_bundle.BundleError, match=r"no collection a\.c"):
        node_bundle.whole("a.c", [str(tmp_path)])


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path, wheels: list[str]) -> None:
    bad = {"cluster_slurm": "ours", "shared_storage_mounts": [{"password": "x"}], "munge_key": "y"}
    with pytest.raises(node_bundle.BundleError) as caught:
        node_bundle.keep(request(tmp_path, wheels, variables=bad, groups=["gpu"], budget=0), False)
    said = str(caught.value)
    for word in (
        "shared_storage_mounts[0].password",
        "munge_key looks",
        "slurm_compute",
        "cluster_name",
        "cluster_sku",
        "0 seconds",
    ):
        assert word in said
    with pytest.raises(node_bundle.BundleError, match="accepted: ours, cyclecloud"):
        node_bundle.keep(request(tmp_path, wheels, variables={**GIVEN, "cluster_slurm": "theirs"}), False)


def test_cyclecloud_s_slurm_needs_no_controller(tmp_path: Path, wheels: list[str]) -> None:
    node_bundle.keep(
        request(tmp_path, wheels, variables={"cluster_slurm": "cyclecloud", "cluster_sku": "generic"}), False
    )


ATTACKS: dict[str, t.Any] = {
    "slurm_settings.JobCompPass": {"slurm_settings": {"JobCompPass": "hunter2"}},
    "shared_storage_mounts[0].options": {
        "shared_storage_mounts": [{"options": "vers=3.1.1,username=a,password=hunter2"}]
    },
    "cluster_proxy": {"cluster_proxy": "http://me:hunter2@proxy.example.com:3128"},
    "cluster_image": {"cluster_image": "https://a.blob.core.windows.net/i/x.sqsh?sv=2022-11-02&sig=hunter2hunter2"},
    "cluster_tls_private_key_pem": {"cluster_tls_private_key_pem": "hunter2"},
    "cluster_api_tokens[0]": {"cluster_api_tokens": ["hunter2"]},
    "cluster_passwords.alice": {"cluster_passwords": {"alice": "hunter2"}},
}


@pytest.mark.parametrize("path", ATTACKS)
def test_a_secret_gets_into_no_bundle(tmp_path: Path, wheels: list[str], path: str) -> None:
    with pytest.raises(node_bundle.BundleError) as caught:
        node_bundle.keep(request(tmp_path, wheels, variables={**GIVEN, **ATTACKS[path]}), False)
    assert f"{path} looks like a secret" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert not list(tmp_path.glob("*.tar.gz"))


def test_what_only_looks_like_a_secret_can_be_named(tmp_path: Path, wheels: list[str]) -> None:
    given = {**GIVEN, "cluster_key": "the key of C major"}
    assert node_bundle.keep(request(tmp_path, wheels, variables=given, not_secret=["cluster_key"]), False)[0]


def test_what_nothing_in_the_bundle_reads_stays_out(tmp_path: Path, wheels: list[str]) -> None:
    inventory = {
        "cluster_storage_hunter": "hunter2",  # looks like nothing, and nothing reads it
        "slurm_partitions_note": "hunter2",
        "nvme_scratch_chunk": "512K",
        "cluster_health_check": True,
        "cluster_name": "another",
    }
    bundle = node_bundle.build(request(tmp_path, wheels, inventory=inventory))
    assert bundle.left_out == ["cluster_storage_hunter", "slurm_partitions_note"]
    assert "hunter2" not in b"".join(file.data for file in bundle.files.values()).decode(errors="replace")
    held = json.loads(bundle.files["vars.yml"].data)
    assert held == {**GIVEN, "nvme_scratch_chunk": "512K", "cluster_health_check": True}


def test_every_input_of_a_role_in_the_bundle_may_go_in() -> None:
    ours, roles = node_bundle.collection(ROOT)
    names = node_bundle.read_names(ours)
    own = {*yaml.safe_load((ROOT / "playbooks/node.yml").read_text())[0]["vars"]}  # the playbook decides
    for role in roles:
        path = ROOT / "roles" / role / "meta/argument_specs.yml"
        specs = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]
        inputs = {name for spec in specs.values() for name in spec.get("options", {})}
        assert inputs - own <= names, role


def test_passwords_for_registries_stay_out_though_the_role_that_reads_them_is_there(
    tmp_path: Path, wheels: list[str]
) -> None:
    given = {"enroot_credentials": [{"user": "anna", "machine": "nvcr.io", "login": "x", "password": "hunter2"}]}
    bundle = node_bundle.build(request(tmp_path, wheels, inventory={**given, "enroot_cache_until": 70}))
    assert bundle.left_out == ["enroot_credentials"]
    assert json.loads(bundle.files["vars.yml"].data)["enroot_cache_until"] == 70


def test_containers_of_our_own_slurm_need_no_other_collection() -> None:
    """What a node lacks, as a filter of community.general, is read only where something is fetched or built."""
    found, roles = node_bundle.collection(ROOT)
    assert {"enroot", "pyxis", "host_facts"} <= {*roles}
    plays = yaml.safe_load((ROOT / "playbooks/node.yml").read_text())
    given = plays[0]["vars"]
    assert (given["enroot_origin"], given["pyxis_origin"], given["enroot_credentials"]) == ("image", "image", [])
    assert "roles/enroot/tasks/image.yml" in found
    foreign = {
        path
        for path, file in found.items()
        if path.endswith((".yml", ".j2")) and "argument_specs" not in path
        for text in [file.data.decode()]
        if path.startswith("roles/") and re.search(r"\b(?:community|ansible)\.(?:general|posix)\.", text)
    }
    assert foreign <= {"roles/pyxis/vars/main.yml"}, foreign


def test_only_its_owner_reads_the_bundle_on_the_control_host(tmp_path: Path, wheels: list[str]) -> None:
    path = Path(node_bundle.keep(request(tmp_path, wheels), False)[1]["path"])
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)  # as earlier versions left it
    assert node_bundle.keep(request(tmp_path, wheels), True)[0]
    assert path.stat().st_mode & 0o777 == 0o644
    assert node_bundle.keep(request(tmp_path, wheels), False)[0]
    assert path.stat().st_mode & 0o777 == 0o600
    assert not node_bundle.keep(request(tmp_path, wheels), False)[0]


def test_names_that_sha256sum_would_escape_are_refused() -> None:
    with pytest.raises(node_bundle.BundleError):
        node_bundle.sums({"a\nb": node_bundle.BundleFile(b"")})
