#!/usr/bin/env bash
# The floor: the least a person could type to get the same small Slurm cluster by SSH, with accounting, a user and a
# job that proves it. Nothing is checked, compared or kept: a second run makes a new munge key and restarts every
# daemon. It exists to be measured against. Usage: floor.sh KEY CONTROLLER_ADDRESS NAME=ADDRESS...
set -euo pipefail
key=$1 ctl=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ssh_to() { ssh -i "$key" -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
  -o ControlMaster=auto -o ControlPath="$work/%h" -o ControlPersist=30 "root@$1" "${@:2}"; }
install='DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends >/dev/null'

dd if=/dev/urandom of="$work/munge.key" bs=1024 count=1 status=none
for pair in "$@"; do
  ssh_to "${pair#*=}" "$install munge slurmd slurm-client; slurmd -C" > "$work/${pair%%=*}.node" &
done
ssh_to "$ctl" "$install munge slurmctld slurmdbd slurm-client mariadb-server"
wait
cat > "$work/slurm.conf" <<END
ClusterName=floor
SlurmctldHost=ctl
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
ReturnToService=2
MessageTimeout=30
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStorageEnforce=associations,limits,qos
$(cat "$work"/*.node | grep ^NodeName= | awk '{ for (i = 1; i <= NF; i++) if (split($i, part, "=") && part[1] == "RealMemory")
  $i = "RealMemory=" int(part[2] * 0.95); print }')
PartitionName=batch Nodes=ALL Default=YES MaxTime=1:00:00 State=UP
END
printf 'ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=yes\n' > "$work/cgroup.conf"
cat > "$work/slurmdbd.conf" <<'END'
DbdHost=ctl
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageUser=slurm
StoragePass=floor
StorageLoc=slurm_acct_db
END

put() { # ADDRESS: munge key and configuration
  tar -C "$work" -c munge.key slurm.conf cgroup.conf slurmdbd.conf | ssh_to "$1" '
    tar -C /root -x --no-same-owner
    install -o munge -g munge -m 0400 /root/munge.key /etc/munge/munge.key
    install -m 0644 /root/slurm.conf /root/cgroup.conf /etc/slurm/
    install -o slurm -g slurm -m 0600 /root/slurmdbd.conf /etc/slurm/
    install -d -o slurm -g slurm /var/lib/slurm /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm
    systemctl -q enable munge; systemctl restart munge'
}

put "$ctl"
ssh_to "$ctl" "set -e
  systemctl -q enable --now mariadb
  mysql -e \"CREATE DATABASE IF NOT EXISTS slurm_acct_db; CREATE OR REPLACE USER slurm@localhost IDENTIFIED BY 'floor';
    GRANT ALL ON slurm_acct_db.* TO slurm@localhost\"
  systemctl -q enable slurmdbd slurmctld
  systemctl restart slurmdbd
  until sacctmgr -n show cluster >/dev/null 2>&1; do sleep 0.2; done
  for what in 'cluster floor' 'qos long' 'account research' 'user trainer account=research'; do
    sacctmgr -iQ add \$what || true # the second time it is there
  done
  systemctl restart slurmctld" >/dev/null
for pair in "$@"; do
  (put "${pair#*=}"; ssh_to "${pair#*=}" 'systemctl -q enable slurmd; systemctl restart slurmd') &
done
wait
ssh_to "$ctl" "until [ \$(sinfo -h -N -t idle | wc -l) -ge $# ]; do sleep 0.2; done
  cd /; runuser -u trainer -- srun --nodes=$# --ntasks-per-node=1 --time=1 hostname"
