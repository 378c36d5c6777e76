# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CycleCloud modules and the inventory against the emulator, over real HTTPS."""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import time
import typing as t
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import package
import pytest
from conftest import COLLECTIONS, ROOT
from forked import run_module
from patience import patience
from stand_in import answer

EMULATOR = ROOT / "tests/emulators/cyclecloud"

Json = t.Dict[str, t.Any]
ACCOUNT = {
    "Name": "azure",
    "Provider": "azure",
    "AzureRMSubscriptionId": "0f3c",
    "Environment": "public",
    "Location": "eastus",
    "RMStorageAccount": "locker",
    "RMStorageContainer": "cyclecloud",
    "AzureRMUseManagedIdentity": True,
}
PARAMETERS = {"Region": "eastus", "SubnetId": "rg/vnet/compute", "Credentials": "azure", "NumberLoginNodes": 1}


class Emulator:
    """One server with a cluster; its clock stands still unless it is told otherwise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        argv = [sys.executable, "-B", str(EMULATOR), "--dir", str(folder), "--speed", "0"]
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        about = folder / "cyclecloud.json"
        end = time.monotonic() + 30
        while not about.exists() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        self.about: Json = json.loads(about.read_text())
        self.trust = ssl.create_default_context(cafile=self.about["ca"])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def ask(self, path: str, body: t.Any = None, login: str | None = None, **headers: str) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        secret = base64.b64encode((login or f"admin:{self.about['password']}").encode()).decode()
        given = {"Authorization": f"Basic {secret}", "Content-Type": "application/json", "X-Emulator": "1", **headers}
        request = urllib.request.Request(self.about["url"] + path, data, given)
        try:
            with urllib.request.urlopen(request, timeout=patience(30), context=self.trust) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read()

    def control(self, what: str, **given: t.Any) -> t.Any:
        status, raw = self.ask(f"/_emulator/{what}", given.get("value", given) or {})
        assert status == 200, raw
        return json.loads(raw)

    def cli(self, *argv: str, rc: int | None = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-B", "-m", "cyclecloud_emulator.cli", *argv],
            env={
                **os.environ,
                "PYTHONPATH": str(EMULATOR),
                "HOME": str(self.folder),
                "REQUESTS_CA_BUNDLE": self.about["ca"],
            },
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=patience(60),
            check=False,
        )
        assert rc is None or done.returncode == rc, done.stdout + done.stderr
        return done.stdout + done.stderr

    def command(self, command: str, **options: t.Any) -> None:
        """What the command line asks of the server, without the time that its process takes."""
        status, raw = self.ask("/_emulator/cli", {"command": command, "options": options})
        assert status == 200 and json.loads(raw)["rc"] == 0, raw

    def environment(self) -> dict[str, str]:
        names = {"url": "URL", "user": "USERNAME", "password": "PASSWORD", "ca": "CA_PATH"}
        return {f"CYCLECLOUD_{name}": self.about[key] for key, name in names.items()}

    def module(self, module: str, check: bool = False, **options: t.Any) -> Json:
        arguments = {"cluster": "c1", **options, "_ansible_check_mode": check, "_ansible_remote_tmp": str(self.folder)}
        done = run_module(
            f"ansible_collections.hpcai.gpu_cluster.plugins.modules.{module}",
            input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
            env={**os.environ, "PYTHONPATH": str(COLLECTIONS), **self.environment()},
            timeout=patience(60),
        )
        assert self.about["password"] not in done.stdout + done.stderr
        assert done.stdout.lstrip().startswith("{"), done.stdout + done.stderr
        return t.cast(Json, json.loads(done.stdout))

    def nodes(self, check: bool = False, **options: t.Any) -> Json:
        return self.module("cyclecloud_nodes", check, **{"poll": 0.05, "wait_timeout": 20, "settle": 1, **options})

    def names(self, array: str = "gpu") -> list[str]:
        state = self.control("state")
        return sorted(name for name, one in state["clusters"]["c1"]["nodes"].items() if one["Template"] == array)

    def sent(self, part: str) -> int:
        return sum(part in one["path"] and one["method"] == "POST" for one in self.control("log"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Emulator]:
    running = Emulator(tmp_path_factory.mktemp("cyclecloud"))
    (running.folder / "c1.json").write_text(json.dumps(PARAMETERS))
    url, user, password = (running.about[key] for key in ("url", "user", "password"))
    running.cli("initialize", "--batch", f"--url={url}", f"--username={user}", f"--password={password}")
    yield running
    running.close()


@pytest.fixture
def cluster(server: Emulator) -> Emulator:
    """A started cluster without nodes of the node array gpu, and a clock that runs fast."""
    server.control("reset")
    server.control("clock", speed=0)
    server.command("account create", content=json.dumps(ACCOUNT))
    server.control("clock", advance=60)
    parameters = json.dumps(PARAMETERS)
    server.command("create_cluster", template="slurm_template_4.0.10", name="c1", parameters=parameters)
    server.command("start_cluster", name="c1")
    server.control("clock", advance=600, speed=600)
    return server


def test_nodes_are_created_once_and_awaited(cluster: Emulator) -> None:
    wish = {"nodearray": "gpu", "count": 2}
    planned = cluster.nodes(check=True, **wish)
    assert planned["changed"] and cluster.names() == []
    made = cluster.nodes(**wish)
    assert made["changed"] and made["added"] == 2, made
    ready = {one["name"]: one for one in made["nodes"] if one["nodearray"] == "gpu"}
    assert {one["state"] for one in ready.values()} == {"Ready"} and len(ready) == 2
    assert ready["gpu-1"]["gpus"] == 8 and ready["gpu-1"]["role"] == "execute"
    again = cluster.nodes(**wish)
    assert not again["changed"] and cluster.names() == ["gpu-1", "gpu-2"]
    named = cluster.nodes(nodearray="gpu", names=["gpu-2", "gpu-7"])
    assert named["changed"] and cluster.names() == ["gpu-1", "gpu-2", "gpu-7"]
    cluster.control("faults", value=[{"match": {"method": "POST", "path": "/scale/"}, "do": "reset_after"}])
    scaled = cluster.nodes(nodearray="gpu", cores=4 * 96)
    assert scaled["changed"] and not scaled.get("failed") and cluster.names() == ["gpu-1", "gpu-2", "gpu-3", "gpu-7"], (
        scaled
    )
    assert not cluster.nodes(nodearray="gpu", cores=4 * 96)["changed"]


def test_nodes_go_and_stay_away(cluster: Emulator) -> None:
    cluster.nodes(nodearray="gpu", count=2)
    assert cluster.nodes(check=True, names=["gpu-1"], state="absent")["diff"]["after"] == {"gpu-1": "Off"}
    gone = cluster.nodes(names=["gpu-1"], state="absent")
    assert gone["changed"] and cluster.names() == ["gpu-2"], gone
    assert not cluster.nodes(names=["gpu-1"], state="absent")["changed"]
    assert cluster.nodes(nodearray="gpu", state="deallocated")["changed"]
    assert not cluster.nodes(nodearray="gpu", state="deallocated")["changed"]
    started = cluster.nodes(names=["gpu-2"], state="started")
    assert started["changed"] and not cluster.nodes(names=["gpu-2"], state="started")["changed"]
    missing = cluster.nodes(names=["gpu-9"], state="started")
    assert missing["failed"] and "no node gpu-9" in missing["msg"]


def test_restart_once_for_an_id(cluster: Emulator) -> None:
    cluster.nodes(nodearray="gpu", count=1)
    before = cluster.sent("/nodes/restart")
    first = cluster.nodes(names=["gpu-1"], state="restarted", request_id="maintenance-7")
    assert first["changed"] and first["nodes"][0]["state"] == "Ready", first
    assert not cluster.nodes(names=["gpu-1"], state="restarted", request_id="maintenance-7")["changed"]
    assert cluster.sent("/nodes/restart") == before + 1
    assert cluster.nodes(names=["gpu-1"], state="reimaged")["changed"]


@pytest.mark.parametrize(
    "fault",
    ["reset_before", "reset_after", {"status_after": 502}, {"status": 503}],
    ids=["before", "after", "502", "503"],
)
def test_an_unknown_outcome_never_creates_twice(cluster: Emulator, fault: t.Any) -> None:
    cluster.control("faults", value=[{"match": {"method": "POST", "path": "/nodes/create"}, "do": fault}])
    made = cluster.nodes(nodearray="gpu", count=2)
    assert made["changed"] and not made.get("failed") and made["added"] == 2, made
    assert cluster.names() == ["gpu-1", "gpu-2"]


def test_limits_are_told_before_anything_is_created(cluster: Emulator) -> None:
    cluster.control("settings", quota={"standardNDASv4_A100Family": {"limit": 192}})
    refused = cluster.nodes(nodearray="gpu", count=3)
    assert refused["failed"] and "the family quota leaves 2" in refused["msg"], refused["msg"]
    assert cluster.names() == []
    part = cluster.nodes(nodearray="gpu", count=3, partial=True)
    assert part["added"] == 2 and cluster.names() == ["gpu-1", "gpu-2"]
    assert "no node array gqu" in cluster.nodes(nodearray="gqu", count=1)["msg"]


def test_failures_name_their_cause(cluster: Emulator) -> None:
    cluster.control("settings", no_capacity={"Standard_ND96asr_v4": 1})
    failed = cluster.nodes(nodearray="gpu", count=2)
    assert "AllocationFailed" in failed["msg"] and "reserve capacity" in failed["msg"], failed["msg"]
    cluster.control("settings", no_capacity={}, boot_failure=["htc-1"], init_failure=["htc-2"])
    failed = cluster.nodes(nodearray="htc", count=2)
    assert "Timeout awaiting system boot-up" in failed["msg"] or "Software Installation" in failed["msg"]
    cluster.control("clock", speed=0)
    late = cluster.nodes(nodearray="login", count=3, wait_timeout=0.3)
    assert "not as wanted after 0.3 seconds: login-2 is Acquiring" in late["msg"], late["msg"]


def test_the_cluster_and_its_gpus(cluster: Emulator) -> None:
    found = cluster.module("cyclecloud_cluster_info", gpus={"gpu": 8})
    assert found["exists"] and found["ready"] and found["state"] == "Started"
    assert found["schedulers"][0]["address"] and len(found["login"]) == 1
    row = found["node_arrays"]["gpu"][0]
    assert (row["available"], row["max"], row["gpus"], row["valid"]) == (16, 16, 8, True)
    cluster.control("settings", gpu_count_zero=["Standard_ND96asr_v4"])
    blind = cluster.module("cyclecloud_cluster_info", gpus={"gpu": 8})
    assert blind["failed"] and "sees 0 GPUs in Standard_ND96asr_v4" in blind["msg"]
    assert cluster.module("cyclecloud_cluster_info", cluster="none")["exists"] is False
    one = cluster.module("cyclecloud_nodes_info", names=["scheduler"])
    assert [node["state"] for node in one["nodes"]] == ["Ready"]


def test_errors_say_what_to_do(cluster: Emulator) -> None:
    wrong = cluster.module("cyclecloud_nodes_info", password="Wrong-pass1")
    assert "401" in wrong["msg"] and "password is wrong" in wrong["msg"] and "Wrong-pass1" not in json.dumps(wrong)
    untrusted = cluster.module("cyclecloud_nodes_info", ca_path="/etc/ssl/certs/ca-certificates.crt")
    assert "not trusted" in untrusted["msg"] and "ca_path" in untrusted["msg"]
    assert "in the clear" in cluster.module("cyclecloud_nodes_info", url="http://cyclecloud.example.org")["msg"]
    nobody = cluster.module("cyclecloud_nodes_info", url="https://127.0.0.1:9")
    assert "no answer" in nobody["msg"] and "refused" in nobody["msg"]


def inventory(cluster: Emulator, folder: Path, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    path = folder / "c1.cyclecloud.yml"
    path.write_text(f"plugin: hpcai.gpu_cluster.cyclecloud\ncluster: c1\n{text}")
    variables = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HOME": str(folder), "ANSIBLE_CALLBACKS_ENABLED": ""}
    return subprocess.run(
        [str(Path(sys.executable).parent / "ansible-inventory"), "-i", str(path), "--list"],
        env={**os.environ, **cluster.environment(), **variables, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


def test_inventory(cluster: Emulator, tmp_path: Path) -> None:
    cluster.nodes(nodearray="gpu", count=1)
    cluster.control("clock", speed=0)
    cluster.nodes(nodearray="gpu", count=2, wait=False)
    text = f"""bastion: hpcadmin@cc.example.org
cache_plugin: ansible.builtin.jsonfile
cache_connection: {tmp_path}/cache
refresh: 0
groups:
  gpu: (cc_gpu_count or 0) > 0
"""
    done = inventory(cluster, tmp_path, text)
    found = json.loads(done.stdout)
    assert found["cyclecloud_role_scheduler"]["hosts"] == ["scheduler"], done.stderr
    assert found["gpu"]["hosts"] == found["cyclecloud_nodearray_gpu"]["hosts"] == ["gpu-1"]
    assert found["cyclecloud_machine_type_Standard_ND96asr_v4"]["hosts"] == ["gpu-1"]
    raw = found["_meta"]["hostvars"]["gpu-1"]
    host = {key: value.get("__ansible_unsafe") if isinstance(value, dict) else value for key, value in raw.items()}
    assert host["ansible_host"].startswith("10.1.") and host["ansible_user"] == "cyclecloud"
    assert host["ansible_ssh_common_args"] == "-o ProxyJump=hpcadmin@cc.example.org" and host["cc_gpu_count"] == 8
    assert cluster.about["password"] not in done.stdout + "".join(p.read_text() for p in (tmp_path / "cache").iterdir())

    cluster.control("faults", value=[{"match": {"path": "/status", "nth": "every"}, "do": {"status": 503}}])
    stale = inventory(cluster, tmp_path, text)
    assert json.loads(stale.stdout)["gpu"]["hosts"] == ["gpu-1"]
    assert "does not answer" in stale.stderr and "503" in stale.stderr
    strict = inventory(cluster, tmp_path, f"{text}stale: false\n")
    assert "Cannot read the nodes of cluster c1" in strict.stderr and "gpu-1" not in strict.stdout
    cluster.control("faults", value=[])
    denied = inventory(cluster, tmp_path, text, CYCLECLOUD_PASSWORD="Wrong-pass1")
    assert "401" in denied.stderr and "gpu-1" not in denied.stdout and "Wrong-pass1" not in denied.stderr


def test_the_emulator_is_strict(cluster: Emulator) -> None:
    create = "/clusters/c1/nodes/create"
    one = {"count": 1, "nodearray": "gpu"}
    assert cluster.ask("/clusters/c1/status", login="admin:no") == (401, b"")
    assert cluster.ask("/clusters/none/nodes") == (404, b"")
    assert cluster.ask("/clusters/c1/scalesets") == (404, b"")
    assert cluster.ask("/clusters/c1/status?nodes=yes") == (400, b"")
    assert cluster.ask("/clusters/c1/nodes", Accept="text/html") == (406, b"")
    for body in (
        {},
        {"sets": []},
        {"sets": [{"count": 1}]},
        {"sets": [one], "extra": 1},
        {"sets": [{**one, "name": "x"}]},
    ):
        assert cluster.ask(create, body) == (409, b""), body
    assert cluster.ask(create, {"sets": [{**one, "definition": {"machineType": "Standard_D2s_v5"}}]}) == (409, b"")
    assert cluster.ask("/clusters/c1/nodes/terminate", {}) == (409, b"")
    status, raw = cluster.ask(create, {"requestId": "r-1", "sets": [one]})
    assert status == 202 and json.loads(raw)["sets"] == [{"added": 1}]
    assert cluster.ask(create, {"requestId": "r-1", "sets": [one]}) == (409, b"")
    found = json.loads(cluster.ask("/operations/?request_id=r-1")[1])
    assert [one["action"] for one in found] == ["create"]
    assert json.loads(cluster.ask("/operations/?request_id=r-2")[1]) == []


def test_the_command_line_has_its_quirks(cluster: Emulator) -> None:
    assert "Credentials: azure" in cluster.cli("account", "show", "azure")
    assert "Credentials: other" not in cluster.cli("account", "show", "other")
    assert "unknown attributes ['Color']" in _account(cluster, Color="red")
    assert "missing" in _account(cluster, AzureRMUseManagedIdentity=False)
    (cluster.folder / "odd.json").write_text(json.dumps({**PARAMETERS, "Unheard": 1}))
    cluster.cli("create_cluster", "slurm_template_4.0.10", "c2", "-p", "odd.json")
    assert any("parameter Unheard is not declared" in text for text in cluster.control("ignored"))
    (cluster.folder / "few.json").write_text("{}")
    assert "Region" in cluster.cli("create_cluster", "slurm_template_4.0.10", "c3", "-p", "few.json", rc=1)
    assert "already exists" in cluster.cli("create_cluster", "slurm_template_4.0.10", "c2", "-p", "odd.json", rc=1)
    assert "not terminated" in cluster.cli("delete_cluster", "c1", rc=1)
    cluster.cli("terminate_cluster", "c1")
    cluster.control("clock", advance=60)
    cluster.cli("delete_cluster", "c1")
    assert "not found" in cluster.cli("show_cluster", "c1", rc=1)
    assert "unrecognized" in cluster.cli("start_cluster", "c2", "--now", rc=2)


def _account(cluster: Emulator, **changes: t.Any) -> str:
    (cluster.folder / "bad.json").write_text(json.dumps({**ACCOUNT, "Name": "bad", **changes}))
    return cluster.cli("account", "create", "-f", "bad.json", rc=1)


def test_new_node_arrays_wait_for_the_next_start(cluster: Emulator) -> None:
    text = (EMULATOR / "cyclecloud_emulator/slurm.txt").read_text()
    more = (
        "    [[nodearray gpu2]]\n    Extends = gpu\n    MachineType = Standard_ND96isr_H100_v5\n\n[parameters Required"
    )
    (cluster.folder / "two.txt").write_text(text.replace("[parameters Required", more))
    cluster.cli("import_cluster", "c1", "-c", "Slurm", "-f", "two.txt", "-p", "c1.json", "--force")
    refused = cluster.nodes(nodearray="gpu2", count=1)
    assert "NotActivated: start the cluster again" in refused["msg"], refused["msg"]
    cluster.cli("start_cluster", "c1")
    assert cluster.nodes(nodearray="gpu2", count=1)["changed"]


def test_state_survives_a_restart(tmp_path: Path) -> None:
    first = Emulator(tmp_path)
    first.control("settings", network="10.9.0.0/16")
    first.close()
    (tmp_path / "cyclecloud.json").unlink()
    second = Emulator(tmp_path)
    assert second.control("state")["settings"]["network"] == "10.9.0.0/16"
    second.close()


def test_the_server_command(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "config").mkdir(parents=True)
    ports = "webServerPort=18080\nwebServerEnableHttp=false\nwebServerClusterPort=1\nwebServerClusterPort=19443\n"
    (home / "config/cycle_server.properties").write_text(ports)
    (home / "logs").mkdir()
    (tmp_path / "bin").mkdir()
    java = answer(tmp_path / "bin/java", err='openjdk version "11.0.2"\n')
    path = f"{java.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(EMULATOR), "CS_HOME": str(home), "PATH": path}

    def run(*argv: str, rc: int = 0, given: str = "") -> str:
        command = [sys.executable, "-B", "-m", "cyclecloud_emulator.control", *argv]
        done = subprocess.run(
            command, input=given, env=environment, capture_output=True, text=True, timeout=patience(60), check=False
        )
        assert done.returncode == rc, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "Java 8 is required" in run("start", rc=1)
    answer(java, err='openjdk version "1.8.0_432"\n')
    run("start", "--wait")
    try:
        assert "is running" in run("status")
        user = {"AdType": "AuthenticatedUser", "Name": "ops", "RawPassword": "Abcdef-123", "Superuser": True}
        setting = {"AdType": "Application.Setting", "Name": "cycleserver.installation.complete", "Value": True}
        for name, records in (("good", [user, setting]), ("bad", [{**user, "Pasword": "x"}])):
            (tmp_path / name).write_text(json.dumps(records))
            (tmp_path / name).rename(home / f"config/data/{name}.json")
        end = time.monotonic() + 10
        while list((home / "config/data").glob("*.json")) and time.monotonic() < end:
            time.sleep(0.05)
        assert {one.name for one in (home / "config/data").iterdir()} == {"good.json.imported", "bad.json.failed"}
        found = json.loads(run("execute", "--format", "json", 'SELECT * FROM AuthenticatedUser WHERE Name=="ops"'))
        assert found == [{"AdType": "AuthenticatedUser", "Name": "ops", "Superuser": True}]
        assert "Could not parse" in run("execute", "SELECT FROM", rc=1)
        password = run("reset_access", "ops", given="yes\n").split()[-1]
        assert len(password) > 8 and password not in (home / "data/state.json").read_text()
        run("keystore", "automatic", "--accept-terms", "cc.example.org")
    finally:
        run("stop")
    assert "not running" in run("status", rc=1)


def test_the_packages_are_signed(tmp_path: Path) -> None:
    command = [sys.executable, str(EMULATOR / "package.py"), "--dir", str(tmp_path)]
    missing = [name for name in ("gpg", "gpgv", "dpkg-deb") if not shutil.which(name)]
    if missing:
        pytest.skip(f"packages are NOT tested: there is no {', '.join(missing)}")
    subprocess.run(command, check=True, capture_output=True)
    repository = tmp_path / "repository"
    keyring = tmp_path / "key.gpg"
    key = (repository / "key.asc").read_bytes()
    subprocess.run(
        ["gpg", "--batch", "--dearmor", "--output", str(keyring)], input=key, check=True, capture_output=True
    )
    signed = repository / "dists/stable/InRelease"
    subprocess.run(["gpgv", "--keyring", str(keyring), str(signed)], check=True, capture_output=True)
    names = sorted(path.name.partition("_")[0] for path in (repository / "pool").iterdir())
    assert names == ["cyclecloud8"] * 3 + ["openjdk-8-jre-headless"]


def test_the_command_line_comes_as_the_real_one_does(tmp_path: Path) -> None:
    """Programs and a link in the archive, a script that only bash takes: `sh install.sh` of plain files got through."""
    archive = tmp_path / "cli.zip"
    archive.write_bytes(package.cli("8.9.3-3500"))
    plain, whole = tmp_path / "plain", tmp_path / "whole"
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(plain)
    subprocess.run(["unzip", "-q", str(archive), "-d", str(whole)], check=True)
    environment = {**os.environ, "HOME": str(tmp_path)}

    def install(*argv: str, folder: Path) -> subprocess.CompletedProcess[str]:
        place = folder / "cyclecloud-cli-installer"
        return subprocess.run([*argv, "-y"], cwd=place, env=environment, text=True, capture_output=True, check=False)

    assert "Permission denied" in install("bash", "install.sh", folder=plain).stderr
    assert install("dash", "install.sh", folder=whole).returncode
    assert install("./install.sh", folder=whole).returncode == 0
    done = subprocess.run([str(tmp_path / "bin/cyclecloud"), "--version"], text=True, capture_output=True, check=True)
    assert done.stdout == "CycleCloud 8.9.3-3500\n"


def test_machine_types_come_one_by_one_and_in_one_table_first(server: Emulator) -> None:
    server.control("reset")
    server.control("clock", speed=0)
    server.command("account create", content=json.dumps(ACCOUNT))

    secret = (server.folder / "home/data/local.secret").read_text()

    def known(table: str) -> int:
        query = {"command": "execute", "query": f"select Name from {table}"}
        status, raw = server.ask("/_emulator/admin", query, **{"X-Secret": secret})
        assert status == 200, raw
        return len(json.loads(raw)["out"])

    seen = []
    for seconds in (0, 31, 12, 60):
        server.control("clock", advance=seconds)
        seen.append((known("Azure.MachineType"), known("Cloud.MachineType")))
    assert seen[0] == (0, 0) and seen[1][0] > 0 == seen[1][1]
    assert seen[2][0] > seen[2][1] > 0 and seen[3][0] == seen[3][1] > seen[2][0]
