# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import contextlib
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import packages, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.plan import VersionError

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm_upgrade"
OLD, NEW = "24.11.5-4+deb13u1", "26.05.5-1"
ALL = ["slurm-client", "slurm-wlm-basic-plugins", "slurm-wlm-mysql-plugin", "slurmctld", "slurmd", "slurmdbd"]
HERE = packages.installed((FIXTURES / "dpkg-24.11.txt").read_text())
PARAMS: dict[str, t.Any] = {
    "may_go": [],
    "packages": [],
    "version": "26.05",
    "state": "present",
    "under_daemons": False,
    "lists_max_age": -1,
    "timeout": 1,
}
THERE = {name: [NEW] for name in ALL}


def test_what_is_installed() -> None:
    assert dict.fromkeys(ALL, OLD) == HERE
    assert set(packages.installed((FIXTURES / "dpkg-26.05.txt").read_text()).values()) == {NEW}
    half = packages.installed(f"slurmd|{NEW}|slurm-wlm|iU \nslurm-smd|24.05.1-1|slurm-smd|hi \nmunge|0.5|munge|ii ")
    assert half == {"slurmd": NEW, "slurm-smd": "24.05.1-1"}
    gone = packages.installed("slurmd|1|slurm-wlm|rc \nslurmd||slurm-wlm|un \nslurmdbd||slurm-wlm|iHR")
    assert gone == {}


def test_a_dpkg_that_was_killed() -> None:
    assert not packages.unfinished("ii \nrc \nun \nhi \n")
    assert all(packages.unfinished(f"ii \n{status}\n") for status in ("iU ", "iF ", "iHR", "iW ", "it ", "iiR"))
    assert packages.half_installed("ii |slurmd\niHR|libze1:amd64\niU |slurm-client\n") == ["libze1:amd64"]
    plan = packages.host("26.05", [], dict.fromkeys(ALL, NEW), THERE)  # all unpacked, none configured
    assert (plan.version, plan.changes) == (NEW, False)


def test_what_is_torn_may_not_fit_what_is_still_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """dpkg died over a library that another package, not yet exchanged, wants in its old version."""
    calls: list[list[str]] = []
    half = ["iHR|libhwloc15:amd64\n"]

    def run(argv: t.Sequence[str], *dummy: t.Any, **more: t.Any) -> Outcome:
        calls.append(list(argv))
        if argv == packages.HALF:
            return Outcome(0, half[0], "", 0.0)
        if argv[0] == "apt-get" and argv[-1] == "install":
            half[0] = "ii |libhwloc15:amd64\n"
            return Outcome(0, "", "", 0.0)
        return Outcome(100 if argv[0] == "apt-get" else 1, "", "E: Unmet dependencies.", 0.0)

    monkeypatch.setattr(packages, "run", run)
    monkeypatch.setattr(packages, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(packages, "no_daemons", contextlib.nullcontext)
    packages.SlurmApt([], "26.05", -1, 1, False).repair()
    assert [argv[-1] for argv in calls if argv[0] == "apt-get"] == ["libhwloc15:amd64", "install"]


@pytest.mark.parametrize("fits", [True, False])
def test_what_is_configured_may_not_fit_what_is_still_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fits: bool
) -> None:
    """dpkg died between two packages: it finishes the first without complaint, and apt refuses all that follows."""
    calls: list[list[str]] = []

    def run(argv: t.Sequence[str], *dummy: t.Any, **more: t.Any) -> Outcome:
        calls.append(list(argv))
        broken = argv == ["apt-get", "check"] and not fits
        said = "E: Unmet dependencies. Try 'apt --fix-broken install' with no packages" if broken else ""
        return Outcome(100 if broken else 0, "", said, 0.0)

    monkeypatch.setattr(packages, "run", run)
    monkeypatch.setattr(packages, "no_daemons", contextlib.nullcontext)
    packages.SlurmApt([], "26.05", -1, 1, False).repair()
    assert [argv[-1] for argv in calls if argv[0] == "apt-get"] == (["check"] if fits else ["check", "install"])


def test_what_is_offered() -> None:
    assert packages.offered((FIXTURES / "madison-26.05.txt").read_text())["slurmd"] == [NEW]
    text = "slurmd | 2 | http://a b Packages\nslurmd | 1 | http://a b Packages\nslurmd | 2 | http://a b Sources\n"
    assert packages.offered(text) == {"slurmd": ["2", "1"]}


def test_all_packages_of_a_host_move_together() -> None:
    plan = packages.host("26.05", ["slurmd", "slurm-client"], HERE, THERE)
    assert (plan.version, plan.changes) == (NEW, True)
    assert plan.install == [f"{name}={NEW}" for name in ALL]
    again = packages.host("26.05", [], dict.fromkeys(ALL, NEW), THERE)
    assert (again.version, again.changes) == (NEW, False)


def test_an_old_library_stays_behind() -> None:
    plan = packages.host("26.05", ["slurmd"], {**HERE, "libslurm42t64": OLD}, {**THERE, "libslurm45t64": [NEW]})
    assert "libslurm42t64" not in {word.partition("=")[0] for word in plan.install}


def test_a_dpkg_that_was_killed_is_carried_on() -> None:
    plan = packages.host("26.05", [], {**HERE, "slurmd": NEW}, THERE)
    assert (plan.version, plan.changes) == (NEW, True)


def test_fixes_of_a_version_are_in_their_order() -> None:
    fixes = {name: ["26.05.5-9", "26.05.5-10"] for name in ALL}
    assert packages.host("26.05", ["slurmd"], {}, fixes).version == "26.05.5-10"


def test_what_is_installed_and_fits_stays() -> None:
    newer = {name: ["24.11.6-1", NEW] for name in ALL}
    assert packages.host("24.11", [], HERE, newer).version == OLD
    assert packages.host("24.11.6", [], HERE, newer).version == "24.11.6-1"


@pytest.mark.parametrize(
    ("wanted", "here", "words"),
    [
        ("26.05.9", HERE, f"no version of .* fits '26.05.9': installed .*, apt offers {NEW}"),
        ("23.02", HERE, "cannot go back"),
        ("27.11", HERE, "takes over from 27.05, 26.11, 26.05"),
        ("26.05", {}, "there is no package of Slurm here"),
    ],
)
def test_what_cannot_be_had(wanted: str, here: dict[str, str], words: str) -> None:
    with pytest.raises(VersionError, match=words.replace("+", r"\+")):
        packages.host(wanted, [], here, THERE)


def test_what_apt_would_do() -> None:
    moved, gone = packages.simulated((FIXTURES / "apt-simulate.txt").read_text())
    assert len(moved) == 15 and not gone
    assert {"name": "slurmd", "before": OLD, "after": NEW} in moved
    assert {"name": "libxml2-16", "before": "", "after": "2.15.4+dfsg-1+b1"} in moved
    dummy, gone = packages.simulated("Remv libslurm42t64 [24.11.5-4]\nRemv nvslurm-plugin-pyxis [0.24]\n")
    assert packages.refused(gone, {"libslurm42t64": OLD}).startswith("apt would remove nvslurm-plugin-pyxis, which")
    assert packages.refused(gone, {"libslurm42t64": OLD}, ["nvslurm-plugin-pyxis"]) == ""
    assert packages.refused(["libslurm42t64"], {"libslurm42t64": OLD}) == ""


def test_which_daemons_run() -> None:
    text = (FIXTURES / "systemctl-show.txt").read_text()
    found = state.daemons(text, lambda dummy: b"\0\x7fELF\x0024.11.5\0slurmctld version %s started\0")
    assert found["slurmctld"] == state.Daemon(True, True, "24.11.5")
    assert found["slurmd"] == state.Daemon(True, False, "")

    def ended(pid: str) -> bytes:
        raise FileNotFoundError(pid)

    assert state.daemons(text, ended)["slurmdbd"] == state.Daemon(True, False, "")


def test_a_version_in_a_program() -> None:
    assert state.constant(b"\x0026.05.5\0") == "26.05.5"
    assert state.constant(b"\x0026.11.0-0rc1\0") == "26.11.0-0rc1"
    assert state.constant(b"\x0026.05.5\0 \x0024.11.5\0") == ""
    assert state.constant(b"nothing") == ""


def test_daemons_are_left_alone_and_the_administrator_s_policy_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "policy-rc.d"
    with packages.no_daemons(path):
        assert "exit 101" in path.read_text()
    assert not path.exists()
    path.write_text("#!/bin/sh\nexit 0 # mine\n")
    with packages.no_daemons(path):
        assert "exit 101" in path.read_text()
    assert "mine" in path.read_text()


def test_a_policy_that_a_killed_run_left_goes(tmp_path: Path) -> None:
    path = tmp_path / "policy-rc.d"
    path.write_text(f"#!/bin/sh\n# {packages.MARK}\nexit 101\n")
    with packages.no_daemons(path):
        pass
    assert not path.exists()


def test_dpkg_s_reason_is_told() -> None:
    said = """Preparing to unpack .../11-slurmd_26.05.5-1_amd64.deb ...
dpkg: error processing archive /tmp/x/11-slurmd_26.05.5-1_amd64.deb (--unpack):
 unable to make backup link of './usr/sbin/slurmd-wlm' before installing new version: Device or resource busy
Errors were encountered while processing:
 /tmp/x/11-slurmd_26.05.5-1_amd64.deb
"""
    text = packages.apt_errors(Outcome(100, said, "E: Sub-process /usr/bin/dpkg returned an error code (1)\n", 1.0))
    assert text.startswith("E: Sub-process") and text.endswith("before installing new version: Device or resource busy")
    held = "The following packages have unmet dependencies:\n slurmd : Depends: libhwloc15 (>= 2.15.0) but 2.12.0-4"
    assert "slurmd : Depends: libhwloc15" in packages.apt_errors(
        Outcome(100, held, "E: Unable to correct problems\n", 1.0)
    )
    assert packages.apt_errors(Outcome(1, "", "killed\n", 1.0)) == "exit status 1: killed"


class FakeApt:
    """Stands for apt and dpkg on one host."""

    broken, active, done = False, False, ""

    def __init__(self, *dummy: object) -> None:
        self.calls: list[str] = []
        FakeApt.last = self

    def look(self) -> packages.PackageHost:
        return (
            packages.host("26.05", [], HERE, THERE)
            if self.done != "install"
            else packages.PackageHost({}, NEW, [], False)
        )

    def daemons(self) -> dict[str, state.Daemon]:
        return {"slurmd": state.Daemon(True, self.active, "24.11.5" if self.active else "")}

    def interrupted(self) -> bool:
        return self.broken

    def effect(self, dummy: object, may_go: object) -> tuple[list[dict[str, str]], list[str]]:
        self.calls.append("effect")
        return [{"name": "slurmd", "before": OLD, "after": NEW}], []

    def __getattr__(self, name: str) -> t.Callable[..., None]:
        return lambda *dummy: self.calls.append(name)


@pytest.mark.parametrize(
    ("state", "broken", "check", "calls", "changed"),
    [
        ("planned", False, False, ["effect"], False),
        ("planned", True, False, [], False),
        ("downloaded", False, False, ["effect", "download"], False),
        ("downloaded", True, False, [], False),
        ("present", False, True, ["effect"], True),
        ("present", False, False, ["effect", "install"], True),
        ("present", True, False, ["repair", "effect", "install"], True),
        ("present", True, True, [], True),
    ],
)
def test_what_is_done_in_which_state(
    monkeypatch: pytest.MonkeyPatch, state: str, broken: bool, check: bool, calls: list[str], changed: bool
) -> None:
    monkeypatch.setattr(packages, "SlurmApt", FakeApt)
    monkeypatch.setattr(FakeApt, "broken", broken)
    found = packages.perform({**PARAMS, "state": state}, check)
    assert (FakeApt.last.calls, found["changed"], found["interrupted"]) == (calls, changed, broken)
    assert bool(found.get("diff")) is ("effect" in calls)


def test_more_of_the_same_version_comes_beside_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "SlurmApt", FakeApt)
    monkeypatch.setattr(FakeApt, "active", True)
    here = {name: version for name, version in HERE.items() if name != "slurmctld"}
    there = {name: [OLD] for name in ALL}
    monkeypatch.setattr(FakeApt, "look", lambda dummy: packages.host(OLD, ["slurmctld"], here, there))
    assert packages.perform({**PARAMS, "version": OLD}, False)["changed"]
    assert FakeApt.last.calls == ["effect", "install"]


def test_a_daemon_that_runs_keeps_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "SlurmApt", FakeApt)
    monkeypatch.setattr(FakeApt, "active", True)
    with pytest.raises(packages.PackageError, match=r"slurmd 24\.11\.5 run here, .* by playbook upgrade_slurm\.yml"):
        packages.perform(PARAMS, False)
    assert FakeApt.last.calls == []
    assert packages.perform({**PARAMS, "under_daemons": True}, False)["changed"]
    assert packages.perform({**PARAMS, "state": "planned"}, False)["problem"] == ""
