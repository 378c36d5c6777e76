#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# NVIDIA's hpl.sh, as far as its input file goes: xhpl runs where that is.
cd "$(dirname "$2")" && exec xhpl
