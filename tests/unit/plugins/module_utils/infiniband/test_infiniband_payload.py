# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import socket
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest
from patience import patience
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import payload


def free_port() -> int:
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "PATIENCE", 2)


def task(program: str = "true", **changes: t.Any) -> dict[str, t.Any]:
    told: dict[str, t.Any] = {"program": program, "options": [], "gpus": {}, "devices": [], "link_layer": "InfiniBand"}
    return {**told, "partner": "same", "sysfs": "/nowhere", "nodes": 1, "port": 1, "window": 5, "limit": 5, **changes}


def late(directory: Path, ready: int) -> str:
    """Put a client there that finds its server after so many attempts in vain; return its path."""
    (directory / "ready").write_text(str(ready))
    return str(stand_in(directory / "late", "ib_client_late.py"))


def test_the_client_waits_until_the_server_is_ready(tmp_path: Path) -> None:
    program = late(tmp_path, 2)
    done = payload.client(task(program), "mlx5_ib0", "", free_port(), "localhost")
    assert (done["rc"], (tmp_path / "count").read_text()) == (0, "xxx")


def test_the_client_gives_up_in_the_end(tmp_path: Path) -> None:
    program = late(tmp_path, -1)
    done = payload.client(task(program, window=0.5, limit=0.5), "mlx5_ib0", "", free_port(), "localhost")
    assert (done["rc"], "Couldn't connect" in done["out"]) == (1, True)


def test_the_client_does_not_wait_for_a_server_that_has_ended(tmp_path: Path) -> None:
    program = late(tmp_path, -1)
    server = payload.PayloadProcess(["true"], "")
    server.wait(patience(5))
    payload.client(task(program, window=60), "mlx5_ib0", "", free_port(), "localhost", server)
    assert (tmp_path / "count").read_text() == "x"


def test_a_server_that_waits_in_vain_is_let_go() -> None:
    with socket.create_server(("", 0)) as server:
        server.settimeout(patience(60))
        payload.client(task("false"), "mlx5_ib0", "", server.getsockname()[1], "localhost")
        connection = server.accept()[0]
        assert connection.recv(1) == b""


def test_a_server_that_only_begins_to_wait_is_let_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "PATIENCE", patience(60))
    port = free_port()
    thread = threading.Thread(target=payload.knock, args=("localhost", port))
    thread.start()
    time.sleep(0.5)
    with socket.create_server(("", port)) as server:
        server.settimeout(patience(60))
        assert server.accept()[0].recv(1) == b""
    thread.join()


def test_a_node_that_refuses_does_not_keep_the_other_waiting() -> None:
    port, begin = free_port(), time.monotonic()
    refused = task(port=port, window=600, devices=["mlx5_an0"])
    thread = threading.Thread(target=payload.between, args=(refused, ["mlx5_an0"], 0, ""))
    thread.start()
    while True:
        try:
            with socket.create_connection(("localhost", port), patience(60)) as connection:
                assert connection.recv(1) == b""
            break
        except ConnectionRefusedError:
            assert time.monotonic() - begin < patience(60), "nobody answered"
            time.sleep(0.1)
    thread.join()
    assert time.monotonic() - begin < patience(120)


def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    stubborn = str(stand_in(tmp_path / "x", "stubborn.py"))
    process = payload.PayloadProcess([stubborn], "")
    begin = time.monotonic()
    assert process.wait(1)["rc"] is None
    process.child.wait(patience(60))
    assert time.monotonic() - begin < patience(60)


def test_programs_run_on_the_cpus_of_their_port() -> None:
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    before = payload.numbers("0-4095") & os.sched_getaffinity(0)
    one = min(before)
    assert payload.PayloadProcess([sys.executable, "-c", code], f"{one},4000").wait(20)["out"] == f"[{one}]\n"
    # CPUs that this process may not use bind nothing.
    assert payload.PayloadProcess([sys.executable, "-c", code], "4000").wait(20)["out"] == f"{sorted(before)}\n"


@pytest.mark.parametrize("devices, want", [([], ["mlx5_ib2", "mlx5_ib10"]), (["x"], ["x"])])
def test_plan(tmp_path: Path, devices: list[str], want: list[str]) -> None:
    for nic, layer, state in (
        ("mlx5_ib10", "InfiniBand", "4: ACTIVE"),
        ("mlx5_ib2", "InfiniBand", "4: ACTIVE"),
        ("mlx5_ib3", "InfiniBand", "2: INIT"),
        ("mlx5_an0", "Ethernet", "4: ACTIVE"),
    ):
        port = tmp_path / "class/infiniband" / nic / "ports/1"
        port.mkdir(parents=True)
        (port / "link_layer").write_text(layer)
        (port / "state").write_text(state)
    assert payload.plan(task(sysfs=str(tmp_path), devices=devices)) == want
