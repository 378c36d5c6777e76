#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Starts the command of a step here and once, with `variables` set. The command is behind the options, or begins with the word `first`. Options
# have to have `asks` among them; those with `gone` among them fail, as Slurm does without the node. All words are added to the file `calls`.
[ -z "${calls-}" ] || echo "$@" >>"$calls"
case " $* " in *" ${asks:-$1} "*) ;; *) echo "srun: error: not called with $asks" >&2; exit 2 ;; esac
case "$*" in *"${gone-no such words}"*) echo "srun: error: Unable to create step for job 7" >&2; exit 1 ;; esac
while [ $# -gt 0 ]; do
  if [ -n "${first-}" ]; then [ "$1" != "$first" ] || break; else [ "${1#--}" != "$1" ] || break; fi
  shift
done
# shellcheck disable=SC2086 # one word for each variable
exec env ${variables-} "$@"
