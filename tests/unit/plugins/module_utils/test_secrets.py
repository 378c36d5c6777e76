# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets are seen by their names and by themselves; what else an inventory holds is not taken for one."""

from __future__ import annotations

import base64
import random
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _secrets
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import bundle

ROOT = Path(__file__).resolve().parents[4]
ACCOUNT_KEY = base64.b64encode(random.Random(7).randbytes(64)).decode()
SAS = "https://a.blob.core.windows.net/c/b?sv=2022-11-02&se=2027-01-01&sp=r&sig=8k2Jm%2Bd0Qz1YbJc3vK9w%3D"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"slurm_settings": {"JobCompPass": "x"}}, "slurm_settings.JobCompPass"),
        ({"slurm_settings": {"StoragePass": "x"}}, "slurm_settings.StoragePass"),
        ({"m": [{"options": ["vers=3.0", "username=u,password=x"]}]}, "m[0].options[1]"),
        ({"m": {"options": "rw,pass=x"}}, "m.options"),
        ({"m": {"options": "name=fs,secret=AQB"}}, "m.options"),
        ({"index": "https://me:x@pypi.example.com/simple"}, "index"),
        ({"remote": "me:x@registry.example.com"}, "remote"),
        ({"url": SAS}, "url"),
        ({"sas": "sv=1"}, "sas"),
        ({"tls_private_key_pem": "x"}, "tls_private_key_pem"),
        ({"tls_private_key_pem_b64": "x"}, "tls_private_key_pem_b64"),
        ({"cluster_tokens": ["a"]}, "cluster_tokens[0]"),
        ({"cluster_passwords": {"alice": "a"}}, "cluster_passwords.alice"),
        ({"password_of_alice": "a"}, "password_of_alice"),
        ({"password": 123456}, "password"),
        ({"dbPassword": "a"}, "dbPassword"),
        ({"munge_key": "y"}, "munge_key"),
        ({"env": [{"name": "HF_TOKEN", "value": "y"}]}, "env[0].value"),
        ({"env": [{"key": "WANDB_API_KEY", "value": "y"}]}, "env[0].value"),
        ({"text": "-----BEGIN OPENSSH PRIVATE KEY-----\nAAA"}, "text"),
        ({"text": f"DefaultEndpointsProtocol=https;AccountKey={ACCOUNT_KEY}"}, "text"),
        ({"innocent": ACCOUNT_KEY}, "innocent"),
        ({"header": "Authorization: Bearer abcdefghijkl"}, "header"),
        ({"lines": "a=1\nStoragePass=x\n"}, "lines"),
        ({"jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x"}, "jwt"),
        ({"a": "ghp_0123456789abcdefghijABCDEFGHIJ"}, "a"),
    ],
)
def test_a_secret_is_seen(value: dict[str, t.Any], path: str) -> None:
    assert list(_secrets.secrets(value)) == [path]


@pytest.mark.parametrize(
    "value",
    [
        {"munge_key_file": "/etc/munge/munge.key", "munge_key_host": "ctl", "ssh_public_key": "ssh-ed25519 AAAAC3Nza"},
        {"authorized_keys": [f"ssh-rsa {'AAAAB3NzaC1yc2E' * 8}Q1 me@host"]},
        {"a_secret": "", "gpu_key": 3, "credentials_dir": "/x", "max_tokens": 4096, "token_lifetime": 60},
        {"AccountingStoragePass": "/var/run/munge/global.socket.2", "password": "$DB_PASSWORD"},
        {"options": ["credentials=/etc/hpcai/share.credentials", "vers=3.0", "rw", "bypass=1"]},
        {"source": "10.0.0.4@tcp:10.0.0.5@tcp:/lustre", "image": f"nvcr.io/nvidia/pytorch:24.01@sha256:{'ab' * 32}"},
        {"id": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/Rg1/providers/Microsoft.Compute"},
        {"path": "/opt/Very/Long/Path1/to/Something/With/Many/Parts/In/It/Which/Is/No/Key"},
        {"sha256": "0123456789abcdef" * 4, "password_required": "yes", "compass": "north", "slurm_bypass": "x"},
    ],
)
def test_what_is_no_secret_is_left_alone(value: dict[str, t.Any]) -> None:
    assert _secrets.secrets(value) == {}


@pytest.mark.parametrize("role", bundle.collection(ROOT)[1])
def test_no_default_of_a_role_on_elastic_nodes_looks_like_a_secret(role: str) -> None:
    defaults = yaml.safe_load((ROOT / "roles" / role / "defaults/main.yml").read_text(encoding="utf-8")) or {}
    assert {key: kind for key, kind in _secrets.secrets(defaults).items() if "{{" not in str(defaults.get(key))} == {}
