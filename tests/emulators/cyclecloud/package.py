# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the emulator as Debian packages and a signed apt repository.

    python3 tests/emulators/cyclecloud/package.py --dir D

D/repository is the repository (main, one suite per --suite), D/repository/key.asc the key that signs it. The key is
made for it and lies in D/gnupg.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tempfile
import typing as t
import zipfile
from email.utils import formatdate
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSIONS = ("8.8.1-3100", "8.9.3-3500", "8.9.4-3600")
SUITES = ("stable",)  # as the real one has it, for every distribution
ROOT = "opt/cycle_server"

CONTROL = """\
Package: {name}
Version: {version}
Architecture: {arch}
Maintainer: hpcai.gpu_cluster authors <none@example.org>
Depends: {depends}
Section: misc
Priority: optional
Description: {text}
"""
UNIT = """\
[Unit]
Description=CycleCloud emulator
After=network.target

[Service]
User=cycle_server
Group=cycle_server
Environment=PYTHONPATH=/opt/cycle_server/emulator PYTHONDONTWRITEBYTECODE=1
ExecStart=/usr/bin/python3 -m cyclecloud_emulator.server --home /opt/cycle_server --version {version}
AmbientCapabilities=CAP_NET_BIND_SERVICE
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""
PROPERTIES = """\
webServerMaxHeapSize=2048M
webServerPort=8080
webServerSslPort=8443
webServerClusterPort=9443
webServerEnableHttp=true
webServerEnableHttps=false
webServerRedirectHttp=true
webServerContextPath=/
webServerJvmOptions=-Djava.net.preferIPv4Stack=true
"""
POSTINST = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
getent group cycle_server >/dev/null || groupadd --system cycle_server
getent passwd cycle_server >/dev/null || useradd --system --gid cycle_server --home-dir /opt/cycle_server \
  --shell /bin/bash cycle_server
cd /opt/cycle_server
mkdir -p config/data data logs .ssh
[ -f .ssh/cyclecloud.pem ] || ! command -v ssh-keygen >/dev/null || \
  ssh-keygen -q -t ed25519 -N '' -f .ssh/cyclecloud.pem
chown -R cycle_server:cycle_server config data logs .ssh
chmod 0700 .ssh data
chmod 0750 config
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl enable --quiet cycle_server
  # As the real package: the server is started by its installation, if there is a Java for it.
  /opt/cycle_server/cycle_server restart >/dev/null 2>&1 || true
fi
"""
PRERM = """\
#!/bin/sh
[ "$1" = remove ] && [ -d /run/systemd/system ] && systemctl disable --now --quiet cycle_server
exit 0
"""
COMMAND = """\
#!/bin/sh
export PYTHONPATH=/opt/cycle_server/emulator PYTHONDONTWRITEBYTECODE=1 CYCLECLOUD_VERSION={version}
exec /usr/bin/python3 -m cyclecloud_emulator.control "$@"
"""
# As the real one since 8.9.0: for bash, with a Python of its own beside it, whose name is a link. Unpacked without
# modes or links, or started by dash, it fails.
INSTALL = """\
#!/bin/bash
# install.sh [-y | --system]: for this user, or for everybody.
set -euo pipefail
here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
python=$here/python/bin/python3
[[ -L $python && -x $python ]] || {{ echo "install.sh: $python: Permission denied" >&2; exit 126; }}
exec "$python" "$here/install.py" "$@"
"""
BUNDLED = """\
#!/bin/bash
# Stands for the Python that the command line brings along.
exec /usr/bin/python3 "$@"
"""
INSTALLER = """\
import os
import shutil
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
place, bin_ = Path.home() / ".cycle/cli", Path.home() / "bin"
for option in sys.argv[1:]:
    if option == "--system":
        place, bin_ = Path("/usr/local/cyclecloud-cli"), Path("/usr/local/bin")
    elif option != "-y":
        sys.exit(f"install.py: unknown option {{option}}")
for folder in (place, bin_):
    folder.mkdir(parents=True, exist_ok=True)
for name in ("cyclecloud_emulator", "python"):
    shutil.rmtree(place / name, ignore_errors=True)
shutil.copytree(here / "packages/cyclecloud_emulator", place / "cyclecloud_emulator")
shutil.copytree(here / "python", place / "python", symlinks=True)
program = bin_ / "cyclecloud"
program.write_text(
    "#!/bin/bash\\n"
    f"export PYTHONPATH={{place}} PYTHONDONTWRITEBYTECODE=1 CYCLECLOUD_CLI_VERSION={version}\\n"
    f'exec {{place}}/python/bin/python3 -m cyclecloud_emulator.cli "$@"\\n'
)
program.chmod(0o755)
print(f"'cyclecloud' command was installed to {{bin_}}")
"""
JAVA = """\
#!/bin/sh
# Enough of a Java for what asks for its version.
[ "$1" = -version ] || exit 1
echo 'openjdk version "1.8.0_432"' >&2
echo 'OpenJDK Runtime Environment (build 1.8.0_432-emulated)' >&2
"""


def run(*argv: str, **more: t.Any) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, **more).stdout


def write(path: Path, text: str | bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)


def sources() -> list[Path]:
    return [path for path in sorted((HERE / "cyclecloud_emulator").iterdir()) if path.is_file()]


def cli(version: str) -> bytes:
    """The zip of the command line, which comes with the server."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        top = "cyclecloud-cli-installer"
        _member(archive, f"{top}/install.sh", INSTALL.format(), 0o100755)
        _member(archive, f"{top}/install.py", INSTALLER.format(version=version), 0o100644)
        _member(archive, f"{top}/python/bin/python3.12", BUNDLED, 0o100755)
        _member(archive, f"{top}/python/bin/python3", "python3.12", 0o120777)
        for path in sources():
            _member(
                archive,
                f"cyclecloud-cli-installer/packages/cyclecloud_emulator/{path.name}",
                path.read_text(),
                0o100644,
            )
    return out.getvalue()


def _member(archive: zipfile.ZipFile, name: str, text: str, mode: int) -> None:
    info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
    info.create_system, info.external_attr = 3, mode << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, text)


def deb(
    pool: Path, name: str, version: str, depends: str, text: str, files: dict[str, tuple[str | bytes, int]]
) -> None:
    arch = run("dpkg", "--print-architecture").strip()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for path, (content, mode) in files.items():
            write(tree / path, content, mode)
        for path in [tree, *tree.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
        control = CONTROL.format(name=name, version=version, arch=arch, depends=depends, text=text)
        write(tree / "DEBIAN/control", control)
        pool.mkdir(parents=True, exist_ok=True)
        target = pool / f"{name}_{version}_{arch}.deb"
        run("dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(tree), str(target))


def server(pool: Path, version: str) -> None:
    files: dict[str, tuple[str | bytes, int]] = {
        f"{ROOT}/emulator/cyclecloud_emulator/{path.name}": (path.read_text(), 0o644) for path in sources()
    }
    files[f"{ROOT}/cycle_server"] = (COMMAND.format(version=version), 0o755)
    files[f"{ROOT}/emulator-ssh"] = (COMMAND.format(version=version).replace(".control", ".ssh"), 0o755)
    files[f"{ROOT}/tools/cyclecloud-cli.zip"] = (cli(version), 0o644)
    files[f"{ROOT}/config/cycle_server.properties"] = (PROPERTIES, 0o644)
    files[f"{ROOT}/system/version.txt"] = (version + "\n", 0o644)
    files["usr/lib/systemd/system/cycle_server.service"] = (UNIT.format(version=version), 0o644)
    files["DEBIAN/postinst"] = (POSTINST, 0o755)
    files["DEBIAN/prerm"] = (PRERM, 0o755)
    files["DEBIAN/conffiles"] = (f"/{ROOT}/config/cycle_server.properties\n", 0o644)
    deb(pool, "cyclecloud8", version, "python3, openssl, passwd", "CycleCloud emulator", files)


def java(pool: Path) -> None:
    files: dict[str, tuple[str | bytes, int]] = {
        "usr/lib/jvm/java-8-openjdk/jre/bin/java": (JAVA, 0o755),
        "DEBIAN/postinst": ("#!/bin/sh\nln -sf /usr/lib/jvm/java-8-openjdk/jre/bin/java /usr/bin/java\n", 0o755),
        "DEBIAN/prerm": ('#!/bin/sh\n[ "$1" = remove ] && rm -f /usr/bin/java\nexit 0\n', 0o755),
    }
    deb(pool, "openjdk-8-jre-headless", "8u432-b06-1", "libc6", "Stand-in for Java 8 in tests", files)


def key(folder: Path) -> dict[str, str]:
    """A key that signs; its folder serves as GNUPGHOME."""
    home = folder / "gnupg"
    environment = {**os.environ, "GNUPGHOME": str(home)}
    if not home.exists():
        home.mkdir(mode=0o700, parents=True)
        argv = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "CycleCloud emulator <none@example.org>"]
        run(*argv, "rsa2048", "sign", "never", env=environment)
    write(folder / "repository/key.asc", run("gpg", "--batch", "--armor", "--export", env=environment))
    return environment


def index(repository: Path, suite: str, environment: dict[str, str]) -> None:
    """Packages, Release and its signatures, as apt wants them."""
    arch = run("dpkg", "--print-architecture").strip()
    place = repository / "dists" / suite
    shutil.rmtree(place, ignore_errors=True)
    stanzas = []
    for path in sorted((repository / "pool").glob("*.deb")):
        data = path.read_bytes()
        fields = run("dpkg-deb", "--field", str(path)).strip()
        digest = hashlib.sha256(data).hexdigest()
        stanzas.append(f"{fields}\nFilename: pool/{path.name}\nSize: {len(data)}\nSHA256: {digest}\n")
    packages = "\n".join(stanzas).encode()
    write(place / f"main/binary-{arch}/Packages", packages)
    write(place / f"main/binary-{arch}/Packages.gz", gzip.compress(packages, mtime=0))
    names = [f"main/binary-{arch}/Packages", f"main/binary-{arch}/Packages.gz"]
    sums = [
        f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}"
        for name in names
        for data in [(place / name).read_bytes()]
    ]
    head = [f"Origin: emulator\nLabel: cyclecloud\nSuite: {suite}\nCodename: {suite}\nDate: {formatdate(usegmt=True)}"]
    write(place / "Release", "\n".join([*head, f"Architectures: {arch}\nComponents: main\nSHA256:", *sums, ""]))
    for name, option in (("InRelease", "--clearsign"), ("Release.gpg", "--detach-sign")):
        with contextlib.suppress(FileNotFoundError):
            (place / name).unlink()
        run("gpg", "--batch", "--armor", option, "--output", str(place / name), str(place / "Release"), env=environment)


def build(folder: Path, versions: t.Sequence[str] = VERSIONS, suites: t.Sequence[str] = SUITES) -> Path:
    folder = folder.resolve()
    repository = folder / "repository"
    shutil.rmtree(repository, ignore_errors=True)
    environment = key(folder)
    for version in versions:
        server(repository / "pool", version)
    java(repository / "pool")
    for suite in suites:
        index(repository, suite, environment)
    for path in [repository, *repository.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    run("gpgconf", "--kill", "gpg-agent", env=environment)
    return repository


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--version", action="append", help=f"of cyclecloud8; default {', '.join(VERSIONS)}")
    parser.add_argument("--suite", action="append", help=f"default {', '.join(SUITES)}")
    options = parser.parse_args()
    print(build(options.dir, options.version or VERSIONS, options.suite or SUITES))


if __name__ == "__main__":
    main()
