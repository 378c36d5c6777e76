# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a node: files and kernel values from options, what was there before, and the way back."""

from __future__ import annotations

import copy
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning import module, settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.settings import TuningSettings

ALL = TuningSettings(
    limits={"memlock": "unlimited", "nofile": "1048576"},
    sysctl={"vm.zone_reclaim_mode": "1", "net.ipv4.tcp_rmem": "4096 67108864 1073741824"},
    transparent_hugepages="madvise",
    nfs_readahead_kb=15380,
    sunrpc_slots=128,
    kernel_modules=["nvidia-peermem"],
    rdma_names={"0102": "mlx5_ib1", "0101": "mlx5_ib0"},
    keep_ipc=True,
)
ZONE = "/proc/sys/vm/zone_reclaim_mode"


def test_nothing_wanted_is_no_file() -> None:
    assert set(settings.files(TuningSettings()).values()) == {None}


def test_limits_reach_logins_and_jobs() -> None:
    made = settings.files(ALL)
    assert "*  soft  memlock   unlimited\n*  hard  memlock   unlimited\n" in str(made[settings.LIMITS])
    assert "[Service]\nLimitMEMLOCK=infinity\nLimitNOFILE=1048576\n" in str(made[settings.SLURMD])


def test_the_rules_for_adapters_leave_others_to_rdma_core() -> None:
    lines = str(settings.files(ALL)[settings.RDMA]).splitlines()
    assert [re.search(r'KERNELS=="(\w+):\*".*NAME_FIXED (\w+)"', line).groups() for line in lines[1:3]] == [  # type: ignore[union-attr]
        ("0101", "mlx5_ib0"),
        ("0102", "mlx5_ib1"),
    ]
    assert lines[-2].endswith('PROGRAM="rdma_rename %k NAME_FALLBACK"')
    assert lines[-1] == 'LABEL="hpcai_rdma_end"'


def test_the_rule_for_nfs_comes_after_that_of_nfs_utils_and_keeps_awk_s_dollar() -> None:
    """udev takes a single dollar for a substitution of its own: "$4" is an invalid one."""
    assert Path(settings.READAHEAD).name > "99-nfs.rules"
    rule = str(settings.files(ALL)[settings.READAHEAD])
    assert "$$4 == bdi" in rule
    assert re.findall(r"\$\w+", rule.replace("$$", "")) == ["$kernel"]


def test_a_number_of_memory_is_as_much_for_jobs_as_for_logins() -> None:
    made = settings.files(TuningSettings(limits={"memlock": "65536", "stack": 8192, "nofile": 4096, "nproc": -1}))  # type: ignore[dict-item]
    assert "*  hard  memlock   65536\n" in str(made[settings.LIMITS])
    assert "*  hard  nproc     unlimited\n" in str(made[settings.LIMITS])
    jobs = "LimitMEMLOCK=65536K\nLimitNOFILE=4096\nLimitNPROC=infinity\nLimitSTACK=8192K\n"
    assert jobs in str(made[settings.SLURMD])


@pytest.mark.parametrize("value", ["64M", "soft", "", "8192 # x", "1.5"])
def test_a_limit_is_a_number_or_unlimited(value: str) -> None:
    with pytest.raises(settings.SettingError, match="accepted: unlimited or a whole number, of KiB"):
        settings.files(TuningSettings(limits={"memlock": value}))


@pytest.mark.parametrize(
    "requested",
    [
        {"limits": {"memlock": "1\nroot - nproc 0"}},
        {"sysctl": {"vm.x": "1\nkernel.core_pattern = |/tmp/x"}},
        {"sysctl": {"vm.x = 1\nkernel.core_pattern": "|/tmp/x"}},
        {"kernel_modules": ["a\nevil"]},
        {"transparent_hugepages": "never\nL+ /etc/shadow - - - - /tmp/x"},
        {"rdma_names": {"0101": 'a"\nRUN+="/tmp/x'}},
    ],
)
def test_a_newline_is_no_line_of_a_drop_in(requested: dict[str, t.Any]) -> None:
    with pytest.raises(settings.SettingError, match="newline or another control character"):
        settings.files(TuningSettings(**requested))


@pytest.mark.parametrize("limits", [{"cores": "1"}, {"memlock": "unlimited", "rss": "1"}])
def test_an_unknown_limit_is_refused(limits: dict[str, str]) -> None:
    with pytest.raises(settings.SettingError, match="known are memlock, nofile, nproc, stack"):
        settings.files(TuningSettings(limits=limits))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("vm.zone_reclaim_mode", ZONE),
        ("net.ipv4.conf.eth0/100.forwarding", "/proc/sys/net/ipv4/conf/eth0.100/forwarding"),
        ("net/ipv4/conf/eth0.100/forwarding", "/proc/sys/net/ipv4/conf/eth0.100/forwarding"),
    ],
)
def test_places_of_sysctl(name: str, path: str) -> None:
    assert settings.sysctl_file(name) == path


@pytest.mark.parametrize(
    ("text", "value"),
    [("always [madvise] never\n", "madvise"), ("4096\t131072\t6291456\n", "4096 131072 6291456"), ("1\n", "1")],
)
def test_values_as_the_kernel_prints_them(text: str, value: str) -> None:
    assert settings.normal(text) == value


def follow(plan: settings.TuningPlan, now: dict[str, str]) -> dict[str, str]:
    return {**now, **{one.path: one.after for one in plan.writes}}


def test_a_value_is_set_kept_and_given_back() -> None:
    wanted, now = settings.values(TuningSettings(sysctl={"vm.zone_reclaim_mode": "1"}), []), {ZONE: "0"}
    first = settings.plan(wanted, now, {})
    assert [tuple(one) for one in first.writes] == [("vm.zone_reclaim_mode", ZONE, "0", "1")]
    now = follow(first, now)
    second = settings.plan(wanted, now, first.record)
    assert (second.writes, second.record) == ([], first.record)
    changed = settings.plan(
        settings.values(TuningSettings(sysctl={"vm.zone_reclaim_mode": "3"}), []), now, first.record
    )
    assert changed.record["vm.zone_reclaim_mode"]["before"] == "0", "what was there before us, not before this run"
    now = follow(changed, now)
    back = settings.plan([], now, changed.record)
    assert (follow(back, now), back.record) == ({ZONE: "0"}, {})


def test_what_was_so_before_us_is_not_given_back() -> None:
    plan = settings.plan(settings.values(TuningSettings(sysctl={"vm.zone_reclaim_mode": "1"}), []), {ZONE: "1"}, {})
    assert (plan.writes, plan.record) == ([], {})


def test_what_somebody_changed_since_is_theirs() -> None:
    record = {"vm.zone_reclaim_mode": {"before": "0", "set": "1", "paths": [ZONE]}}
    assert settings.plan([], {ZONE: "5"}, record).writes == []
    assert settings.plan([], {}, record).writes == [], "the kernel has it no more"


def test_a_value_that_the_kernel_lacks_is_no_error() -> None:
    plan = settings.plan(settings.values(TuningSettings(sunrpc_slots=128), []), {}, {})
    assert (plan.writes, plan.record) == ([], {})
    assert [one.level for one in plan.findings] == ["info"]


def test_every_nfs_mount_gets_the_read_ahead_and_none_is_no_finding() -> None:
    devices = ["/sys/class/bdi/0:41/read_ahead_kb", "/sys/class/bdi/0:42/read_ahead_kb"]
    plan = settings.plan(
        settings.values(TuningSettings(nfs_readahead_kb=15380), devices), dict.fromkeys(devices, "128"), {}
    )
    assert [one.path for one in plan.writes] == devices
    assert settings.plan(settings.values(TuningSettings(nfs_readahead_kb=15380), []), {}, {}).findings == []


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("vm.zone_reclaim_mode = 0\n", True),
        ("vm/zone_reclaim_mode=0 \n", True),
        ("-vm.zone_reclaim_mode=0\n", True),
        ("vm.zone_reclaim_mode = 1\n", False),
        ("# vm.zone_reclaim_mode = 0\n; vm.zone_reclaim_mode = 0\n", False),
        ("vm.zone_reclaim_mode = 0\nvm.zone_reclaim_mode = 1\n", False),
    ],
)
def test_a_file_that_is_read_later_wins(text: str, lost: bool) -> None:
    names, findings = settings.outranked({"/etc/sysctl.conf": text}, {"vm.zone_reclaim_mode": "1"})
    assert bool(names) == bool(findings) == lost
    assert all("/etc/sysctl.conf says 0" in one.text for one in findings)


def machine(root: Path, texts: t.Mapping[str, str]) -> str:
    for path, text in texts.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return str(root)


def test_later_files_in_the_order_of_sysctl(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "etc/sysctl.d/90-hpcai.conf": "ours",
            "etc/sysctl.d/10-early.conf": "early",
            "usr/lib/sysctl.d/95-vendor.conf": "hidden",
            "etc/sysctl.d/95-vendor.conf": "vendor",
            "run/sysctl.d/99-late.conf": "late",
            "etc/sysctl.conf": "last",
        },
    )
    assert list(settings.later_sysctl(root).values()) == ["vendor", "late", "last"]


def test_nfs_mounts_by_their_device(tmp_path: Path) -> None:
    mounts = (
        "23 1 254:0 / / rw - ext4 /dev/vda rw\n199 25 0:41 / /m rw shared:104 - nfs4 127.0.0.1:/e rw,vers=4.2\n"
        "200 25 0:41 /sub /n rw - nfs4 127.0.0.1:/e rw\n201 25 0:39 / /proc/fs/nfsd rw shared:85 - nfsd nfsd rw\n"
    )
    root = machine(tmp_path, {"proc/self/mountinfo": mounts})
    assert settings.nfs_devices(root) == ["/sys/class/bdi/0:41/read_ahead_kb"]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ({"run/systemd/container": "podman\n"}, "podman"),
        ({"proc/1/environ": "PATH=/bin\0container=lxc\0HOME=/"}, "lxc"),
        ({"proc/1/environ": "PATH=/bin\0mycontainer=1"}, ""),
        ({".dockerenv": ""}, "by its files"),
        ({"run/.containerenv": ""}, "by its files"),
        ({}, ""),
    ],
)
def test_a_container_is_known(tmp_path: Path, texts: dict[str, str], kind: str) -> None:
    assert settings.container(machine(tmp_path, texts)) == kind


def test_adapters_with_other_names_are_told_and_not_renamed(tmp_path: Path) -> None:
    for domain, name in (("0101", "mlx5_0"), ("0102", "mlx5_ib1"), ("4b51", "mlx5_an0")):
        place = tmp_path / f"devices/{domain}:00:00.0/infiniband/{name}"
        place.mkdir(parents=True)
        (place / "device").symlink_to(tmp_path / f"devices/{domain}:00:00.0")
        link = tmp_path / "sys/class/infiniband" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(place)
    (finding,) = settings.misnamed({"0101": "mlx5_ib0", "0102": "mlx5_ib1"}, str(tmp_path))
    assert finding.about == "mlx5_0"
    assert "mlx5_ib0 from the next boot" in finding.text


def test_a_refused_value_does_not_make_us_forget_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier run noted is noted until it is given back; what was set before the refusal is noted, too."""

    def entry(before: str, now: str) -> dict[str, t.Any]:
        return {"before": before, "set": now, "paths": []}

    def write(writes: t.Sequence[settings.Write]) -> None:
        if writes[0].name == "refused":
            raise settings.TuningError("refused")

    writes = [settings.Write(name, "", "", "") for name in ("changed", "back", "refused", "later")]
    new = {"changed": entry("0", "2"), "refused": entry("0", "bad")}
    earlier: dict[str, t.Any] = {
        "values": {"changed": entry("0", "1"), "back": entry("0", "1"), "later": entry("0", "1")},
        "enabled": ["fm"],
    }
    work = module.Work(
        [], settings.TuningPlan(writes, new, []), module.Steps([], [], [], ["fm"], [], []), {"values": new}, []
    )
    monkeypatch.setattr(module, "survey", lambda params, record: work)
    monkeypatch.setattr(module.owned, "load", lambda path: earlier)
    saved: list[dict[str, t.Any]] = []
    monkeypatch.setattr(module.owned, "save", lambda path, record: saved.append(copy.deepcopy(record)))
    monkeypatch.setattr(module.tuned, "write", write)
    with pytest.raises(settings.TuningError):
        module.perform(Applying(), {"record": str(tmp_path / "record.json")})
    assert saved[-1]["values"] == {
        "changed": entry("0", "2"),
        "later": entry("0", "1"),
        "refused": entry("0", "bad"),
    }
    assert saved[-1]["enabled"] == ["fm"]
    assert saved[0]["values"]["back"] == entry("0", "1"), "noted before anything is done"


class Applying:
    check_mode = False

    def set_fs_attributes_if_different(self, file_args: dict[str, t.Any], changed: bool) -> bool:
        return changed


PARAMS: dict[str, t.Any] = {
    "state": "present",
    "limits": {"memlock": "unlimited", "stack": None, "nofile": ""},
    "sysctl": {"vm.zone_reclaim_mode": 1, "vm.swappiness": None, "vm.dirty_ratio": ""},
    "transparent_hugepages": "always",
    "nfs_readahead_kb": 0,
    "sunrpc_slots": 128,
    "kernel_modules": ["nvidia-peermem"],
    "services": ["nvidia-fabricmanager"],
    "rdma_names": {"0101": "mlx5_ib0"},
    "keep_ipc": True,
}


def test_null_and_nothing_take_a_setting_away_and_absent_all() -> None:
    wanted = module.settings(PARAMS)
    assert (wanted.limits, wanted.sysctl) == ({"memlock": "unlimited"}, {"vm.zone_reclaim_mode": "1"})
    assert module.settings({**PARAMS, "state": "absent"}) == TuningSettings()
    with pytest.raises(settings.SettingError, match="sunrpc_slots is -1"):
        module.settings({**PARAMS, "sunrpc_slots": -1})


def test_a_container_gets_nothing_that_would_set_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd in a privileged container reads sysctl.d and tmpfiles.d at its boot and writes to the host's kernel."""
    planned: dict[str, str | None] = {}
    monkeypatch.setattr(module.tuned, "container", lambda: "podman")
    monkeypatch.setattr(module.tuned, "unit_exists", lambda name: False)
    monkeypatch.setattr(module.tuned, "ipc_of_others", lambda: None)
    monkeypatch.setattr(module.owned, "plan", lambda wanted: (planned.update(wanted), ([], []))[1])
    work = module.survey(PARAMS, {"enabled": ["x"], "values": {"y": {}}})
    own = {settings.LIMITS, settings.SLURMD, settings.LOGIND}
    assert {path for path, text in planned.items() if text} == own
    assert set(settings.KERNEL) == set(settings.files(ALL)) - own
    assert (work.values.writes, work.units.lines()) == ([], [])
    assert work.record == {"enabled": ["x"], "values": {"y": {}}}, "what is noted belongs to another boot of this disk"
    assert "nvidia-fabricmanager" in work.findings[-1].text


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({}, None),
        ({"etc/systemd/logind.conf": "[Login]\n#RemoveIPC=yes\n"}, None),
        ({settings.LOGIND[1:]: "[Login]\nRemoveIPC=no\n"}, None),
        ({"etc/systemd/logind.conf": "[Login]\nRemoveIPC=yes\n"}, ("/etc/systemd/logind.conf", False)),
        ({"etc/systemd/logind.conf": "[Login]\n RemoveIPC = 0\n"}, ("/etc/systemd/logind.conf", True)),
        (
            {
                "usr/lib/systemd/logind.conf": "RemoveIPC=no\n",
                "usr/lib/systemd/logind.conf.d/a.conf": "RemoveIPC=Yes\n",
            },
            ("/usr/lib/systemd/logind.conf.d/a.conf", False),
        ),
        (
            {"etc/systemd/logind.conf.d/a.conf": "", "usr/lib/systemd/logind.conf.d/a.conf": "RemoveIPC=yes\n"},
            None,
        ),
        (
            {"etc/systemd/logind.conf.d/a.conf": "RemoveIPC=yes", "run/systemd/logind.conf.d/b.conf": "RemoveIPC=no"},
            ("/run/systemd/logind.conf.d/b.conf", True),
        ),
        ({"etc/systemd/logind.conf": "", "usr/lib/systemd/logind.conf": "RemoveIPC=yes\n"}, None),
    ],
)
def test_what_others_say_about_shared_memory_is_known(
    tmp_path: Path, texts: dict[str, str], said: tuple[str, bool] | None
) -> None:
    assert settings.ipc_of_others(machine(tmp_path, texts)) == said


@pytest.mark.parametrize("kept", [True, False])
def test_what_others_say_about_shared_memory_stays(monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    planned: dict[str, str | None] = {}
    monkeypatch.setattr(module.tuned, "container", lambda: "podman")
    monkeypatch.setattr(module.tuned, "ipc_of_others", lambda: ("/etc/systemd/logind.conf", kept))
    monkeypatch.setattr(module.owned, "plan", lambda wanted: (planned.update(wanted), ([], []))[1])
    work = module.survey({**PARAMS, "rdma_names": {}}, {})
    assert planned[settings.LOGIND] is None
    assert [one.level for one in work.findings if one.about == "RemoveIPC"] == ([] if kept else ["warn"])


class Systemd:
    """Answers as systemctl does, and notes what it was told."""

    def __init__(self, units_: dict[str, str], starts: int = 1) -> None:
        self.units, self.starts = dict(units_), starts
        self.told: list[str] = []
        self.active: set[str] = set()

    def __call__(self, argv: t.Sequence[str]) -> Outcome:
        word, name = argv[1], argv[-1]
        if word == "show":
            state = self.units.get(name, "")
            load = "loaded" if state in ("enabled", "disabled") else state or "not-found"
            active = "active" if name in self.active else "inactive"
            return Outcome(0, f"LoadState={load}\nActiveState={active}\nUnitFileState={state}\n", "", 0)
        if word == "is-active":
            return Outcome(0 if name in self.active else 3, "", "", 0)
        self.told.append(" ".join(argv))
        if word == "start":
            self.starts -= 1
            self.active.update({name} if self.starts <= 0 else set())
        return Outcome(0, "Address already in use", "", 0)


def bring(
    systemd: Systemd, services: list[str], earlier: list[str], retries: int = 2
) -> tuple[module.Steps, list[str]]:
    steps = module.plan(services, [], earlier, runner=systemd, is_loaded=lambda name: True)
    failed = module.apply(steps, module.Patience(retries, 1), runner=systemd, sleep=lambda seconds: None)
    return steps, [one.text for one in [*steps.findings, *failed]]


def test_a_service_is_enabled_and_started_once() -> None:
    systemd = Systemd({"fm": "disabled"})
    steps, problems = bring(systemd, ["fm"], [])
    assert (steps.lines(), steps.enabled, problems) == (["fm: enabled", "fm: active"], ["fm"], [])
    systemd.units["fm"] = "enabled"
    again, dummy = bring(systemd, ["fm"], steps.enabled)
    assert (again.lines(), again.enabled) == ([], ["fm"])
    back, dummy = bring(systemd, [], again.enabled)
    assert (back.lines(), back.enabled) == (["fm: disabled"], [])


def test_a_service_that_cannot_be_for_one_run_is_given_back_all_the_same() -> None:
    assert module.plan(["fm"], [], ["fm"], runner=Systemd({"fm": "masked"})).enabled == ["fm"]


def test_an_enabled_service_is_not_ours_to_disable() -> None:
    steps, dummy = bring(Systemd({"fm": "enabled"}), ["fm"], [])
    assert (steps.lines(), steps.enabled) == (["fm: active"], [])


@pytest.mark.parametrize(("starts", "fine"), [(1, True), (3, True), (4, False)])
def test_a_service_is_asked_again(starts: int, fine: bool) -> None:
    systemd = Systemd({"fm": "enabled"}, starts)
    problems = bring(systemd, ["fm"], [])[1]
    assert bool(problems) != fine
    assert systemd.told.count("systemctl start fm") == min(starts, 3)
    assert all("not active after 3 starts" in text and "Address already in use" in text for text in problems)


@pytest.mark.parametrize(("state", "says"), [("", "not-found: install it"), ("masked", "systemctl unmask fm")])
def test_a_service_that_cannot_be_is_named_with_what_to_do(state: str, says: str) -> None:
    steps, problems = bring(Systemd({"fm": state} if state else {}), ["fm"], [])
    assert steps.lines() == []
    assert says in problems[0]


def test_a_module_that_does_not_load_is_named() -> None:
    steps = module.plan([], ["nvidia-peermem"], [], is_loaded=lambda name: False)
    missing = Outcome(1, "", "modprobe: FATAL: Module nvidia-peermem not found", 0)
    (finding,) = module.apply(steps, module.Patience(), runner=lambda argv: missing)
    assert (finding.level, finding.about) == ("error", "nvidia-peermem")
    assert "FATAL" in finding.text
    assert "only claims to be" in finding.text
