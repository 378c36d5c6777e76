# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log of an NCCL job lies where everybody may write, and follows nobody's link."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "roles/nccl_examples/templates/nccl.sh.j2").read_text(encoding="utf-8")


def test_a_link_under_the_name_that_somebody_foresees_is_not_written_through(tmp_path: Path) -> None:
    logs, mine = tmp_path / "logs", tmp_path / "bashrc"
    logs.mkdir(mode=0o1777)
    mine.write_text("mine")
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    (output,) = [line.partition("=")[2] for line in TEXT.splitlines() if line.startswith("#SBATCH --output=")]
    foreseen = output.replace("{{ nccl_examples_dir }}", str(tmp_path))
    for pattern, value in (("%u", user), ("%x", "nccl"), ("%j", "7")):
        foreseen = foreseen.replace(pattern, value)
    assert not Path(foreseen).is_relative_to(tmp_path), "slurmd opens what the job's user could not refuse"
    for name in (f"{user}_nccl_7.log", f"{user}_nccl_7..log"):
        (logs / name).symlink_to(mine)
    begin = TEXT.index("log=$(")
    lines = TEXT[begin : TEXT.index("\n", TEXT.index("exec >", begin))]
    script = "set -eu\n" + lines.replace("{{ nccl_examples_dir | quote }}", str(tmp_path)) + "\necho busbw\n"
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_NAME": "nccl", "SLURM_JOB_ID": "7"}
    subprocess.run(["bash", "-c", script], env=environment, check=True)
    assert mine.read_text() == "mine"
    (made,) = [path for path in logs.glob(f"{user}_nccl_*.log") if not path.is_symlink()]
    assert made.read_text() == "busbw\n"
    assert made.stat().st_mode & 0o777 == 0o600
