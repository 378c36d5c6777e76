# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CycleCloud's REST API: options, requests, and what its answers mean."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request
import uuid

from ansible.module_utils.basic import env_fallback

# Answers of CycleCloud. According to its reference, error answers have no body.


MEANING = {
    400: "the request is not understood; this CycleCloud may be older than 8.7, or the value is wrong",
    401: "the user name or the password is wrong",
    403: "the user may not do this on this cluster; give the role of an administrator of the cluster",
    404: "there is no such cluster, node or operation",
    406: "CycleCloud does not give JSON here; check the URL",
    409: "something in the request does not fit the cluster, or its request ID was used before",
}


class CycleCloudError(Exception):
    """What was tried, on what, and what came back; the text is fit for the user."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class UnknownOutcome(CycleCloudError):
    """The request may have taken effect or not."""


def read(request: str, method: str, raw: bytes) -> t.Any:
    if not raw.strip():
        return None
    try:
        return json.loads(raw)
    except ValueError:
        if method == "POST":
            raise UnknownOutcome(f"{request} was answered with something else than JSON") from None
        raise CycleCloudError(f"{request} was answered with something else than JSON; check the URL") from None


def refusal(request: str, status: int, location: str) -> CycleCloudError:
    if status >= 500 or status in (408, 429):
        return UnknownOutcome(f"{request}: CycleCloud answered {status}", status)
    if 300 <= status < 400:
        target = urllib.parse.urlsplit(location)
        return CycleCloudError(
            f"{request} is redirected to {target.scheme}://{target.netloc}; set the URL to that", status
        )
    return CycleCloudError(
        f"{request}: CycleCloud answered {status}, so {MEANING.get(status, 'it refuses this')}", status
    )


def untrusted(request: str, exc: Exception) -> CycleCloudError:
    return CycleCloudError(
        f"{request}: the certificate of the server is not trusted ({getattr(exc, 'verify_message', exc)}). Give the"
        " file with its CA as ca_path, or install a certificate with 'cycle_server keystore import'"
    )


# The documented REST interface: single requests, and requests that take effect only once.


Json = t.Dict[str, t.Any]
Open = t.Callable[[urllib.request.Request, float], t.Any]
LOCAL = {"localhost", "127.0.0.1", "::1"}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *dummy: t.Any, **more: t.Any) -> None:
        return None


def opener(ca_path: str | None, validate_certs: bool) -> Open:
    """Return a function that sends requests over verified TLS."""
    try:
        context = ssl.create_default_context(cafile=ca_path)
    except (OSError, ssl.SSLError) as exc:
        raise CycleCloudError(f"The certificates in {ca_path} cannot be read: {exc}") from None
    if not validate_certs:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    built = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())
    return lambda request, timeout: built.open(request, timeout=timeout)


def check_url(url: str) -> str:
    """Refuse an address that would give the password away."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
        raise CycleCloudError(f"The URL {url!r} is none of a CycleCloud server, such as https://cyclecloud.example.org")
    if parts.username or parts.password:
        raise CycleCloudError("The URL holds a user name or a password: give them as username and password")
    if parts.scheme == "http" and parts.hostname not in LOCAL:
        raise CycleCloudError(f"The URL {url} is not https: the password would go over the network in the clear")
    return url.rstrip("/")


class CycleClient:
    """One server and one user."""

    def __init__(
        self,
        url: str,
        user: str,
        password: str,
        ca_path: str | None = None,
        validate_certs: bool = True,
        timeout: float = 60,
        open: Open | None = None,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self.url, self.timeout, self.sleep = check_url(url), timeout, sleep
        self._login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self._open = open or opener(ca_path, validate_certs)

    def get(self, path: str, **query: str) -> t.Any:
        """Read a resource, up to three times where the server does not answer."""
        for pause in (1, 3, None):
            try:
                return self._ask("GET", path, query, None)
            except UnknownOutcome:
                if pause is None:
                    raise
                self.sleep(pause)
        return None

    def status(self, cluster: str) -> Json:
        return t.cast(Json, self.get(f"/clusters/{quoted(cluster)}/status", nodes="true"))

    def known(self, request_id: str) -> bool:
        """Say whether a request of this ID was accepted."""
        return bool(self.get("/operations/", request_id=request_id))

    def post_once(self, path: str, body: Json, request_id: str | None = None) -> Json:
        """Send a request that must not take effect twice: its ID tells whether an earlier try arrived.

        The answer is without details where only the ID tells that the request was accepted.
        """
        ident = request_id or str(uuid.uuid4())
        lost = False
        for pause in (2, 5, None):
            try:
                answer = self._ask("POST", path, {}, {**body, "requestId": ident})
                return {**(answer or {}), "requestId": ident}
            except UnknownOutcome:
                if self.known(ident):
                    return {"requestId": ident}
                if pause is None:
                    raise
                lost = True
                self.sleep(pause)
            except CycleCloudError as exc:
                if exc.status == 409 and lost and self.known(ident):
                    return {"requestId": ident}
                raise
        return {}

    def post_total(self, path: str, **query: str) -> Json:
        """Send a request that has no ID; it may be sent again, as it names a total."""
        for pause in (2, 5, None):
            try:
                return t.cast(Json, self._ask("POST", path, query, None) or {})
            except UnknownOutcome:
                if pause is None:
                    raise
                self.sleep(pause)
        return {}

    def _ask(self, method: str, path: str, query: dict[str, str], body: Json | None) -> t.Any:
        """Send a request and return the answer; UnknownOutcome where the server may have acted on it or not."""
        what = f"{method} {self.url}{path}"
        address = f"{self.url}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        data = json.dumps(body).encode() if body is not None else (b"" if method == "POST" else None)
        headers = {"Authorization": self._login, "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(address, data, headers, method=method)  # noqa: S310  check_url saw it
        try:
            with self._open(request, self.timeout) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as exc:
            exc.close()
            raise refusal(what, exc.code, exc.headers.get("Location", "") if exc.headers else "") from None
        except ssl.SSLError as exc:
            raise untrusted(what, exc) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as exc:
            reason = getattr(exc, "reason", exc)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise untrusted(what, reason) from None
            raise UnknownOutcome(f"{what}: no answer ({reason or type(exc).__name__})") from None
        return read(what, method, raw)


def quoted(name: str) -> str:
    """Return a name quoted as a part of a path."""
    return urllib.parse.quote(name, safe="")


# The options that choose a CycleCloud server, and the client made of them.


SPEC: dict[str, dict[str, t.Any]] = {
    "url": {"type": "str", "fallback": (env_fallback, ["CYCLECLOUD_URL"])},
    "username": {"type": "str", "fallback": (env_fallback, ["CYCLECLOUD_USERNAME"])},
    "password": {"type": "str", "no_log": True, "fallback": (env_fallback, ["CYCLECLOUD_PASSWORD"])},
    "ca_path": {"type": "path", "fallback": (env_fallback, ["CYCLECLOUD_CA_PATH"])},
    "validate_certs": {"type": "bool", "default": True},
    "timeout": {"type": "float", "default": 60},
    "cluster": {"type": "str", "required": True},
}


def client(params: t.Mapping[str, t.Any]) -> CycleClient:
    """Make a client of the options."""
    missing = [name for name in ("url", "username", "password") if not params.get(name)]
    if missing:
        variables = " and ".join(f"CYCLECLOUD_{name.upper()}" for name in missing)
        raise CycleCloudError(f"{', '.join(missing)} missing: give them as options or as {variables}")
    certificates = {"ca_path": params.get("ca_path"), "validate_certs": params["validate_certs"]}
    return CycleClient(params["url"], params["username"], params["password"], timeout=params["timeout"], **certificates)
