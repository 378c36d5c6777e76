# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CycleCloud's first user and command line, on a directory with stand-ins for both programs."""

from __future__ import annotations

import threading
import time
import typing as t
import zipfile
from pathlib import Path

import pytest
from stand_in import program, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import server_cli, site
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.package import PackagePlan, ServerApt
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import Cli, CliError, Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.site import WatchedFolder

PASSWORD = "Sesam-0effne"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config/data").mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    stand_in(tmp_path / "cycle_server", "cycle_server.sh", home=tmp_path)
    stand_in(tmp_path / "line", "cyclecloud_login.sh", home=tmp_path)
    archived(tmp_path, program("cyclecloud_install.sh", home=tmp_path))
    return tmp_path


def archived(home: Path, install: str) -> None:
    """Write the archive of the command line with modes and a link, as Info-ZIP's zip does."""
    kinds = {
        "install.sh": (install, 0o100755),
        "python/bin/python3.12": (program("cyclecloud_python.sh"), 0o100755),
        "python/bin/python3": ("python3.12", 0o120777),
    }
    with zipfile.ZipFile(home / "tools/cyclecloud-cli.zip", "w") as archive:
        for name, (text, mode) in kinds.items():
            info = zipfile.ZipInfo(f"cyclecloud-cli-installer/{name}", (2026, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, mode << 16
            archive.writestr(info, text)


def params(home: Path, **others: t.Any) -> Json:
    places = {"home": str(home), "state_dir": str(home / "state"), "program": str(home / "cyclecloud")}
    login = {"user": "admin", "password": PASSWORD, "ssh_public_key": "", "url": "https://localhost:8443", "timeout": 5}
    return {**places, **login, "config": str(home / "config.ini"), **others}


def taking(home: Path, suffix: str) -> threading.Thread:
    """The server: it renames what appears, and must never see half a file or one that others read."""

    def work() -> None:
        for dummy in range(500):
            for path in (home / "config/data").glob("*.json"):
                assert path.read_text().endswith("]") and path.stat().st_mode & 0o077 == 0
                path.rename(f"{path}{suffix}")
                (home / "taken").touch()
                return
            time.sleep(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_first_user_and_login(home: Path) -> None:
    assert site.bring(params(home), True)["changed"] and not (home / "config.ini").exists()
    thread = taking(home, ".imported")
    assert len(site.bring(params(home), False)["records"]) == 4
    thread.join()
    assert not list((home / "config/data").iterdir()), "the password would stay in it"
    assert (home / "config.ini").stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in (home / "calls").read_text()
    assert not site.bring(params(home), False)["changed"] and not site.bring(params(home), True)["changed"]


def test_refused_login_does_not_replace_one_that_worked(home: Path) -> None:
    (home / "taken").touch()
    site.bring(params(home), False)
    with pytest.raises(CliError, match="reset_access"):
        site.bring(params(home, password="Another-Pass1"), False)
    assert not site.bring(params(home), False)["changed"]


def test_what_a_killed_run_left_is_removed(home: Path) -> None:
    (home / "taken").touch()
    site.bring(params(home), False)
    left = [
        home / "config/data/hpcai-1.json.imported",
        home / "config/hpcai-2.json",
        home / "config/.hpcai-3.json.x.tmp",
    ]
    for one in left:
        one.write_text(PASSWORD)
    assert site.bring(params(home), True)["changed"] and all(one.exists() for one in left)
    assert site.bring(params(home), False)["changed"] and not any(one.exists() for one in left)


@pytest.mark.parametrize("suffix, text", [(".failed", "did not take the records in"), ("", "within 0.2 s")])
def test_records_that_are_not_taken_leave_nothing(home: Path, suffix: str, text: str) -> None:
    thread = taking(home, suffix) if suffix else None
    with pytest.raises(CliError, match=text):
        WatchedFolder(Cli(params(home))).put([{"AdType": "x"}], 5 if suffix else 0.2)
    if thread:
        thread.join()
    assert not list((home / "config/data").iterdir())


def test_upgrade_stops_moves_and_starts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = ServerApt(Cli(params(home)), {"name": "cyclecloud8", "timeout": 5, "check": False})
    monkeypatch.setattr(apt, "_do", lambda argv: (home / "calls").open("a").write(f"{argv[0]} {argv[-1]}\n"))
    apt.carry_out(PackagePlan("8.9.4-1", ["cyclecloud8=8.9.4-1"], True, True, False), 60)
    calls = (home / "calls").read_text().splitlines()
    wanted = ["stop", "apt-get cyclecloud8=8.9.4-1", "apt-mark cyclecloud8", "start --wait", "await_startup"]
    assert calls == wanted


def test_an_installer_that_finds_no_way_out_says_what_it_wants(home: Path) -> None:
    (home / "taken").touch()
    lost = "urlopen error [Errno -3] Temporary failure in name resolution\n"
    archived(home, program("answer.sh", err=lost, status=1))
    with pytest.raises(CliError, match=r"not installed as .*name resolution.*AzCopy.*needs a way out"):
        site.bring(params(home), False)


def test_the_command_line_trusts_its_server_and_whom_the_machine_trusts(home: Path, tmp_path: Path) -> None:
    """With the server's certificate alone an upload to Azure's storage would not verify."""
    assert "SSL_CERT_FILE" not in Cli(params(home)).environment, "the system's authorities are enough"
    (home / "state").mkdir()
    (home / "state/ca.pem").write_text("-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n")
    cli = Cli(params(home))
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"):
        text = Path(cli.environment[name]).read_text()
        assert text.endswith("ours\n-----END CERTIFICATE-----\n") and text.count("BEGIN CERTIFICATE") > 10
    system = tmp_path / "system.crt"
    with pytest.raises(CliError, match="install the package ca-certificates"):
        server_cli.trust_bundle(str(home / "state"), [str(system)])
    system.write_text("theirs")
    assert server_cli.trust_bundle(str(home / "state"), [str(system)]).startswith("theirs\n-----BEGIN")
