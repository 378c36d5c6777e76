#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# An NHC whose checks include `agent`, and another one that fails.
sleep 0.1
"${agent:?}"
echo "ERROR:  nhc:  Health check failed:  x"
exit 1
