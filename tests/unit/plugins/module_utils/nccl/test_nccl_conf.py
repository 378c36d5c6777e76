# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's file: what NCCL reads from it, what is merged into it, and that all of it can be taken out again."""

from __future__ import annotations

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import config

OURS = {"NCCL_IGNORE_CPU_AFFINITY": "1", "NCCL_TOPO_FILE": "/opt/topo.xml"}
BLOCK = "NCCL_IGNORE_CPU_AFFINITY=1\nNCCL_TOPO_FILE=/opt/topo.xml\n# END hpcai.gpu_cluster\n"


def nccl_reads(text: str) -> dict[str, str]:
    """``setEnvFile`` of NCCL 2.30 (src/misc/param.cc), line by line, with an empty environment."""
    environment: dict[str, str] = {}
    for raw in text.split("\n"):
        line = raw[:-1] if raw.endswith("\r") else raw
        if line[:1] == "#":
            continue
        end = line.find("=")
        if end < 0:
            continue
        if line[:end][:1023] not in environment:  # setenv(name, value, 0)
            environment[line[:end][:1023]] = line[end + 1 :][:1023]
    return environment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NCCL_DEBUG=INFO\nNCCL_DEBUG=WARN\n",
        "#NCCL_DEBUG=INFO\n # NCCL_DEBUG=WARN\nNCCL_DEBUG=TRACE",
        "NCCL_DEBUG = INFO\nexport NCCL_DEBUG=WARN\n",
        "NCCL_DEBUG=INFO\r\nNCCL_A=1\r\r\nNCCL_SOCKET_IFNAME==eth0\nno value\n\nNCCL_X=",
    ],
)
def test_the_file_is_read_as_nccl_reads_it(text: str) -> None:
    assert config.effective(text) == nccl_reads(text)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (None, "# BEGIN Written by hpcai.gpu_cluster, role node_tuning (file, too)\n"),
        ("", "# BEGIN Written by hpcai.gpu_cluster, role node_tuning\n"),
        ("NCCL_DEBUG=INFO\n", "NCCL_DEBUG=INFO\n# BEGIN Written by hpcai.gpu_cluster, role node_tuning\n"),
        (
            "NCCL_DEBUG=INFO",
            "NCCL_DEBUG=INFO\n# BEGIN Written by hpcai.gpu_cluster, role node_tuning (newline, too)\n",
        ),
    ],
)
def test_our_lines_come_last_and_leave_no_trace(text: str | None, start: str) -> None:
    merged, ours, findings = config.merge(text, OURS)
    assert merged == start + BLOCK
    assert (ours, findings) == (OURS, [])
    assert config.merge(merged, OURS)[0] == merged, "a second run changes nothing"
    assert config.merge(merged, {})[0] == text
    assert nccl_reads(merged) == {**nccl_reads(text or ""), **OURS}


def test_what_somebody_else_wrote_stays_wins_and_is_reported() -> None:
    text = "NCCL_TOPO_FILE=/site/topo.xml\n"
    merged, ours, findings = config.merge(text, OURS)
    assert merged is not None
    assert nccl_reads(merged)["NCCL_TOPO_FILE"] == "/site/topo.xml"
    assert ours == {"NCCL_IGNORE_CPU_AFFINITY": "1"}
    assert [(one.level, one.about) for one in findings] == [("warn", "NCCL_TOPO_FILE")]
    assert "/site/topo.xml" in findings[0].text


def test_a_line_that_says_the_same_is_no_finding() -> None:
    assert config.merge("NCCL_IGNORE_CPU_AFFINITY=1\n", {"NCCL_IGNORE_CPU_AFFINITY": "1"}) == (
        "NCCL_IGNORE_CPU_AFFINITY=1\n",
        {},
        [],
    )


def test_another_name_of_the_same_file_is_no_finding() -> None:
    """Azure's script writes the path of a link to the file."""
    merged = config.merge(
        "NCCL_TOPO_FILE=/opt/link.xml\n", OURS, lambda one, other: {one, other} <= {"/opt/link.xml", "/opt/topo.xml"}
    )
    assert merged[2] == []
    other = config.merge("NCCL_IGNORE_CPU_AFFINITY=0\n", OURS, lambda one, other: True)
    assert [one.about for one in other[2]] == ["NCCL_IGNORE_CPU_AFFINITY"], "only of files"


def test_a_line_added_by_hand_later_takes_ours_out() -> None:
    merged = config.merge(None, OURS)[0]
    edited = f"{merged}NCCL_IGNORE_CPU_AFFINITY=0\n"
    again, dummy, findings = config.merge(edited, OURS)
    assert again is not None
    assert nccl_reads(again)["NCCL_IGNORE_CPU_AFFINITY"] == "0"
    assert len(findings) == 1
    assert config.merge(again, {})[0] == "NCCL_IGNORE_CPU_AFFINITY=0\n", "the file stays: it is somebody's now"


@pytest.mark.parametrize(
    ("text", "about", "says"),
    [
        ("export NCCL_DEBUG=INFO\n", "/etc/nccl.conf", "'export NCCL_DEBUG'"),
        ("NCCL_DEBUG =INFO\n", "/etc/nccl.conf", "'NCCL_DEBUG '"),
        ("NCCL_DEBUG=INFO\nNCCL_DEBUG=WARN\n", "NCCL_DEBUG", "INFO"),
    ],
)
def test_lines_that_do_something_else_than_they_seem_to(text: str, about: str, says: str) -> None:
    (finding,) = config.merge(text, {})[2]
    assert (finding.level, finding.about) == ("warn", about)
    assert says in finding.text


@pytest.mark.parametrize(
    "variables", [{"NCCL DEBUG": "1"}, {"A=B": "1"}, {"": "1"}, {"A": "1\nB=2"}, {"A": "x" * 1024}]
)
def test_variables_that_nccl_would_read_as_something_else_are_refused(variables: dict[str, str]) -> None:
    with pytest.raises(config.NcclConfError):
        config.merge(None, variables)


def test_azure_s_service_gets_our_lines_behind_its_own() -> None:
    """Its script has written the file anew; of two lines NCCL takes the first, so what is appended takes nothing."""
    image = "NCCL_TOPO_FILE=/opt/microsoft/ndv4/topo.xml\n"
    after_boot = image + config.block({"NCCL_DEBUG": "WARN"})
    assert config.merge(after_boot, {"NCCL_DEBUG": "WARN"})[0] == after_boot
    assert config.others(after_boot) == image
    assert "cat /etc/hpcai/nccl.conf >>/etc/nccl.conf" in config.dropin("/etc/hpcai/nccl.conf")
