# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _machine as machine

DEBIAN = 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nID=debian\n'
UBUNTU = 'NAME="Ubuntu"\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\n'
ROCKY = 'NAME="Rocky Linux"\nVERSION_ID="9.4"\nID="rocky"\nID_LIKE="rhel centos fedora"\n'
HEADER = "# The following is the parsable format\n# Socket,Core\n"


@pytest.mark.parametrize(
    ("release", "point", "wanted"),
    [
        (DEBIAN, "12.15\n", ("Debian", "12.15", "12", "bookworm", "Debian")),
        (DEBIAN, "", ("Debian", "12", "12", "bookworm", "Debian")),
        (UBUNTU, "trixie/sid\n", ("Ubuntu", "24.04", "24", "noble", "Debian")),
        (ROCKY, "", ("Rocky Linux", "9.4", "9", "", "unknown")),
        ("", "", ("unknown", "", "", "", "unknown")),
    ],
)
def test_system(release: str, point: str, wanted: tuple[str, ...]) -> None:
    assert tuple(machine.system(release, point).values()) == wanted


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["0,0", "0,1", "0,2", "0,3"], (1, 4, 1, 4)),
        (["0,0", "0,0", "0,1", "0,1", "1,2", "1,2", "1,3", "1,3"], (2, 2, 2, 8)),
        (["0,0", "0,1", "1,0", "1,1"], (2, 2, 1, 4)),
        ([",0", ",1"], (1, 2, 1, 2)),  # no sockets told, as on some ARM machines
    ],
)
def test_processors(lines: list[str], wanted: tuple[int, ...]) -> None:
    assert tuple(machine.processors(HEADER + "\n".join(lines)).values()) == wanted


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(machine.MachineError, match="lscpu printed no processors"):
        machine.processors(HEADER)
    with pytest.raises(machine.MachineError, match="MemTotal"):
        machine.memory("")
    assert machine.memory("MemTotal:       24683520 kB\nMemFree: 1 kB\n") == {"memtotal_mb": 24105}


def test_only_what_is_wholly_installed_counts() -> None:
    listed = machine.packages("ii munge\nrc slurmd\nhi slurmctld\niF half\n")
    assert listed == {"hpcai_packages": ["munge", "slurmctld"]}
