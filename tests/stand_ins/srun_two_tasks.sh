#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Two tasks side by side, as srun starts them on two nodes; options are for Slurm alone. While the file `trap` is there the second one is lost.
for option; do case $option in --ntasks=*) tasks=${option#*=} ;; -*) ;; *) break ;; esac; shift; done
index=0
while [ "$index" -lt "${tasks:?}" ]; do
  [ "$index" = 1 ] && [ -e "${trap:?}" ] && break
  SLURM_PROCID=$index SLURM_NTASKS=$tasks "$@" &
  index=$((index + 1))
done
wait
[ ! -e "$trap" ]
