#!/bin/bash
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The Python that comes along with CycleCloud's command line, which installs it.
cp "$1/line" "$1/cyclecloud" && chmod +x "$1/cyclecloud"
