#!/bin/sh
# Waits until every node has booted and prints one line for each: its name and its SSH host key.
# Arguments: seconds that a node may take, names of the containers.
set -eu
limit=$1
shift

# Runs in a node. Before the node's bus is up, systemctl fails at once and has to be asked again.
# shellcheck disable=SC2016
inside='
  end=$(($(date +%s) + $1))
  while state=$(timeout "$1" systemctl is-system-running --wait 2>&1); [ "$state" != running ] && [ "$state" != degraded ]; do
    [ "$(date +%s)" -lt "$end" ] || { echo "not booted after $1 s: $state"; exit 1; }
    sleep 0.2
  done
  cat /etc/ssh/ssh_host_ed25519_key.pub'

# A few at a time: every podman takes tens of megabytes.
# shellcheck disable=SC2016
printf '%s\n' "$@" | xargs -P 8 -I NODE sh -c '
  if answer=$(podman exec "$1" sh -c "$2" sh "$3" 2>&1); then
    echo "$1 $answer"
  else
    echo "$1: $answer" >&2
    exit 1
  fi' sh NODE "$inside" "$limit"
