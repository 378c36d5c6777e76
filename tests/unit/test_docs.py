# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documents show is run, by a Python that has no Ansible."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ansible_collections

ROOT = Path(__file__).resolve().parents[2]
COLLECTIONS = next(iter(ansible_collections.__path__))
LOG = ROOT / "tests/unit/fixtures/nccl_tests/authored-2.16.7-broadcast.txt"


@pytest.mark.parametrize("page", ["docs/overview.md", "docs/parsers.md", "plugins/module_utils/parsers/__init__.py"])
def test_the_example_of_the_library_runs_without_ansible(page: str, tmp_path: Path) -> None:
    shown = (ROOT / page).read_text(encoding="utf-8")
    pattern = r"```python\n(.*?)```" if page.endswith(".md") else r"::\n\n(.*?)\n\n[A-Z]"
    code = re.search(pattern, shown, re.DOTALL)
    assert code, page
    lines = [line[4:] if page.endswith(".py") else line for line in code[1].splitlines()]
    blocked = "import sys; sys.modules['ansible'] = None\n"
    (tmp_path / "slurm-1234.out").write_bytes(LOG.read_bytes())
    (tmp_path / "nccl.log").write_bytes(LOG.read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", blocked + "\n".join(lines)],
        env={"PYTHONPATH": str(Path(COLLECTIONS).parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"broadcast_perf:? \d+ ranks", done.stdout)
    assert "Not to be trusted" not in done.stdout
