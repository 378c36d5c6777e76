# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package managers as the driver needs them: what they offer, what they would do, and packages in exact versions."""

from __future__ import annotations

import contextlib
import re
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._packages import UPDATE, lists_are_young
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.model import DriverError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.packages import (
    ENVIRONMENT,
    HALF,
    KEEP,
    REPAIR,
    apt_errors,
    no_daemons,
    offered,
    simulated,
    unfinished,
)

Runner = t.Callable[..., Outcome]
_INSTALLED = ["dpkg-query", "--show", "--showformat", "${Package}|${Version}|${db:Status-Abbrev}\\n"]


class PackageTool(t.Protocol):
    """What apt and dnf do for the driver."""

    mark: str
    locks: bool  # whether its locks are for the driver's module to set

    def pinned(self, version: str) -> contextlib.AbstractContextManager[None]: ...
    def refresh(self, max_age: int) -> None: ...
    def offers(self, names: t.Sequence[str]) -> dict[str, list[str]]: ...
    def installed(self, names: t.Sequence[str]) -> dict[str, str]: ...
    def effect(self, words: t.Sequence[str]) -> tuple[list[dict[str, str]], list[str]]: ...
    def download(self, words: t.Sequence[str]) -> None: ...
    def install(self, words: t.Sequence[str]) -> None: ...
    def lock(self, names: t.Sequence[str], locked: t.Sequence[str]) -> None: ...


class AptTool:
    """apt of Debian and Ubuntu; ``preferences`` is a file of pins that replaces /etc/apt/preferences for its calls."""

    mark = "="
    locks = False  # the module package_hold knows whose holds are whose

    def __init__(self, root: str = "/", timeout: float = 3600, runner: Runner = run) -> None:
        self._root, self._timeout, self._run = Path(root), timeout, runner
        self.preferences = ""

    @contextlib.contextmanager
    def pinned(self, version: str) -> t.Iterator[None]:
        """Have apt consider one version of the driver alone: it resolves dependencies to the newest one otherwise.

        The site's own /etc/apt/preferences counts as well, after ours.
        """
        site = self._root / "etc/apt/preferences"
        theirs = site.read_text(encoding="utf-8", errors="replace") if site.is_file() else ""
        with tempfile.NamedTemporaryFile("w", prefix="hpcai-pin-", encoding="utf-8") as file:
            file.write(f"{pin(version)}\n{theirs}")
            file.flush()
            Path(file.name).chmod(0o644)  # apt reads it as root and as _apt
            self.preferences = file.name
            try:
                yield
            finally:
                self.preferences = ""

    def refresh(self, max_age: int) -> None:
        """Fetch package lists unless they are young enough."""
        if max_age >= 0 and not lists_are_young(max_age, self._root):
            self._do(UPDATE)

    def offers(self, names: t.Sequence[str]) -> dict[str, list[str]]:
        return offered(self._do(["apt-cache", "madison", *names])) if names else {}

    def installed(self, names: t.Sequence[str]) -> dict[str, str]:
        rows = [line.split("|") for line in self._run(_INSTALLED, self._timeout).out.splitlines()]
        return {row[0]: row[1] for row in rows if len(row) == 3 and row[0] in names and row[2][1:2] == "i"}

    def effect(self, words: t.Sequence[str]) -> tuple[list[dict[str, str]], list[str]]:
        return simulated(self._do([*self._apt(), "--simulate", "install", *words]))

    def download(self, words: t.Sequence[str]) -> None:
        self._do([*self._apt(), "--download-only", "install", *words])

    def install(self, words: t.Sequence[str]) -> None:
        """Install; no daemon is started or stopped meanwhile, and configuration files that were changed stay."""
        if unfinished(self._run(HALF, self._timeout).out):
            self._do(REPAIR)
        policy = self._root / "usr/sbin/policy-rc.d"
        with no_daemons(policy):
            self._do([*self._apt(), *KEEP, "install", *words])

    def lock(self, names: t.Sequence[str], locked: t.Sequence[str]) -> None:
        """Do nothing."""

    def _apt(self) -> list[str]:
        return [
            *["apt-get", "--yes", "--quiet", "--no-install-recommends", "--allow-downgrades"],
            *["--allow-change-held-packages", "-o", "DPkg::Lock::Timeout=300"],
            *(["-o", f"Dir::Etc::preferences={self.preferences}"] if self.preferences else []),
        ]

    def _do(self, argv: t.Sequence[str]) -> str:
        outcome = self._run(argv, self._timeout, environment=ENVIRONMENT)
        if outcome.problem:
            raise DriverError(f"{' '.join(argv)} failed: {apt_errors(outcome)}")
        return outcome.out


# By source package, as NVIDIA's guides pin the driver; the names are for packages whose source is called otherwise.
_PINNED = "src:*nvidia*:any src:cuda-drivers:any *nvidia* cuda-drivers* libcuda1 libnvcuvid1 libnvoptix1 libxnvctrl*"


def pin(version: str) -> str:
    """Write the entry of apt_preferences(5) that makes one version the candidate, also where that is a downgrade."""
    return f"Package: {_PINNED}\nPin: version {version}-*\nPin-Priority: 1001\n"


# Packages of a stream that is not enabled yet would be hidden; only an installation enables it.
_ALL_STREAMS = "--setopt=*.module_hotfixes=1"
# A locked package has no other version for dnf. Whose locks they are was judged before.
_UNLOCKED = "--disableplugin=versionlock"


class DnfTool:
    """dnf of the RHEL 9 family. Never run against NVIDIA's repository by the tests: what it prints is authored."""

    mark = "-"
    locks = True

    def __init__(self, stream: str = "", timeout: float = 3600, runner: Runner = run) -> None:
        self._stream, self._timeout, self._run = stream, timeout, runner

    @contextlib.contextmanager
    def pinned(self, version: str) -> t.Iterator[None]:
        """Do nothing: NVIDIA's packages name each other in exact versions, and dnf considers all versions."""
        yield

    def refresh(self, max_age: int) -> None:
        if max_age >= 0:
            self._do(["dnf", "-q", "makecache", *(["--refresh"] if max_age == 0 else [])])

    def offers(self, names: t.Sequence[str]) -> dict[str, list[str]]:
        """Return what the repositories have, in all streams of the module nvidia-driver."""
        query = ["dnf", "-q", _UNLOCKED, "repoquery", "--showduplicates", "--disable-modular-filtering"]
        return evrs(self._do([*query, "--qf", "%{name}|%{evr}", *names])) if names else {}

    def installed(self, names: t.Sequence[str]) -> dict[str, str]:
        text = self._run(["rpm", "-q", "--qf", "%{NAME}|%{EVR}\\n", *names], self._timeout).out if names else ""
        return {name: versions[0] for name, versions in evrs(text).items()}

    def effect(self, words: t.Sequence[str]) -> tuple[list[dict[str, str]], list[str]]:
        """Return what dnf's table says; ``--assumeno`` ends with 1."""
        outcome = self._run(["dnf", "--assumeno", _UNLOCKED, _ALL_STREAMS, "install", *words], self._timeout)
        if outcome.rc not in (0, 1) or "Error:" in outcome.err:
            raise DriverError(f"dnf cannot install {' '.join(words)}: {refusal(outcome.err) or outcome.problem}")
        return transaction(outcome.out)

    def download(self, words: t.Sequence[str]) -> None:
        self._do(["dnf", "-y", "-q", _UNLOCKED, _ALL_STREAMS, "install", "--downloadonly", *words])

    def install(self, words: t.Sequence[str]) -> None:
        if self._stream:
            self._do(["dnf", "-y", "-q", "module", "reset", "nvidia-driver"])
            self._do(["dnf", "-y", "-q", "module", "enable", f"nvidia-driver:{self._stream}"])
        self._do(
            ["dnf", "-y", "-q", _UNLOCKED, "--setopt=install_weak_deps=False", "--allowerasing", "install", *words]
        )

    def lock(self, names: t.Sequence[str], locked: t.Sequence[str]) -> None:
        """Lock packages in the versions that are installed, in place of the locks that some of them have."""
        for verb, those in (("delete", locked), ("add", names)):
            if those:
                self._do(["dnf", "-q", "versionlock", verb, *those])

    def _do(self, argv: t.Sequence[str]) -> str:
        outcome = self._run(argv, self._timeout)
        if outcome.problem:
            raise DriverError(f"{' '.join(argv)} failed: {outcome.problem}")
        return outcome.out


def evrs(text: str) -> dict[str, list[str]]:
    """Read rows of ``name|epoch:version-release``, the highest last in dnf's order and first here."""
    versions: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, dummy, version = line.strip().partition("|")
        if version and version not in versions.setdefault(name, []):
            versions[name].insert(0, version.replace("(none):", ""))
    return versions


def refusal(text: str) -> str:
    """Return what dnf's resolver says after ``Error:``, without the options that it would have tried."""
    errors = text.partition("Error:")[2].splitlines()
    return "; ".join(line.strip(" -") for line in errors if line.strip() and not line.lstrip().startswith("(try to"))


def transaction(text: str) -> tuple[list[dict[str, str]], list[str]]:
    """Read the table of ``dnf --assumeno install``: packages that come, and packages that go."""
    moved, removed, part = [], [], ""
    for line in text.splitlines():
        heading = re.match(r"(Installing|Upgrading|Downgrading|Removing|Reinstalling)\b.*:$", line)
        row = re.match(r" (\S+) +(?:x86_64|aarch64|noarch) +(\S+) +\S+ +", line)
        if heading:
            part = heading.group(1)
        elif row and part == "Removing":
            removed.append(row.group(1))
        elif row and part:
            moved.append({"name": row.group(1), "before": "", "after": row.group(2)})
    return moved, removed
