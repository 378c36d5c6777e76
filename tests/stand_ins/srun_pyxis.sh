#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# An srun that loads nothing, and has pyxis' options where the plugin of its configuration is a file with something in it.
plugin=$(sed -n 's/^required //p' "$(sed -n 's/PlugStackConfig=//p' "$SLURM_CONF")")
test -s "$plugin" && echo "  --container-image=..."
