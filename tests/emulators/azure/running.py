# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulator as a test starts and asks it; only the standard library."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

Json = t.Any
HERE = Path(__file__).parent


class Answer(t.NamedTuple):
    """What came back; ``body`` is read as JSON where it is JSON."""

    status: int
    body: Json
    headers: t.Mapping[str, str]

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"]) if isinstance(self.body, dict) and "error" in self.body else ""


class Azure:
    """A running emulator; a token of the emulated service principal is fetched once."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory, self.options = directory, options
        self.token = ""
        self.start()

    def start(self) -> None:
        ready = self.directory / "azure.json"
        ready.unlink(missing_ok=True)
        argv = [sys.executable, str(HERE), "--dir", str(self.directory), *self.options]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        deadline = time.monotonic() + 120
        while not ready.is_file():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                problem = self.process.communicate()[1].decode()[-500:]
                raise RuntimeError(f"the emulator does not start: {problem}")
            time.sleep(0.02)
        self.said: dict[str, str] = json.loads(ready.read_text())
        self.environment: dict[str, str] = json.loads((self.directory / "environment.json").read_text())
        self.url, self.subscription = self.said["url"], f"/subscriptions/{self.said['subscription']}"
        self.trust = ssl.create_default_context(cafile=self.said["ca"])

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20)

    def raw(self, method: str, url: str, data: bytes | None = None, **headers: str) -> Answer:
        """Send a request straight to the emulator, no proxy; names in headers have _ for -."""
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        request = urllib.request.Request(url if "://" in url else self.url + url, data, given, method=method)
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.trust)]
        opener = urllib.request.build_opener(*handlers)
        try:
            with opener.open(request, timeout=30) as answer:
                return self._read(answer.status, answer)
        except urllib.error.HTTPError as problem:
            return self._read(problem.code, problem)

    @staticmethod
    def _read(status: int, answer: t.Any) -> Answer:
        text = answer.read()
        is_json = "json" in answer.headers.get("Content-Type", "") and text
        return Answer(status, json.loads(text) if is_json else text, answer.headers)

    def login(self, secret: str = "", **changes: str) -> Answer:
        """Ask for a token as a client with a secret does."""
        form = {"grant_type": "client_credentials", "client_id": self.said["client"], "scope": f"{self.url}/.default"}
        form.update({"client_secret": secret or self.environment["AZURE_SECRET"], **changes})
        path = f"/{self.said['tenant']}/oauth2/v2.0/token"
        kind = "application/x-www-form-urlencoded"
        return self.raw("POST", path, urllib.parse.urlencode(form).encode(), Content_Type=kind)

    def arm(self, method: str, path: str, version: str, body: Json = None, **headers: str) -> Answer:
        """Call ARM; a path that does not start with a slash lies below the subscription."""
        self.token = self.token or self.login().body["access_token"]
        place = path if path.startswith(("/", "https:")) else f"{self.subscription}/{path}"
        url = f"{place}{'&' if '?' in place else '?'}api-version={version}" if version else place
        data = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content_Type": "application/json"}
        given = {"Authorization": f"Bearer {self.token}", **kind, **headers}
        return self.raw(method, url.replace(" ", "%20"), data, **given)

    def done(self, method: str, path: str, version: str, body: Json = None) -> Answer:
        """Call ARM and wait until a long operation has ended; return its last answer."""
        answer = self.arm(method, path, version, body)
        place = answer.headers.get("Azure-AsyncOperation") or answer.headers.get("Location")
        if answer.status >= 400 or not place:
            return answer
        while True:
            last = self.arm("GET", place, "")
            pending = last.status == 202 or (isinstance(last.body, dict) and last.body.get("status") == "InProgress")
            if not pending:
                break
            time.sleep(float(last.headers.get("Retry-After", 0.05)))
        return self.arm("GET", path, version) if method != "DELETE" and last.status < 400 and not last.code else last

    def control(self, what: str, body: Json = None) -> Json:
        """Read (no body) or set what the emulator itself knows."""
        data = None if body is None else json.dumps(body).encode()
        kind = {"X_Emulator": "1", "Content_Type": "application/json"}
        answer = self.raw("GET" if body is None else "POST", f"/_emulator/{what}", data, **kind)
        if answer.status != 200:
            raise ValueError(f"{what}: {answer.body}")
        return answer.body
