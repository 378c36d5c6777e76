# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module job_hooks as a process: two parts in the same directories, and one that is switched off."""

from __future__ import annotations

import os
import stat
import subprocess
import typing as t
from pathlib import Path

import pytest
from module_process import Machine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the programs are root's")
CLEANUP = "#!/bin/sh\necho cleaned\n"


class Hooks(Machine):
    module = "job_hooks"

    def run(self, **params: t.Any) -> dict[str, t.Any]:
        return self(prolog_dir=str(self.folder / "prolog.d"), epilog_dir=str(self.folder / "epilog.d"), **params)

    def programs(self) -> set[str]:
        found = (path for path in self.folder.glob("*.d/*"))
        return {str(path.relative_to(self.folder)) for path in found}


@pytest.fixture
def hooks(tmp_path: Path) -> Hooks:
    return Hooks(tmp_path)


ANCHORS = {"prolog.d/00-hpcai", "epilog.d/00-hpcai"}


def test_check_mode_tells_what_the_run_does_and_the_next_run_does_nothing(hooks: Hooks) -> None:
    wanted = {"name": "50-site", "prolog": CLEANUP, "epilog": CLEANUP}
    would = hooks.run(check_mode=True, **wanted)
    assert hooks.programs() == set()
    done = hooks.run(**wanted)
    assert would["changed"] is done["changed"] is True
    assert (would["written"], would["removed"]) == (done["written"], done["removed"])
    assert hooks.programs() == ANCHORS | {"prolog.d/50-site", "epilog.d/50-site"}
    assert hooks.run(**wanted)["changed"] is False


def test_everything_is_root_s_and_runs(hooks: Hooks) -> None:
    hooks.run(name="50-site", prolog=CLEANUP)
    for path in [*hooks.folder.glob("*.d"), *hooks.folder.glob("*.d/*")]:
        assert (path.owner(), stat.S_IMODE(path.stat().st_mode)) == ("root", 0o755)
    said = [subprocess.check_output([path], text=True) for path in sorted(hooks.folder.glob("prolog.d/*"))]
    assert said == ["", "cleaned\n"]


def test_what_was_changed_by_hand_is_mended(hooks: Hooks) -> None:
    hooks.run(name="50-site", prolog=CLEANUP)
    program = hooks.folder / "prolog.d/50-site"
    program.write_text("#!/bin/sh\nexit 1\n")
    (hooks.folder / "epilog.d/00-hpcai").chmod(0o777)
    assert hooks.run(name="50-site", prolog=CLEANUP)["written"] == [str(program)]
    assert program.read_text() == CLEANUP
    assert stat.S_IMODE((hooks.folder / "epilog.d/00-hpcai").stat().st_mode) == 0o755


def test_one_part_is_switched_off_and_all_others_stay(hooks: Hooks) -> None:
    """The directories keep a program each: slurmd fails all jobs when it finds none."""
    for name in ("10-health", "50-site"):
        hooks.run(name=name, prolog=CLEANUP, epilog=CLEANUP)
    would = hooks.run(name="50-site", state="absent", check_mode=True)
    assert "prolog.d/50-site" in hooks.programs()
    done = hooks.run(name="50-site", state="absent")
    assert would["removed"] == done["removed"] != []
    assert hooks.programs() == ANCHORS | {"prolog.d/10-health", "epilog.d/10-health"}
    assert hooks.run(name="50-site", state="absent")["changed"] is False


def test_a_part_that_needs_no_epilog_any_more_has_none(hooks: Hooks) -> None:
    hooks.run(name="50-site", prolog=CLEANUP, epilog=CLEANUP)
    assert hooks.run(name="50-site", prolog=CLEANUP)["removed"] == [str(hooks.folder / "epilog.d/50-site")]
    assert hooks.programs() == ANCHORS | {"prolog.d/50-site"}


def test_removing_where_there_is_no_directory_makes_none(hooks: Hooks) -> None:
    assert hooks.run(name="50-site", state="absent")["changed"] is False
    assert hooks.programs() == set()


def test_without_a_name_there_are_the_directories_alone(hooks: Hooks) -> None:
    assert hooks.run()["changed"] is True
    assert hooks.programs() == ANCHORS


@pytest.mark.parametrize("name", ["00-hpcai", "../50-site", "50-site/x", "site", "50-", "50-Site", "50-site\n"])
def test_a_name_that_is_none_or_everybody_s_is_refused(hooks: Hooks, name: str) -> None:
    for state in ("present", "absent"):
        failed = hooks.run(name=name, state=state)
        assert failed["failed"] and "50-site-cleanup" in failed["msg"]
    assert hooks.programs() == set()


def test_a_program_without_a_name_is_refused(hooks: Hooks) -> None:
    assert "needs a name" in hooks.run(prolog=CLEANUP)["msg"]
