#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Says in seconds whether the scenario's sources can be had. Without them it ends with 1, and says what to provide.
HPCAI_ENROOT_GIT="${HPCAI_ENROOT_GIT:-https://github.com/NVIDIA/enroot.git}"
HPCAI_PYXIS_GIT="${HPCAI_PYXIS_GIT:-https://github.com/NVIDIA/pyxis.git}"
missing=""
look() {
    said=$(GIT_TERMINAL_PROMPT=0 timeout 20 git ls-remote --quiet "$2" HEAD 2>&1) || missing="$missing
  $1=$2
      $(echo "$said" | tail -n 1)"
}
look HPCAI_ENROOT_GIT "$HPCAI_ENROOT_GIT"
look HPCAI_PYXIS_GIT "$HPCAI_PYXIS_GIT"
[ -z "$missing" ] && exit 0
cat >&2 <<END
================================================================================
SKIPPED: the scenario "containers". Its sources cannot be reached:$missing
Nothing was tested about enroot, pyxis and image staging in jobs. To test it, let
this machine reach GitHub, or set these variables to clones (a path will do):
  HPCAI_ENROOT_GIT=/path/to/enroot HPCAI_PYXIS_GIT=/path/to/pyxis make molecule
================================================================================
END
exit 1
