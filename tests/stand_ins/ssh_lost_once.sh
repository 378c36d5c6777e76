#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# An ssh to this machine whose first connection is lost: before the command runs, or, where `lost` is `answer`, behind it. `directory` keeps calls.
for last; do :; done
printf '%s\n' "$*" >>"${directory:?}/calls"
case " $* " in *" -V "*) exec ssh -V ;; esac
if mkdir "$directory/lost" 2>/dev/null; then
  [ "${lost:?}" = connection ] || sh -c "$last" >/dev/null 2>&1
  echo 'kex_exchange_identification: read: Connection reset by peer' >&2
  exit 255
fi
exec sh -c "$last"
