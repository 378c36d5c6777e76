# shellcheck shell=sh
# The gate: slurmd starts only where /run/hpcai/node-ready is. This closes it, unless the node is in service already.
hpcai_close_gate() {
  [ -e /run/hpcai/node-ready ] && return 0
  mkdir -p /run/hpcai /etc/systemd/system/slurmd.service.d
  gate=/etc/systemd/system/slurmd.service.d/hpcai-node.conf
  cat >"$gate.new" <<'GATE'
# Made by hpcai.gpu_cluster: this node takes jobs when it has configured itself (/var/lib/hpcai/node/result.json).
[Unit]
After=hpcai-node.service
StartLimitIntervalSec=0

[Service]
ExecStartPre=/bin/sh -c 'test -e /run/hpcai/node-ready || { echo "this node is not configured yet: see /var/log/hpcai-node.log" >&2; exit 1; }'
Restart=on-failure
RestartSec=5
GATE
  if cmp -s "$gate.new" "$gate"; then
    rm -f "$gate.new"
  else
    mv "$gate.new" "$gate"
    systemctl daemon-reload
  fi
  # One that an image starts by itself has taken no job yet, or keeps those it has.
  if systemctl is-active --quiet slurmd && ! pgrep -f '^slurmstepd: \[' >/dev/null; then
    touch /run/hpcai/slurmd-held
    systemctl stop slurmd
  fi
}
