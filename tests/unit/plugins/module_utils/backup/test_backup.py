# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups of slurmctld's state, for real; which backup may be restored; and numbers of jobs that never go backwards."""

from __future__ import annotations

import errno
import os
import pwd
import stat
import tarfile
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup import apply, model, read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup.module import SPEC, Backup

# The first 35 bytes of the job_state of Slurm 22.05.8 whose next job is 2, and a job's record, shortened.
HEAD = bytes.fromhex("00000011" + b"PROTOCOL_VERSION\0".hex() + "2600" + "000000006b03f91f" + "00000002")
REST = b"\0\0\0\0\0\0\0\0the jobs"
MANIFEST: dict[str, t.Any] = {
    "schema": 1,
    "name": "controller-20261123T020000Z",
    "part": "controller",
    "cluster": "lab",
}


@pytest.mark.parametrize(("at_least", "following"), [(0, 2), (2, 2), (3, 3), (67043328, 67043328)])
def test_the_next_number_is_only_ever_raised(at_least: int, following: int) -> None:
    after = model.with_next_job(HEAD + REST, at_least)
    assert model.next_job(after) == following
    assert after[len(HEAD) :] == REST and after[:31] == HEAD[:31]


def test_a_state_of_another_form_is_not_changed() -> None:
    for state in (b"", HEAD[:-1], b"\0\0\0\x08VERSION\0" + HEAD, HEAD.replace(b"PROTOCOL", b"protocol")):
        with pytest.raises(model.BackupError, match="does not begin as"):
            model.with_next_job(state, 9)
    with pytest.raises(model.BackupError, match="MaxJobId is 67043328"):
        model.with_next_job(HEAD, 67043329)


@pytest.mark.parametrize(
    ("made", "installed", "words"),
    [
        ("22.05.8", "22.05.8", ""),
        ("22.05.9", "22.05.8", ""),  # a release's files are one form
        ("22.05.8", "23.11.4", ""),
        ("24.11.5", "26.05.1", ""),
        ("24.11.5", "23.11.4", "cannot read what a newer release wrote"),
        ("22.05.8", "24.11.5", "takes over from 24.05, 23.11, 23.02 and not from 22.05.8"),
    ],
)
def test_which_release_can_take_a_backup_over(made: str, installed: str, words: str) -> None:
    text = model.unreadable({**MANIFEST, "version": made}, "controller", "lab", installed)
    assert words in text and bool(words) == bool(text)


def test_a_backup_of_another_cluster_or_form_is_refused() -> None:
    manifest = {**MANIFEST, "version": "22.05.8"}
    assert "is of cluster 'lab', and this is 'other'" in model.unreadable(manifest, "controller", "other", "22.05.8")
    assert "of another form" in model.unreadable({**manifest, "schema": 2}, "controller", "lab", "22.05.8")
    assert "of another form" in model.unreadable(manifest, "accounting", "lab", "22.05.8")


def test_the_oldest_go_and_what_a_restore_or_somebody_else_put_there_stays() -> None:
    names = [model.set_name("controller", f"2026112{day}T020000Z") for day in range(4)]
    others = [f"{names[0]}-replaced", "controller-notes", "accounting-20261120T020000Z", f"{names[1]}.partial"]
    assert model.surplus([*names, *others], "controller", 2) == names[:2]
    assert model.surplus(names, "controller", 0) == [] == model.surplus(names, "controller", 4)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A controller with two jobs, in directories of this test's own, whose slurmctld is stopped."""
    state, config = tmp_path / "spool/state", tmp_path / "etc"
    (state / "hash.1/job.1").mkdir(parents=True)
    (state / "job_state").write_bytes(HEAD + REST)
    (state / "hash.1/job.1/script").write_text("#!/bin/sh\n")
    config.mkdir()
    (config / "slurm.conf").write_text(f"ClusterName=lab\nStateSaveLocation={state}\n")
    (config / "slurmdbd.conf").write_text("StoragePass=secret\n")
    monkeypatch.setattr(read, "installed", lambda part: "22.05.8")
    monkeypatch.setattr(read, "runs", lambda part: False)
    return tmp_path


def call(directory: Path, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
    defaults = {name: option.get("default") for name, option in SPEC.items()}
    own = {
        "part": "controller",
        "cluster": "lab",
        "directory": str(directory / "backups"),
        "config": str(directory / "etc"),
    }
    return Backup({**defaults, **own, **params}, check).perform()


def test_a_state_comes_back_with_all_files_and_a_higher_number(cluster: Path) -> None:
    made = call(cluster)
    kept = Path(made["place"])
    assert {path.name for path in kept.iterdir()} == {"manifest.json", "slurm.conf", "state.tar.gz"}, "no secrets"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700 == stat.S_IMODE(kept.parent.stat().st_mode)
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()} == {0o600}
    state = cluster / "spool/state"
    (state / "job_state").write_bytes(model.with_next_job(HEAD, 40) + b"later jobs")
    (state / "hash.1/job.1/script").unlink()
    assert call(cluster, check=True, state="restored")["changed"]
    assert (state / "job_state").read_bytes().endswith(b"later jobs"), "check mode restored"
    restored = call(cluster, state="restored", next_job=30)
    assert restored["next_job"] == 40
    assert (state / "job_state").read_bytes() == model.with_next_job(HEAD, 40) + REST
    assert (state / "hash.1/job.1/script").read_text() == "#!/bin/sh\n"
    assert (Path(restored["replaced"]) / "job_state").read_bytes().endswith(b"later jobs")
    assert not list((cluster / "spool").glob("*.restoring"))


def test_a_backup_of_the_same_second_waits_for_the_next(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = iter(["20261123T182056Z", "20261123T182056Z", "20261123T182056Z", "20261123T182057Z"])
    monkeypatch.setattr(apply, "stamp", lambda: next(stamps))
    first, second = (call(cluster) for dummy in range(2))
    assert [first["backup"]["name"], second["backup"]["name"]] == [
        "controller-20261123T182056Z",
        "controller-20261123T182057Z",
    ]
    assert Path(first["place"]).is_dir() and Path(second["place"]).is_dir()


def test_a_file_system_that_renames_no_directory_gets_the_files_one_by_one(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(cluster)
    state = cluster / "spool/state"
    (state / "job_state").write_bytes(HEAD + b"later jobs")
    (state / "node_state").write_text("later")
    rename = Path.rename

    def refuse(path: Path, target: Path) -> t.Any:
        if path == state:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    kept = Path(call(cluster, state="restored")["replaced"])
    assert sorted(path.name for path in state.iterdir()) == ["hash.1", "job_state"]
    assert (state / "job_state").read_bytes() == HEAD + REST
    assert (kept / "node_state").read_text() == "later"
    assert sorted(path.name for path in (cluster / "spool").iterdir()) == ["state", kept.name]


def test_what_is_not_as_it_was_made_is_not_restored(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Path(call(cluster)["place"])
    for params, words in (
        ({"name": "controller-20200101T000000Z"}, "there are: " + kept.name),
        ({"cluster": "other"}, "is of cluster 'lab'"),
    ):
        with pytest.raises(model.BackupError, match=words):
            call(cluster, state="restored", **params)
    monkeypatch.setattr(read, "runs", lambda part: True)
    with pytest.raises(model.BackupError, match=r"slurmctld runs; stop it.*restore_stop=true"):
        call(cluster, state="restored")
    (kept / "slurm.conf").write_text("ClusterName=lab # changed\n")
    with pytest.raises(model.BackupError, match="another SHA-256"):
        call(cluster, state="restored")


def test_a_directory_in_which_others_can_put_backups_is_refused(cluster: Path) -> None:
    (cluster / "backups").mkdir()
    (cluster / "backups").chmod(0o777)
    (cluster / "backups/controller-20261123T020000Z").mkdir()
    for state in ("present", "restored"):
        with pytest.raises(model.BackupError, match="backups are root's alone"):
            call(cluster, state=state)


@pytest.mark.parametrize("name", ["../../outside", "/outside"])
def test_an_archive_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "state.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(model.BackupError, match="no file or directory of a state"):
        apply.unpack(tmp_path / "state.tar.gz", tmp_path / "into", (os.geteuid(), os.getegid()), 0)
    assert not list(tmp_path.glob("**/outside"))


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("job_state")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "elsewhere")
    with tarfile.open(tmp_path / "state.tar.gz", "w:gz") as archive:
        archive.addfile(link)
    with pytest.raises(model.BackupError, match="no file or directory of a state"):
        apply.unpack(tmp_path / "state.tar.gz", tmp_path / "into", (os.geteuid(), os.getegid()), 0)


def test_a_script_that_goes_while_it_is_packed_is_no_fault(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = cluster / "spool/state"
    (state / "hash.1/job.2").mkdir()
    (state / "hash.1/job.2/script").write_text("gone soon")
    add, names = apply._add, []

    def ended(archive: tarfile.TarFile, base: Path, path: Path) -> None:
        names.append(path.name)
        (state / "hash.1/job.2/script").unlink(missing_ok=True)
        add(archive, base, path)

    monkeypatch.setattr(apply, "_add", ended)
    directory = Path(call(cluster)["place"])
    assert names[0] == "job_state", "the list of jobs is packed before their scripts"
    with tarfile.open(directory / "state.tar.gz") as archive:
        assert "hash.1/job.1/script" in archive.getnames() and "hash.1/job.2/script" not in archive.getnames()


@pytest.fixture
def slurm_user(tmp_path: Path, let_others_pass: t.Callable[[Path], None]) -> tuple[pwd.struct_passwd, Path]:
    """Who stands for SlurmUser, and the place for a state in a directory of theirs; state.tar.gz is the backup."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    let_others_pass(tmp_path)
    nobody, packed, theirs = pwd.getpwnam("nobody"), tmp_path / "packed", tmp_path / "slurm"
    (packed / "hash.0/job.7").mkdir(parents=True)
    (packed / "hash.0/job.7/script").write_text("#!/bin/sh\n")
    (packed / "job_state").write_bytes(HEAD + REST)
    with tarfile.open(tmp_path / "state.tar.gz", "w:gz") as archive:
        for name in ("job_state", "hash.0", "hash.0/job.7", "hash.0/job.7/script"):
            archive.add(packed / name, name, recursive=False)
    theirs.mkdir()
    os.chown(theirs, nobody.pw_uid, nobody.pw_gid)
    return nobody, theirs / "state.restoring"


def test_a_state_is_unpacked_as_its_owner_from_a_directory_that_is_roots_alone(
    tmp_path: Path, slurm_user: tuple[pwd.struct_passwd, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules run in root's home, which SlurmUser may not even look into."""
    nobody, into = slurm_user
    home = tmp_path / "root"
    home.mkdir(mode=0o700)
    monkeypatch.chdir(home)
    assert apply.unpack(tmp_path / "state.tar.gz", into, (nobody.pw_uid, nobody.pw_gid), 0) > 0
    assert (into / "hash.0/job.7/script").stat().st_uid == nobody.pw_uid
    assert Path.cwd() == home


def test_who_owns_the_state_cannot_have_root_write_elsewhere(
    tmp_path: Path, slurm_user: tuple[pwd.struct_passwd, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory above the state is SlurmUser's, who puts a link to a place of root's in the way meanwhile."""
    nobody, into = slurm_user
    victim, theirs, fill = tmp_path / "roots", into.parent, apply.private
    (victim / "job.7").mkdir(parents=True)

    def race(path: Path) -> t.BinaryIO:
        """What SlurmUser can do at any moment; here it is done at the first file."""
        if path.name == "job_state":
            into.rename(theirs / "away")
            into.mkdir()
            (into / "hash.0").symlink_to(victim)
            (theirs / "away/hash.0").symlink_to(victim)
        return fill(path)

    monkeypatch.setattr(apply, "private", race)
    with pytest.raises(model.BackupError, match="Permission denied"):
        apply.unpack(tmp_path / "state.tar.gz", into, (nobody.pw_uid, nobody.pw_gid), 0)
    assert victim.stat().st_uid == 0 and (victim / "job.7").stat().st_uid == 0
    assert list((victim / "job.7").iterdir()) == []
