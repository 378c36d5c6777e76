# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import accounting as acct
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.accounting import read

WANTED = acct.AccountingRequest("lab", [], [], [])
ANSWERS = """#!/bin/sh
case "$3" in
  cluster) echo lab ;;
  qos) echo "normal|" ;;
  account) echo "root|default|root" ;;
  user) echo "root|root|Administrator" ;;
  association) echo "root|||" ;;
esac
"""


def sacctmgr(place: Path, text: str) -> str:
    path = place / "sacctmgr"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_everything_is_asked(tmp_path: Path) -> None:
    now = read(sacctmgr(tmp_path, ANSWERS), {}, WANTED, 10, forgiving=False)
    assert list(now) == list(acct.show_commands(WANTED))
    assert now["cluster"] == [{"cluster": "lab"}]
    assert now["user"] == [{"user": "root", "defaultaccount": "root", "adminlevel": "Administrator"}]


def test_silence_is_an_error_but_for_check_mode(tmp_path: Path) -> None:
    program = sacctmgr(tmp_path, "#!/bin/sh\necho refused >&2; exit 1\n")
    with pytest.raises(acct.AccountingError, match=r"is slurmdbd running.*refused"):
        read(program, {}, WANTED, 0.5, forgiving=False)
    assert set(read(program, {}, WANTED, 0.5, forgiving=True)) == set(acct.show_commands(WANTED))


@pytest.mark.parametrize("failures", [1, 3, 7])
def test_questions_wait_for_slurmdbd(tmp_path: Path, failures: int) -> None:
    gate = f"for n in $(seq {failures}); do mkdir {tmp_path}/$n 2>/dev/null && exit 1; done"
    program = sacctmgr(tmp_path, ANSWERS.replace("\n", f"\n{gate}\n", 1))
    now = read(program, {}, WANTED, 10, forgiving=False)
    assert now["cluster"] == [{"cluster": "lab"}]
    assert all(now.values())


def test_a_question_that_fails_for_good_is_named(tmp_path: Path) -> None:
    program = sacctmgr(tmp_path, ANSWERS.replace('echo "normal|"', "echo no such format >&2; exit 1"))
    with pytest.raises(acct.AccountingError, match=r"show qos .*no such format"):
        read(program, {}, WANTED, 10, forgiving=False)
