# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for ssh from the server to a head: answers `scontrol ping` and `azslurm scale` as a ready node would.

Like ssh it accepts the host key in its known_hosts alone, and with accept-new the first one it meets.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .control import administer
from .store import UserError

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEmuLatedHostKey"
ANSWERS = {"scontrol ping": "Slurmctld(primary) at {} is UP", "azslurm scale": ""}


def main() -> int:
    place = next((one.rpartition("@")[2] for one in sys.argv[1:] if "@" in one and not one.startswith("-")), "")
    text = " ".join(sys.argv[1:])
    options = dict(one.split("=", 1) for one in sys.argv[1:] if "=" in one)
    known = Path(options.get("UserKnownHostsFile", "/dev/null"))
    command = next((one for one in ANSWERS if one in text), "")
    try:
        head = administer(command="ssh", address=place, what=command or text)
    except UserError as exc:
        sys.stderr.write(f"ssh: connect to host {place} port 22: {exc}\n")
        return 255
    keys = [" ".join(line.split()[:2]) for line in head["keys"] or [HOST_KEY]]
    accepted = known.read_text().splitlines() if known.exists() else []
    if options.get("StrictHostKeyChecking") == "accept-new" and not accepted:
        accepted = [f"{options['HostKeyAlias']} {key}" for key in keys]
        known.write_text("".join(f"{line}\n" for line in accepted))
    if not {f"{options['HostKeyAlias']} {key}" for key in keys} & set(accepted):
        sys.stderr.write("Host key verification failed.\r\n")
        return 255
    if not command:
        sys.stderr.write("only scontrol ping and azslurm scale are emulated\n")
        return 127
    if ANSWERS[command]:
        print(ANSWERS[command].format(head["name"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
