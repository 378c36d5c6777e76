#!/bin/bash
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# An ansible-playbook whose lab is a file in FAKE, a directory; starting it takes longer than anybody waits.
echo "$(basename "${@: -1}") $$" >>"$FAKE/log"
case "$*" in
  *lab/up.yml*) touch "$FAKE/lab"; sleep 3600 ;;
  *lab/down.yml*) [ ! -e "$FAKE/fails" ] || exit 3; rm -f "$FAKE/lab" ;;
esac
