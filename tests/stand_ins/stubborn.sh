#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Hangs, is ended by no signal but SIGKILL, and leaves a process behind.
sleep 600 &
trap '' TERM
sleep 600
sleep 600
