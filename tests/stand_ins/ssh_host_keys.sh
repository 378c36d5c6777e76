#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Keeps the key of whoever answers, as OpenSSH does with accept-new, and writes what it was asked to run; ANSWERS_WITH is that key.
for word in "$@"; do
  case "$word" in
    UserKnownHostsFile=*) known="${word#*=}" ;;
    StrictHostKeyChecking=*) strict="${word#*=}" ;;
  esac
done
if [ "${strict-}" = accept-new ]; then [ -s "${known:?}" ] || echo "scheduler ssh-ed25519 IMPOSTOR" >"$known"; fi
grep -q "$ANSWERS_WITH" "${known:?}" || { echo "Host key verification failed." >&2; exit 255; }
echo "$*" >>"${0%/*}/log"
echo "Slurmctld(primary) at scheduler is UP"
