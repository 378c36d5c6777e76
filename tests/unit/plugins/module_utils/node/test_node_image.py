# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image has nothing of the machine that it was made of, no secret, and says what it was made with."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import image
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.image import BakeRequest, ImageError

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n"
OWN = {
    "etc/hpcai/cifs/-data": "password=geheim\n",
    "etc/machine-id": "2c26b46b68ffc68ff99b453c1d304134\n",
    "etc/munge/munge.key": "m" * 128,
    "etc/ssh/ssh_host_ed25519_key": KEY,
    "etc/ssh/ssh_host_ed25519_key.pub": "ssh-ed25519 AAAA\n",
    "home/admin/.bash_history": "mysql -pgeheim\n",
    "root/.ssh/known_hosts": "ctl ssh-ed25519 AAAA\n",
    "var/lib/cloud/instance/user-data.txt": "token: geheim\n",
    "var/lib/dhcp/dhclient.eth0.leases": "lease {}\n",
    "var/lib/hpcai/agent/records/boot-1.jsonl": "{}\n",
    "var/lib/systemd/credential.secret": "s" * 32,
    "var/lib/systemd/random-seed": "r" * 32,
    "var/log/auth.log": "Accepted publickey\n",
    "var/log/journal/2c26/system.journal": "j",
    "var/log/munge/munged.log": "started\n",
    "tmp/left.txt": "left",
}
STAYS = {
    "etc/hostname": "bake\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\nadmin:!:19000:0:99999:7:::\n",
    "etc/fstab": "LABEL=root / ext4 defaults 0 1\n# //ctl/data /data cifs password=example 0 0\n",
    "etc/ssh/sshd_config": "UsePAM yes\n",
    "home/admin/.ssh/authorized_keys": "ssh-ed25519 AAAA\n",
    "tmp/systemd-private-1/tmp": "in use",
    "var/lib/cloud/seed/nocloud/meta-data": "local-hostname: node\n",
    "var/lib/hpcai/nvidia_driver.json": "{}\n",
    "var/lib/hpcai/deb_packages.json": "{}\n",
}


def put(root: Path, files: t.Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, {**OWN, **STAYS, "etc/os-release": 'ID=debian\nVERSION_ID="12"\n'})
    for kernel in ("6.1.0-9-amd64", "6.1.0-31-amd64"):
        (tmp_path / "lib/modules" / kernel).mkdir(parents=True)
    return tmp_path


def left(root: Path) -> dict[str, str]:
    files = [path for path in root.rglob("*") if path.is_file() and path.stat().st_size]
    return {path.relative_to(root).as_posix(): path.read_text() for path in files}


def gone(root: Path, more: t.Sequence[str] = ()) -> list[str]:
    return [trace.path for trace in image.traces(root, more) if trace.action == "remove"]


def test_what_is_the_machine_s_own_goes_and_the_rest_stays(root: Path) -> None:
    assert image.secrets(root, gone(root)) == []
    image.clean(root, image.traces(root))
    assert {name: text for name, text in left(root).items() if name in {**OWN, **STAYS}} == STAYS
    assert (root / "etc/machine-id").stat().st_size == 0, "missing, systemd would take the boot for the first of all"
    assert (root / "var/log/munge/munged.log").exists(), "munged opens no log that is not its own"
    assert image.traces(root) == []


def test_what_is_meant_to_stay_stays(root: Path) -> None:
    """Such as a munge key, where whoever can read the image may have it."""
    keep = ["/etc/munge/munge.key", "/var/log/munge", "/var/lib/cloud"]
    image.clean(root, image.traces(root, keep=keep))
    stayed = {"etc/munge/munge.key", "var/log/munge/munged.log", "var/lib/cloud/instance/user-data.txt"}
    assert set(left(root)) & set(OWN) == stayed


def test_what_is_to_stay_in_a_directory_that_goes_is_refused(root: Path) -> None:
    path = "/var/lib/cloud/instance/user-data.txt"
    with pytest.raises(ImageError, match=f"{path} is to be kept, and is in /var/lib/cloud/instance,"):
        image.traces(root, keep=[path])


def test_the_blocks_of_a_removed_key_hold_it_no_more(root: Path) -> None:
    # A second name for the same file is one that stays; an open file has its blocks still.
    with (root / "etc/munge/munge.key").open("rb", buffering=0) as key:
        image.clean(root, image.traces(root))
        assert key.read() == bytes(128)


def test_nothing_is_reached_through_a_link(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    victim = tmp_path_factory.mktemp("victim")
    put(victim, {"known_hosts": "mine\n", "cache/file": "mine\n"})
    (root / "home/mallory").mkdir()
    (root / "home/mallory/.ssh").symlink_to(victim)
    (root / "var/tmp").mkdir()
    (root / "var/tmp/link").symlink_to(victim / "cache")
    (root / "etc/munge/munge.key").unlink()
    (root / "etc/munge/munge.key").symlink_to(victim / "known_hosts")
    image.clean(root, image.traces(root))
    assert left(victim) == {"known_hosts": "mine\n", "cache/file": "mine\n"}
    assert not os.path.lexists(root / "var/tmp/link") and not os.path.lexists(root / "etc/munge/munge.key")


@pytest.mark.parametrize("path", ["tmp/folder/passwd", "home/admin/.ssh/known_hosts", "var/log/app/sub/log"])
def test_a_directory_that_is_exchanged_for_a_link_meanwhile_leads_nowhere(
    root: Path, tmp_path_factory: pytest.TempPathFactory, path: str
) -> None:
    victim = tmp_path_factory.mktemp("victim")
    put(root, {path: "mine\n"})
    put(victim, {Path(path).name: "of root\n"})
    found = [trace for trace in image.traces(root) if Path(path) == Path(trace.path) or trace.path in path]
    folder = (root / path).parent
    (root / path).unlink()
    folder.rename(folder.with_name("aside"))
    folder.symlink_to(victim)
    with contextlib.suppress(OSError):
        image.clean(root, found)
    assert found and left(victim) == {Path(path).name: "of root\n"}


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("root/.ssh/id_ed25519", KEY, "is a private key"),
        (
            "etc/ssl/private/site.pem",
            "-----BEGIN CERTIFICATE-----\nx\n" + KEY.replace("OPENSSH ", ""),
            "is a private key",
        ),
        ("home/admin/.docker/config.json", "{}", "holds credentials"),
        ("etc/apt/auth.conf.d/mirror.conf", "machine x login y password z", "holds credentials"),
        ("etc/shadow", "root:$y$j9T$abc:19000:0:99999:7:::\n", "has a password of root"),
        ("etc/shadow", "root:*:1::::::\nadmin:!$6$abc:19000::::::\n", "has a password of admin"),
        (
            "etc/fstab",
            "//ctl/data /data cifs rw,username=u,password=geheim 0 0\n",
            "has a password among the options of a mount",
        ),
        ("var/lib/dkms/mok.key", "DER", "signs kernel modules"),
        ("opt/site/agent/tls.key", KEY, "is a private key"),
    ],
)
def test_a_secret_of_a_person_stays_and_is_named(root: Path, path: str, text: str, reason: str) -> None:
    put(root, {path: text})
    assert image.secrets(root, gone(root)) == [(path, reason)]
    assert image.secrets(root, gone(root), keep=[f"/{path}"]) == []
    assert image.secrets(root, gone(root, [f"/{path}"])) == []


@pytest.mark.parametrize("path", ["", "/", "/etc/../boot"])
def test_a_path_that_leads_elsewhere_is_refused(root: Path, path: str) -> None:
    with pytest.raises(ImageError, match="absolute paths without"):
        image.traces(root, [path])


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("etc/slurm/slurm.conf", "the configuration of Slurm"),
        ("etc/systemd/system/hpcai-scratch.service", "a unit of a node"),
        ("etc/systemd/system/slurmd.service.d/zz-hpcai-node.conf", "the slurmd of a cluster"),
    ],
)
def test_a_node_of_a_cluster_is_no_source_of_an_image(root: Path, path: str, what: str) -> None:
    put(root, {"etc/systemd/system/hpcai-host-keys.service": "[Unit]\n"})
    assert image.of_a_cluster(root) == []
    put(root, {path: ""})
    assert image.of_a_cluster(root) == [f"/{path} is {what}"]


REQUEST = BakeRequest("0.2.0", "2026-11-23T08:00:00Z", "570.86.15", named=["slurm*", "munge"])
PACKAGES = {"slurmd": "22.05.8-4+deb12u3", "munge": "0.5.15-2", "libc6": "2.36-9"}


def test_the_image_says_what_it_was_made_with(root: Path) -> None:
    record = image.describe(root, PACKAGES, REQUEST)
    image.write(root, record)
    path = root / "etc/hpcai/image.json"
    assert image.read_record(str(path)) == record and path.stat().st_mode & 0o777 == 0o644
    assert {key: value for key, value in record.items() if key != "packages_digest"} == {
        "schema": 1,
        "collection": "0.2.0",
        "date": "2026-11-23T08:00:00Z",
        "system": "debian 12",
        "kernel": "6.1.0-31-amd64",
        "slurm": "22.05.8",
        "driver": "570.86.15",
        "bundle": "",
        "packages": {"munge": "0.5.15-2", "slurmd": "22.05.8-4+deb12u3"},
    }
    other = image.describe(root, {**PACKAGES, "libc6": "2.36-10"}, REQUEST)
    assert other["packages_digest"] != record["packages_digest"]


def test_the_description_outlives_the_cleaning(root: Path) -> None:
    image.write(root, image.describe(root, PACKAGES, REQUEST))
    image.clean(root, image.traces(root))
    assert json.loads((root / "etc/hpcai/image.json").read_text())["collection"] == "0.2.0"


def test_a_machine_of_the_image_makes_its_own_host_keys_and_shows_its_description(root: Path) -> None:
    record = image.describe(root, PACKAGES, REQUEST)
    image.write(root, record)
    assert image.unwritten(root, record) == []
    system = root / "etc/systemd/system"
    link = system / "multi-user.target.wants/hpcai-host-keys.service"
    assert os.readlink(link) == "/etc/systemd/system/hpcai-host-keys.service"
    assert "ExecStart=/usr/bin/ssh-keygen -A" in (system / "hpcai-host-keys.service").read_text()
    assert os.readlink(root / "etc/ansible/facts.d/hpcai_image.fact") == "/etc/hpcai/image.json"
    link.unlink()
    assert image.unwritten(root, record) == [link.relative_to(root).as_posix()]


def test_a_service_that_starts_at_boot_is_found(root: Path) -> None:
    assert image.enabled(root, ["munge", "slurmd"]) == []
    put(root, {"lib/systemd/system/munge.service": "", "etc/systemd/system/multi-user.target.wants/munge.service": ""})
    assert image.enabled(root, ["munge", "slurmd"]) == ["munge"]


def test_the_date_stays_where_nothing_else_has_changed(root: Path) -> None:
    before = image.describe(root, PACKAGES, REQUEST)
    later = image.describe(root, PACKAGES, REQUEST._replace(date="2026-12-01T00:00:00Z"))
    assert image.settled(before, later) == before
    assert image.settled({**before, "slurm": "21.08"}, later) == later
    assert image.settled(None, later) == later


@pytest.mark.parametrize(
    ("record", "cluster", "found"),
    [
        ({"collection": "0.1.0"}, {"collection": "0.2.0"}, ["hpcai.gpu_cluster 0.1.0, the cluster has 0.2.0"]),
        ({"collection": "0.10.0"}, {"collection": "0.9.1"}, []),
        ({"slurm": "22.05.8"}, {"slurm": "24.11"}, ["Slurm 22.05.8, the cluster has 24.11"]),
        ({"slurm": "24.11.5"}, {"slurm": "24.11"}, []),
        ({"slurm": "24.11.5"}, {"slurm": "1:24.11.5-4"}, []),
        ({"driver": "550.54.15"}, {"driver": "570.86.15"}, ["the GPU driver 550.54.15, the cluster has 570.86.15"]),
        ({"slurm": ""}, {"slurm": "24.11"}, []),
        ({"slurm": "22.05.8"}, {"slurm": ""}, []),
        ({"slurm": ["22.05"]}, {"slurm": "24.11"}, []),
    ],
)
def test_an_image_is_older_where_one_of_its_versions_is(
    record: dict[str, t.Any], cluster: dict[str, t.Any], found: list[str]
) -> None:
    assert image.older(record, cluster) == found


def test_a_machine_without_an_image_of_ours_has_none(tmp_path: Path) -> None:
    assert image.read_record(str(tmp_path / "image.json")) is None


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2}', "\xff"])
def test_a_damaged_description_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "image.json").write_text(text, encoding="latin-1")
    with pytest.raises(ImageError, match=r"image\.json"):
        image.read_record(str(tmp_path / "image.json"))
