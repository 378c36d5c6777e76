#!/usr/bin/env bash
# The floor: the least a person could type to get the same three-node Slurm by SSH. Nothing is checked, compared
# or kept safe; it exists to be measured against. Usage: floor.sh KEY CONTROLLER_ADDRESS NAME=ADDRESS...
set -euo pipefail
key=$1 ctl=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ssh_to() { ssh -i "$key" -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
  -o ControlMaster=auto -o ControlPath="$work/%h" -o ControlPersist=30 "root@$1" "${@:2}"; }

dd if=/dev/urandom of="$work/munge.key" bs=1024 count=1 status=none
nodes='' lines=''
for pair in "$@"; do
  nodes+="${pair%%=*} "
  spec=$(ssh_to "${pair#*=}" slurmd -C | head -n1 | sed -E 's/UpTime.*//; s/RealMemory=[0-9]+/RealMemory=1000/')
  lines+="$spec"$'\n'
done
cat > "$work/slurm.conf" <<END
ClusterName=lab
SlurmctldHost=ctl
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
MessageTimeout=30
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStorageEnforce=associations
${lines}PartitionName=batch Nodes=ALL Default=YES State=UP
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
    systemctl restart munge'
}

put "$ctl"
ssh_to "$ctl" "systemctl start mariadb
  mysql -e \"CREATE DATABASE IF NOT EXISTS slurm_acct_db; CREATE OR REPLACE USER slurm@localhost IDENTIFIED BY 'floor';
    GRANT ALL ON slurm_acct_db.* TO slurm@localhost\"
  systemctl restart slurmdbd
  until sacctmgr -n show cluster >/dev/null 2>&1; do sleep 0.2; done
  sacctmgr -iQ add cluster lab; sacctmgr -iQ add account research; sacctmgr -iQ add user trainer account=research
  systemctl restart slurmctld" >/dev/null 2>&1
for pair in "$@"; do
  (put "${pair#*=}"; ssh_to "${pair#*=}" systemctl restart slurmd) &
done
wait
ssh_to "$ctl" "until [ \$(sinfo -h -N -t idle | wc -l) -ge $# ]; do sleep 0.2; done"
