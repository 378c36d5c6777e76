#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Says in seconds whether the scenario's sources can be had, from where lab/containers.yml looks for them.
# Without them it ends with 1, and says what to provide.
clones="${XDG_CACHE_HOME:-$HOME/.cache}/hpcai.gpu_cluster/sources"
missing=""
look() {
    place=$2
    [ -n "$place" ] || { [ -e "$clones/$1" ] && place=$clones/$1; } || place=https://github.com/NVIDIA/$1.git
    said=$(GIT_TERMINAL_PROMPT=0 timeout 20 git ls-remote --quiet "$place" HEAD 2>&1) || missing="$missing
  $1 from $place
      $(echo "$said" | tail -n 1)"
}
look enroot "${HPCAI_ENROOT_GIT:-}"
look pyxis "${HPCAI_PYXIS_GIT:-}"
[ -z "$missing" ] && exit 0
cat >&2 <<END
the sources of enroot and pyxis cannot be reached, so nothing was tested about them and about image staging in jobs
================================================================================
The scenario "containers" needs:$missing
To test it, let this machine reach GitHub, or put clones into
  $clones/enroot and $clones/pyxis
where every later run finds them, or set HPCAI_ENROOT_GIT and HPCAI_PYXIS_GIT to
clones elsewhere (a path will do).
================================================================================
END
exit 1
