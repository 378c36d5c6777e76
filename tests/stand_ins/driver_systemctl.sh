#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The units of a node below NODE_ROOT: a file each that is enabled or active.
units="$NODE_ROOT/units"; mkdir -p "$units"; verb=$1; shift
for word; do case "$word" in -*) ;; *) unit=${word%.service}; break ;; esac; done
case "$verb" in
show)
  if [ -e "$units/$unit.active" ]; then active=active; else active=inactive; fi
  printf 'Id=%s.service\nLoadState=loaded\nActiveState=%s\nSubState=running\n' "$unit" "$active" ;;
is-enabled) if [ -e "$units/$unit.enabled" ]; then echo enabled; else echo disabled; exit 1; fi ;;
enable) : >"$units/$unit.enabled" ;;
start) : >"$units/$unit.active" ;;
is-active) [ -e "$units/$unit.active" ] && echo active ;;
daemon-reload | list-unit-files) ;;
*) exit 1 ;;
esac
