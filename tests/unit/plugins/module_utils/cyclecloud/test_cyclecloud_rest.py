# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import email.message
import io
import json
import ssl
import typing as t
import urllib.error
import urllib.request

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import rest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import (
    CycleClient,
    CycleCloudError,
    UnknownOutcome,
)

URL = "https://cc.example.org"


class Server:
    """Answers requests in the order of its list: a value, a status, or an error that is raised."""

    def __init__(self, *answers: t.Any) -> None:
        self.answers = list(answers)
        self.seen: list[urllib.request.Request] = []
        self.pauses: list[float] = []

    def __call__(self, request: urllib.request.Request, timeout: float) -> t.Any:
        self.seen.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            headers = email.message.Message()
            headers["Location"] = "http://elsewhere.example.org/x"
            raise urllib.error.HTTPError(request.full_url, answer, "", headers, io.BytesIO(b"never read"))
        return io.BytesIO(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def client(self) -> CycleClient:
        return CycleClient(URL, "admin", "s3cret-Word", open=self, sleep=self.pauses.append)


def test_a_request_has_what_the_reference_asks_for() -> None:
    server = Server({"state": "Started"})
    assert server.client().status("c 1") == {"state": "Started"}
    assert server.seen[0].full_url == f"{URL}/clusters/c%201/status?nodes=true"
    assert server.seen[0].headers["Authorization"].startswith("Basic ") and server.seen[0].get_method() == "GET"


@pytest.mark.parametrize(
    "status, part",
    [
        (401, "password is wrong"),
        (403, "may not do this"),
        (404, "no such cluster"),
        (409, "does not fit"),
        (418, "refuses"),
    ],
)
def test_refusals_are_told_in_words_and_not_repeated(status: int, part: str) -> None:
    server = Server(status)
    with pytest.raises(CycleCloudError, match=part) as caught:
        server.client().status("c1")
    assert caught.value.status == status and f"GET {URL}/clusters/c1/status" in str(caught.value)
    assert "s3cret" not in str(caught.value) and len(server.seen) == 1


def test_redirects_are_not_followed() -> None:
    server = Server(302)
    with pytest.raises(CycleCloudError, match=r"redirected to http://elsewhere.example.org; set the URL to that"):
        server.client().status("c1")
    assert len(server.seen) == 1


def test_reading_is_tried_again() -> None:
    server = Server(503, ConnectionResetError("reset"), {"state": "Off"})
    assert server.client().status("c1") == {"state": "Off"} and server.pauses == [1, 3]
    with pytest.raises(UnknownOutcome, match="answered 503"):
        Server(503, 503, 503).client().status("c1")


def test_a_request_that_arrived_is_not_sent_again() -> None:
    server = Server(TimeoutError("late"), [{"action": "create"}])
    assert server.client().post_once("/p", {"sets": []}, "r-1") == {"requestId": "r-1"}
    assert [one.get_method() for one in server.seen] == ["POST", "GET"]
    assert server.seen[1].full_url == f"{URL}/operations/?request_id=r-1"


def test_a_request_that_did_not_arrive_is_sent_again_with_the_same_id() -> None:
    server = Server(502, [], {"operationId": "o"})
    answer = server.client().post_once("/p", {})
    bodies = [json.loads(t.cast(bytes, one.data)) for one in (server.seen[0], server.seen[2])]
    assert bodies[0] == bodies[1] and answer == {"operationId": "o", "requestId": bodies[0]["requestId"]}


def test_a_conflict_after_a_lost_answer_may_be_our_own_request() -> None:
    server = Server(ConnectionResetError(), [], 409, [{"action": "create"}])
    assert server.client().post_once("/p", {}, "r-1") == {"requestId": "r-1"}
    with pytest.raises(CycleCloudError, match="409"):
        Server(409).client().post_once("/p", {}, "r-1")


def test_an_outcome_that_stays_unknown_is_an_error() -> None:
    with pytest.raises(UnknownOutcome, match="answered 500"):
        Server(500, [], 500, [], 500, []).client().post_once("/p", {})


def test_a_total_may_be_sent_again() -> None:
    server = Server(500, {"sets": []})
    assert server.client().post_total("/clusters/c/scale/gpu", totalNodeCount="4") == {"sets": []}
    assert server.seen[1].full_url.endswith("?totalNodeCount=4")


def test_bodies_that_are_no_json() -> None:
    with pytest.raises(CycleCloudError, match="check the URL"):
        Server(b"<html>").client().status("c1")
    assert Server(b"").client().get("/x") is None


@pytest.mark.parametrize(
    "url, part",
    [
        ("http://cc.example.org", "in the clear"),
        ("https://u:p@cc.example.org", "user name or a password"),
        ("ftp://cc", "none of a CycleCloud"),
        ("cc.example.org", "none of a CycleCloud"),
        ("https://cc.example.org?x=1", "none of a CycleCloud"),
    ],
)
def test_urls_that_would_give_the_password_away(url: str, part: str) -> None:
    with pytest.raises(CycleCloudError, match=part):
        rest.check_url(url)


def test_urls_that_are_fine() -> None:
    assert [rest.check_url(url) for url in (f"{URL}/", "http://localhost:8080")] == [URL, "http://localhost:8080"]


def test_certificates_that_are_not_trusted() -> None:
    error = ssl.SSLCertVerificationError("self-signed certificate")
    for raised in (error, urllib.error.URLError(error)):
        with pytest.raises(CycleCloudError, match=r"not trusted.*keystore import"):
            Server(raised).client().status("c1")
    with pytest.raises(CycleCloudError, match="cannot be read"):
        rest.opener("/nonexistent", True)
