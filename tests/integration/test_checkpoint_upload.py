# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""checkpoint_upload with the real azcopy against Azurite: complete, or not there for a reader; and resumed."""

from __future__ import annotations

import base64
import getpass
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, interpreter, of_clone
from azurite import HOST, Azurite
from conftest import COLLECTIONS
from forked import run_module
from patience import patience
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import files as checkpoint_files
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_program import files

Json = t.Dict[str, t.Any]
MANIFEST = "MANIFEST.json"


class Site:
    """A site with an account and the installed program; every test has a container of its own."""

    def __init__(self, account: Azurite, directory: Path, container: str) -> None:
        self.account, self.directory, self.container = account, directory, container
        self.program = directory / "bin/checkpoint_upload"
        options = {"library": str(directory / "lib"), "program": str(self.program), "arguments": []}
        for file in files("checkpoint.program", {**options, "function": "main", "interpreter": sys.executable}):
            path = Path(file["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["content"])
            path.chmod(int(file["mode"], 8))
        for name in ("state", "checkpoint"):
            (directory / name).mkdir()
        self.checkpoint = directory / "checkpoint"
        self.config = directory / "config.json"
        self.settings: Json = {
            "azcopy": str(account.azcopy),
            "destination": f"https://{HOST}/{container}",
            "ingress_gbps": 20,
            "state_dir": str(directory / "state"),
            "settle": 0,
            "answer_timeout": 20,
            "environment": account.environment,
        }
        self.set()
        assert account.request("PUT", f"/{container}?restype=container")[0] == 201

    def set(self, **changes: t.Any) -> None:
        self.config.write_text(json.dumps({**self.settings, **changes}))

    def write(self, **sizes: int) -> None:
        for name, size in sizes.items():
            (self.checkpoint / f"{name}.pt").write_bytes(os.urandom(size))

    def module(self, check_mode: bool = False, **options: t.Any) -> Json:
        """Run the module as Ansible does."""
        arguments = {
            "source": str(self.checkpoint),
            "name": "run/step-1",
            "program": str(self.program),
            "config": str(self.config),
            "timeout": 60,
            "_ansible_check_mode": check_mode,
            "_ansible_remote_tmp": str(self.directory),
            **options,
        }
        done = run_module(
            "ansible_collections.hpcai.gpu_cluster.plugins.modules.checkpoint_upload",
            input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
            env={**os.environ, "PYTHONPATH": str(COLLECTIONS)},
            timeout=patience(120),
        )
        assert done.stdout, done.stderr
        answer: Json = json.loads(done.stdout)
        return answer

    def blob(self, name: str) -> tuple[int, bytes]:
        return self.account.request("GET", f"/{self.container}/run/step-1/{name}")

    def put(self, name: str, body: bytes, **headers: str) -> None:
        where = f"/{self.container}/run/step-1/{name}"
        assert self.account.request("PUT", where, body, **{"x-ms-blob-type": "BlockBlob", **headers})[0] == 201


@pytest.fixture
def site(account: Azurite, tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    return Site(account, tmp_path, hashlib.sha256(request.node.name.encode()).hexdigest()[:20])


def test_upload_then_nothing_to_do(site: Site) -> None:
    site.write(a=3_000_000, b=10, empty=0)
    planned = site.module(check_mode=True)
    assert (planned["changed"], planned["upload"]["sent"]) == (True, ["a.pt", "b.pt", "empty.pt"])
    assert site.blob("a.pt")[0] == 404
    first = site.module()
    assert first["changed"] and first["upload"]["bytes"] == 3_000_010, first
    assert site.blob("a.pt") == (200, (site.checkpoint / "a.pt").read_bytes())
    listed = checkpoint_files.read_manifest(site.blob(MANIFEST)[1].decode(), "it")
    assert listed["a.pt"]["sha256"] == hashlib.sha256((site.checkpoint / "a.pt").read_bytes()).hexdigest()
    for check_mode in (False, True):
        again = site.module(check_mode=check_mode)
        assert (again["changed"], again["upload"]["sent"]) == (False, []), again


def test_told_to_end_it_leaves_no_copy_and_goes_on_with_the_next_file(site: Site) -> None:
    site.write(a=20_000_000, b=20_000_000, c=20_000_000)
    site.set(ingress_gbps=0.2, copies=1)
    command = [str(site.program), "run", str(site.checkpoint), "run/step-1", "--config", str(site.config)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while site.blob("a.pt")[0] != 200 and time.monotonic() < until:
        time.sleep(0.1)
    running.send_signal(signal.SIGTERM)
    assert running.wait(patience(20)) != 0
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(site.checkpoint).encode() in _read(path)]
    assert site.blob("c.pt")[0] == 404 and site.blob(MANIFEST)[0] == 404
    site.set()
    resumed = site.module()
    assert "c.pt" in resumed["upload"]["sent"] and "a.pt" not in resumed["upload"]["sent"], resumed
    assert site.blob(MANIFEST)[0] == 200


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_damaged_blob_is_found_and_sent_again(site: Site) -> None:
    site.write(a=1000, b=1000)
    site.module()
    site.put("a.pt", b"x" * 1000)
    assert site.module()["upload"]["sent"] == ["a.pt"]
    assert site.blob("a.pt")[1] == (site.checkpoint / "a.pt").read_bytes()


def test_content_that_its_md5_belies_is_found(site: Site) -> None:
    site.write(a=1000)
    site.set(verify="content")
    assert site.module()["changed"]
    good = (site.checkpoint / "a.pt").read_bytes()
    md5 = base64.b64encode(hashlib.new("md5", good).digest()).decode()
    site.put("a.pt", b"x" * 1000)
    where = f"/{site.container}/run/step-1/a.pt?comp=properties"
    assert site.account.request("PUT", where, **{"x-ms-blob-content-md5": md5})[0] == 200
    site.set()
    assert site.module()["changed"] is False
    site.set(verify="content")
    assert "could not fetch" in site.module()["msg"]


def test_another_checkpoint_of_that_name(site: Site) -> None:
    site.write(a=1000, b=1000)
    site.module()
    site.write(a=2000)
    refused = site.module()
    assert "holds a complete checkpoint that is another: a.pt" in refused["msg"], refused
    assert site.blob("a.pt")[1] != (site.checkpoint / "a.pt").read_bytes()
    (site.checkpoint / "b.pt").unlink()
    replaced = site.module(replace=True)
    assert (replaced["changed"], replaced["upload"]["stray"]) == (True, ["b.pt"]), replaced
    assert set(checkpoint_files.read_manifest(site.blob(MANIFEST)[1].decode(), "it")) == {"a.pt"}


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"destination": f"https://{HOST}/no-such-container"}, "ContainerNotFound: create the container"),
        ({"azcopy": "/nowhere/azcopy"}, "cannot be started"),
        ({"ingress_gbps": 0.01}, "would throttle"),
        ({"identity": "sas", "credentials": "/nowhere"}, "every user of the node can read it"),
        ({"settle": 3600}, "may still be written"),
    ],
)
def test_refused_with_what_to_do(site: Site, changes: Json, said: str) -> None:
    site.write(a=1000)
    site.set(**changes)
    assert said in site.module()["msg"]


def test_identity_without_rights(site: Site) -> None:
    site.write(a=1000)
    site.account.identity.audience = "https://management.azure.com"
    try:
        assert "the identity, its secret or the token is wrong" in site.module()["msg"]
    finally:
        site.account.identity.audience = "https://storage.azure.com"


def test_account_that_does_not_answer(site: Site) -> None:
    site.write(a=1000)
    site.set(answer_timeout=3)
    site.account.proxy.down = True
    try:
        assert "within 3 s: does" in site.module()["msg"]
    finally:
        site.account.proxy.down = False


def test_through_slurm(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.write(a=3000, b=2000, c=1000)
    (site.directory / "path").mkdir()
    srun = stand_in(site.directory / "path/srun", "srun_two_tasks.sh", trap=site.directory / "trap")
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    first = site.module(nodes=2)
    assert first["changed"] and first["upload"]["sent"] == ["a.pt", "b.pt", "c.pt"], first
    assert first["upload"]["plan"]["nodes"] == 2 and site.blob(MANIFEST)[0] == 200
    assert site.module(nodes=2)["changed"] is False
    (site.directory / "trap").touch()
    assert "1 of 2 nodes answered" in site.module(nodes=2)["msg"]


def test_parts_of_two_nodes(site: Site) -> None:
    """As two tasks of one Slurm step do it: each its share, then one the manifest, not before both are there."""
    site.write(a=3000, b=2000, c=1000)

    def step(name: str, index: int) -> Json:
        argv = [str(site.program), name, str(site.checkpoint), "run/step-1", "--config", str(site.config)]
        argv += ["--index", str(index), "--count", "2"]
        answer: Json = json.loads(subprocess.run(argv, text=True, capture_output=True, check=False).stdout)
        return answer

    assert step("part", 0)["sent"] == ["a.pt"]
    assert "part 1 of 2" in step("seal", 0)["failed"]
    assert step("part", 1)["sent"] == ["b.pt", "c.pt"]
    assert step("seal", 0)["sealed"] is True
    assert step("seal", 0)["sealed"] is False


PLAY = """
- hosts: localhost
  gather_facts: false
  connection: local
  roles: [hpcai.gpu_cluster.checkpoint_upload]
"""


def test_role(site: Site) -> None:
    """azcopy from an archive, the program and two checkpoints: check, real, check, real."""
    site.write(a=1000)
    archive = site.directory / "azcopy.tgz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(site.account.azcopy, "package/azcopy_linux_amd64")
    variables = {
        "ansible_python_interpreter": interpreter(),
        "checkpoint_upload_destination": site.settings["destination"],
        "checkpoint_upload_owner": getpass.getuser(),
        "cluster_shared_dir": str(site.directory / "shared"),
        "checkpoint_upload_azcopy": {
            "archive": str(archive),
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        },
        "checkpoint_upload_packages": [],
        "checkpoint_upload_environment": site.account.environment,
        "checkpoint_upload_settle": 0,
        "checkpoint_upload_nodes": 0,
        "checkpoint_upload_list": [{"source": str(site.checkpoint), "name": "run/step-1"}],
    }
    (site.directory / "shared").mkdir()
    (site.directory / "play.yml").write_text(PLAY)
    (site.directory / "vars.json").write_text(json.dumps(variables))
    environment = of_clone(site.directory, **site.account.environment)
    for option, changed in (("--check", True), ("--diff", True), ("--check", False), ("--diff", False)):
        words = ("-e", f"@{site.directory}/vars.json", option, "-i", "localhost,", str(site.directory / "play.yml"))
        done = ansible_playbook(*words, cwd=site.directory, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("changed=0 " not in done.stdout) is changed, done.stdout
    assert site.blob(MANIFEST)[0] == 200
