# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of modules on the CycleCloud VM; the same as SPEC and CLI_SPEC of module_utils/cyclecloud/server_cli.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  home:
    description:
      - Directory in which the CycleCloud server is installed.
    type: path
    default: /opt/cycle_server
  state_dir:
    description:
      - Directory that only root can read. It holds what earlier runs set, secrets only as salted fingerprints, and the
        certificate that verifies the server (C(ca.pem)).
    type: path
    default: /var/lib/hpcai/cyclecloud
"""

    CLI = r"""
options:
  program:
    description:
      - Path of the CycleCloud command line.
    type: path
    default: /usr/local/bin/cyclecloud
  config:
    description:
      - Settings file of the command line, with address, user and password of its login.
    type: path
    default: /root/.cycle/config.ini
"""
