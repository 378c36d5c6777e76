# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's little cloud (role lab_cloud): containers on the machine that the lab runs on, over HTTPS. Private."""

from __future__ import annotations

import http.client
import json
import ssl
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power import program
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.provider import (
    CloudInstance,
    CloudNode,
    PowerError,
    Provider,
)

_TIMEOUT = 60.0


class Lab(Provider):
    """One instance a request: the lab is small."""

    SETTINGS: t.ClassVar[dict[str, bool]] = {"host": True, "port": True, "ca": True, "token_file": True}
    MACHINE: t.ClassVar[dict[str, bool]] = {}

    def create(self, nodes: t.Sequence[CloudNode]) -> dict[str, str]:
        return {node.name: self._each("POST", node.name, _text(node.user_data)) for node in nodes}

    def delete(self, names: t.Sequence[str]) -> dict[str, str]:
        return {name: self._each("DELETE", name) for name in names}

    def instances(self) -> dict[str, CloudInstance]:
        instances = json.loads(self._request("GET", "/instances"))
        return {
            str(name): CloudInstance(str(instance["state"]))
            for name, instance in instances.items()
            if instance["cluster"] == self.cluster
        }

    def _each(self, method: str, name: str, user_data: str = "") -> str:
        body = {"cluster": self.cluster, "user_data": user_data}
        try:
            self._request(method, f"/instances/{name}", body)
        except PowerError as exc:
            return str(exc)
        return ""

    def _request(self, method: str, path: str, body: t.Mapping[str, t.Any] | None = None) -> str:
        host, port = str(self.settings["host"]), int(self.settings["port"])
        head = {"Authorization": f"Bearer {_text(self.settings['token_file']).strip()}"}
        try:
            context = ssl.create_default_context(cafile=self.settings["ca"])
            connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=context)
            connection.request(method, path, json.dumps(body or {}), {**head, "Content-Type": "application/json"})
            answer = connection.getresponse()
            status, text = answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as exc:
            raise PowerError(f"the lab's cloud at {host}:{port} does not answer: {exc}") from exc
        if status >= 300:
            raise PowerError(_failure(status, text))
        return text


def _failure(status: int, text: str) -> str:
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"status {status}"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as exc:
        raise PowerError(f"{path} cannot be read: {exc.strerror}") from exc


def main(argv: t.Sequence[str]) -> int:
    """Run the program with this cloud."""
    return program.main(argv, Lab)
