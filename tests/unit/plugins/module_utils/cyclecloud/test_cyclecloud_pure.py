# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CycleCloud: versions, settings files, records, accounts, certificates, projects; nothing of it talks to a server."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import (
    account,
    package,
    project,
    server,
    server_cli,
    site,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import CliError

DPKG = """cyclecloud8 8.9.3-3500 hold installed
openjdk-8-jre-headless 8u432 install installed
old 1.0 deinstall config-files
half 1.0 install half-configured
"""
MADISON = """cyclecloud8 | 8.9.4-3600 | file:/srv/repository bookworm/main amd64 Packages
cyclecloud8 | 8.9.3-3500 | file:/srv/repository bookworm/main amd64 Packages
cyclecloud8 | 8.10.0-4000 | file:/srv/repository bookworm/main amd64 Packages
"""
OFFERED = ["8.9.4-3600", "8.9.3-3500", "8.10.0-4000"]
HERE = package.ServerPackage("8.9.3-3500", True, True)


def test_a_diff_of_settings_shows_no_password() -> None:
    text = "webServerPort=8080\nwebServerKeystorePass = geheim\n# a password = b\n"
    assert server.shown(text) == "webServerPort=8080\nwebServerKeystorePass = (hidden)\n# a password = b\n"


def test_dpkg_and_apt_are_read() -> None:
    found = package.installed(DPKG)
    assert found["cyclecloud8"] == HERE
    assert not found["half"].whole and "old" not in found
    assert package.offered(MADISON, "cyclecloud8") == OFFERED


@pytest.mark.parametrize(
    "wanted, here, version",
    [
        ("8.9.3", None, "8.9.3-3500"),
        ("8.9", None, "8.9.4-3600"),
        ("8", None, "8.10.0-4000"),
        ("8.9.3", HERE, "8.9.3-3500"),
        ("8.9", HERE, "8.9.3-3500"),
        ("8.9.4", HERE, "8.9.4-3600"),
    ],
)
def test_version_is_chosen(wanted: str, here: package.ServerPackage | None, version: str) -> None:
    assert package.choose("cyclecloud8", wanted, here, OFFERED) == version


@pytest.mark.parametrize("wanted, text", [("8.8.1", "cannot go back"), ("8.9.9", "is not offered")])
def test_version_is_refused(wanted: str, text: str) -> None:
    with pytest.raises(CliError, match=text):
        package.choose("cyclecloud8", wanted, HERE, OFFERED)


def test_package_plan() -> None:
    nothing = package.plan("cyclecloud8", "8.9.3", ["openjdk-8-jre-headless"], package.installed(DPKG), OFFERED)
    assert not nothing.changed
    upgrade = package.plan("cyclecloud8", "8.9.4", [], package.installed(DPKG), OFFERED)
    assert upgrade == package.PackagePlan("8.9.4-3600", ["cyclecloud8=8.9.4-3600"], True, True, False)
    fresh = package.plan("cyclecloud8", "8.9.3", ["java"], {}, OFFERED)
    assert fresh == package.PackagePlan("8.9.3-3500", ["java", "cyclecloud8=8.9.3-3500"], False, True, False)
    assert package.plan("half", "1", [], package.installed(DPKG), ["1.0"]).repair


PROPERTIES = "# webServerPort=1\nwebServerPort=8080\nother = x\nwebServerPort=80\n"


def test_properties_keep_everything_else() -> None:
    assert server.properties(PROPERTIES) == {"webServerPort": "80", "other": "x"}
    after = server.with_properties(PROPERTIES, {"webServerPort": 8443, "webServerEnableHttps": True})
    assert after == "# webServerPort=1\nwebServerPort=8080\nother = x\nwebServerPort=8443\nwebServerEnableHttps=true\n"
    assert server.with_properties(after, {"webServerPort": 8443, "webServerEnableHttps": True}) == after


def test_section_keeps_other_sections() -> None:
    before = "[cyclecloud]\nurl = a\npassword = old\nmine = 1\n\n[pogo azure]\ntype = az\n"
    after = server.with_section(before, "cyclecloud", {"url": "a", "password": "new = x", "verify_certificates": True})
    assert after == (
        "[cyclecloud]\nurl = a\npassword = new = x\nmine = 1\nverify_certificates = true\n\n[pogo azure]\ntype = az\n"
    )
    assert server.with_section("", "cyclecloud", {"url": "a"}) == "[cyclecloud]\nurl = a\n"
    again = {"url": "a", "password": "new = x", "verify_certificates": True}
    assert server.with_section(after, "cyclecloud", again) == after


@pytest.mark.parametrize(
    "text, rows",
    [("", []), ("[]\n", []), ('{"Name": "a"}', [{"Name": "a"}]), ('note\n[{"Name": "a"}]', [{"Name": "a"}])],
)
def test_records_are_read(text: str, rows: list[t.Any]) -> None:
    assert server_cli.records(text) == rows


@pytest.mark.parametrize("text", ["nonsense", "[1]", "{"])
def test_other_answers_are_refused(text: str) -> None:
    with pytest.raises(CliError):
        server_cli.records(text)


@pytest.mark.parametrize("value", ['a" || true', "a\nb", "", "a'b", "a;b"])
def test_a_value_cannot_leave_its_quotes(value: str) -> None:
    with pytest.raises(CliError, match="cannot stand in a query"):
        server_cli.quoted(value)


@pytest.mark.parametrize(
    "password, good",
    [("Sesam-0effne", True), ("short-A1", True), ("Aa1-", False), ("alllowercase", False), ("With%percent1", False)],
)
def test_passwords(password: str, good: bool) -> None:
    assert (site.password_problems(password) == []) is good


def test_only_missing_records_are_dropped() -> None:
    wanted = site.site_records("admin", "Secret-123", "ssh-ed25519 AAAA x\n")
    assert [one["AdType"] for one in wanted[3:]] == ["AuthenticatedUser", "Credential"]
    have = {
        "cycleserver.installation.initial_user": [{"Value": "admin"}],
        "cycleserver.installation.complete": [{"Value": True}],
        "admin": [{"Name": "admin"}],
        "admin/public": [{"PublicKey": "ssh-ed25519 other"}],
    }
    found = site.missing_records(wanted, lambda dummy, name: have.get(name, []))
    assert [one["Name"] for one in found] == ["distribution_method", "admin/public"]


OPTIONS = {
    "name": "azure",
    "subscription": "11111111-2222-3333-4444-555555555555",
    "tenant": "11111111-2222-3333-4444-666666666666",
    "environment": "public",
    "location": "eastus",
    "resource_group": "rg",
    "storage_account": "store1",
    "container": "cyclecloud",
    "locker_auth": "ManagedIdentity",
    "locker_identity": "/subscriptions/x/providers/Microsoft.ManagedIdentity/userAssignedIdentities/l",
    "default": True,
    "accept_marketplace_terms": False,
    "identity": "managed_identity",
    "application_id": "",
    "application_secret": "",
}
PRINCIPAL = {**OPTIONS, "identity": "service_principal", "application_id": "app", "application_secret": "s3cret"}


def test_account_problems_come_all_at_once() -> None:
    assert account.problems(OPTIONS) == [] and account.problems(PRINCIPAL) == []
    wrong = {**OPTIONS, "subscription": "x", "storage_account": "UP", "locker_identity": "", "application_id": "app"}
    assert len(account.problems(wrong)) == 4


def test_secret_is_compared_but_not_kept() -> None:
    record = account.record(PRINCIPAL)
    noted = account.noted(record)
    assert "s3cret" not in str(noted) and "s3cret" not in str(account.shown(record))
    assert account.differences(record, noted) == []
    assert account.differences({**record, account.SECRET: "other"}, noted) == [account.SECRET]
    assert account.SECRET not in account.record(OPTIONS)
    assert account.differences(account.record(OPTIONS), {})


@pytest.mark.parametrize(
    "shown, there",
    [
        ("Credentials: azure\n    Location: eastus\n", True),
        ("    Name: azure\n", True),
        ("No account named 'azure' was found.\n", False),
        ("", False),
        ("Credentials: azure-other\n", False),
        ("Error: account azure does not exist\n", False),
    ],
)
def test_account_is_found_by_its_text_alone(shown: str, there: bool) -> None:
    assert account.exists(shown, "azure") is there


@pytest.mark.parametrize(
    "tls, hostname, text",
    [
        ({"certificate": "x"}, "", "both certificate and key"),
        ({"certificate": "/path", "key": "/path"}, "", "PEM texts"),
        ({"automatic": True}, "short", "full public name"),
        ({"automatic": True, "certificate": "x", "key": "y"}, "a.b", "not both"),
    ],
)
def test_impossible_certificates_are_refused(tls: dict[str, t.Any], hostname: str, text: str) -> None:
    with pytest.raises(CliError, match=text):
        server.server_request(tls, hostname, [])


def test_certificate_names() -> None:
    wanted = server.server_request({}, "cc.example.org", ["cc", "10.0.0.4", "cc"])
    assert wanted.names == ["cc.example.org", "localhost", "127.0.0.1", "cc", "10.0.0.4"]
    assert server.alternatives(["a.b", "10.0.0.4", "fe80::1"]) == "DNS:a.b,IP:10.0.0.4,IP:fe80::1"


def _project(folder: Path) -> Path:
    (folder / "specs/node/cluster-init/scripts").mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "project.ini").write_text("[project]\nname = hpcai-node\nversion = 1.0.0\n\n[blobs]\nFiles = b\n")
    (folder / "specs/node/cluster-init/scripts/10.sh").write_text("#!/bin/sh\n")
    (folder / "blobs/b").write_bytes(b"x" * 10)
    return folder


def test_numbers_of_a_project_version_fit_into_32_bits() -> None:
    for digest in ("f" * 64, "0" * 64, "80000000" * 8):
        version = project.Project("p", [], {}, "", digest).version
        assert re.fullmatch(r"1\.\d+\.\d+", version)
        assert all(int(part) < 2**31 for part in version.split("."))
    assert len({project.Project("p", [], {}, "", f"{n:08x}" * 8).version for n in range(100)}) == 100


def test_project_version_follows_its_content(tmp_path: Path) -> None:
    place = _project(tmp_path)
    first = project.collect(str(place))
    (place / "project.ini").write_text((place / "project.ini").read_text().replace("1.0.0", "1.0.5"))
    assert project.collect(str(place)).version == first.version
    (place / "blobs/b").write_bytes(b"y")
    assert project.collect(str(place)).version != first.version
    assert first.specs == ["node"] and first.name == "hpcai-node"


def test_what_is_no_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no project"):
        project.collect(str(tmp_path))
    place = _project(tmp_path / "p")
    (place / "specs/node/cluster-init/scripts/10.sh").unlink()
    with pytest.raises(CliError, match="would do nothing"):
        project.collect(str(place))


def test_login_is_read_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.ini"
    path.write_text("[cyclecloud]\nurl = https://localhost:8443\nusername = u\npassword = p%x\n")
    assert server_cli.login(str(path)) == server_cli.Login("https://localhost:8443", "u", "p%x", True)
    path.write_text("[other]\npassword = topsecret\n")
    with pytest.raises(CliError) as info:
        server_cli.login(str(path))
    assert "topsecret" not in str(info.value)
