# shellcheck shell=sh
# The gate: slurmd starts only where /run/hpcai/node-ready is. This closes it, unless the node is in service already.
hpcai_close_gate() {
  [ -e /run/hpcai/node-ready ] && return 0
  mkdir -p /run/hpcai /etc/systemd/system/slurmd.service.d
  # The last of the drop-ins, so that none of a vendor's or an image's is read after it.
  gate=/etc/systemd/system/slurmd.service.d/zz-hpcai-node.conf
  cat >"$gate.new" <<'GATE'
# Made by hpcai.gpu_cluster: this node takes jobs when it has configured itself (/var/lib/hpcai/node/result.json, /var/log/hpcai-node.log).
[Unit]
After=hpcai-node.service
StartLimitIntervalSec=0
# A condition, and no program that fails: whoever starts slurmd meanwhile, such as CycleCloud at every boot, is not told of an error, and what
# opens the gate starts slurmd.
ConditionPathExists=/run/hpcai/node-ready
GATE
  if cmp -s "$gate.new" "$gate"; then
    rm -f "$gate.new"
  else
    rm -f /etc/systemd/system/slurmd.service.d/hpcai-node.conf # what earlier releases wrote
    mv "$gate.new" "$gate"
    systemctl daemon-reload
  fi
  # One that an image starts by itself has taken no job yet, or keeps those it has.
  if systemctl is-active --quiet slurmd && ! pgrep -f '^slurmstepd: \[' >/dev/null; then
    touch /run/hpcai/slurmd-held
    systemctl stop slurmd
  fi
}
