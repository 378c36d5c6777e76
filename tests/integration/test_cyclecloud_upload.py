# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The upload of a project with what our modules give the command line, by the real azcopy to an emulated account.

`cyclecloud project upload` has AzCopy send the files. Nobody has published which options it gives it: the program here
stands for it, with the least that sends a directory. Environment, trust, proxy, identity and exit status are the real.
"""

from __future__ import annotations

import re
import subprocess
import typing as t
from pathlib import Path

import pytest
from azurite import HOST, Azurite
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import server_cli
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.project import ProjectUpload, collect
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import Cli, CliError

SCRIPT = "specs/default/cluster-init/scripts/10_node.sh"
Upload = t.Callable[[str], ProjectUpload]


@pytest.fixture
def upload(account: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upload:
    """Return what makes an upload, on a machine that trusts storage; the server has a CA of its own."""
    for name, value in {**account.environment, "AZCOPY_AUTO_LOGIN_TYPE": "MSI", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SSL_CERT_FILE")  # our modules have to say it
    own = tmp_path / "state/ca.pem"
    own.parent.mkdir()
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=cyclecloud", "-days", "2"]
    subprocess.run([*words, "-keyout", str(tmp_path / "key"), "-out", str(own)], check=True, capture_output=True)
    monkeypatch.setattr(server_cli.trust_bundle, "__defaults__", ((str(account.certificate),),))
    script = tmp_path / "project" / SCRIPT
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\ntrue\n")
    (tmp_path / "project/project.ini").write_text("[project]\nname = hpcai-node\n")

    def made(container: str) -> ProjectUpload:
        target = f"https://{HOST}/{container}"
        program = stand_in(tmp_path / "cyclecloud", "cyclecloud_upload.sh", azcopy=account.azcopy, container=target)
        params = {"home": str(tmp_path), "state_dir": str(own.parent), "program": str(program)}
        cli = Cli({**params, "config": str(tmp_path / "config.ini")})
        return ProjectUpload(cli, params["state_dir"], collect(str(tmp_path / "project")), "azure-storage")

    return made


def test_azcopy_sends_a_project_with_what_the_modules_give_it(upload: Upload, account: Azurite, tmp_path: Path) -> None:
    assert account.request("PUT", "/locker?restype=container")[0] == 201
    project = upload("locker")
    project.send(tries=1)
    assert account.request("GET", f"/locker/projects/hpcai-node/{SCRIPT}") == (200, b"#!/bin/sh\ntrue\n")
    assert not upload("locker").needed()
    assert (tmp_path / ".azcopy").is_dir(), "its logs are in the home directory that the modules name"


def test_storage_that_only_the_machine_trusts_is_needed(
    upload: Upload, account: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With CycleCloud's own certificate alone AzCopy sends nothing: it reads SSL_CERT_FILE, as Go does."""
    monkeypatch.setattr(server_cli, "trust_bundle", lambda place: (Path(place) / "ca.pem").read_text())
    project = upload("trusted")
    with pytest.raises(CliError, match="x509: certificate signed by unknown authority"):
        project.send(tries=1)
    assert project.needed()


def test_what_azcopy_was_refused_is_told(upload: Upload) -> None:
    project = upload("nowhere")
    with pytest.raises(CliError, match=r"exit status 1: .*Log file is located at: \S+/.azcopy/.*1 Failed") as refused:
        project.send(tries=1)
    log = re.search(r"located at: (\S+)", str(refused.value))
    assert log and "The specified container does not exist" in Path(log[1]).read_text()
    assert project.needed(), "the next run sends it again"
