#!/bin/bash
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The installer of CycleCloud's command line as since 8.9.0: bash's, with the Python that comes along, for the directory `home`.
set -euo pipefail
options=("$@")
[[ ${options[0]} == --system && -x ./python/bin/python3 ]] || exit 3
exec ./python/bin/python3 "${home:?}"
