#!/usr/bin/env bash
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Starts one process of a training: rank.sh stage|agent|torchrun|deepspeed|srun|mpirun PYTHON [ARGUMENT ...]
# stage only brings data and the environment to the node; agent is the torchrun or DeepSpeed's launcher of a node; the others name what gives
# the ranks their numbers.
#   HPCAI_CPU_MASKS    one hexadecimal CPU mask for every rank of a node
#   HPCAI_HOSTS        names of nodes of the job, one of which is not this node
#   HPCAI_RANK_OUTPUT  directory in which every rank has a file of its own
#   HPCAI_STAGE        what staging.py brings to the node's scratch, until HPCAI_STAGED says that it was; PYTHON is the
#                      interpreter there then
set -euo pipefail
# USR1 asks for a checkpoint. A rank that is still starting, and torchrun itself, would die of it.
trap '' USR1
programs=$(dirname "$0")
if [[ ${HPCAI_STAGE:-} && ! ${HPCAI_STAGED:-} ]]; then
  # It begins this script again, and keeps what it has brought as long as the process lives that this becomes.
  exec "$2" "$programs/staging.py" bash "$0" "$@"
fi
kind=$1
shift
[[ $kind != stage ]] || exit 0
read -ra hosts <<<"${HPCAI_HOSTS:-}"

if [[ $kind == agent ]]; then
  # Else the ranks look for rank 0 by the name that its host has for itself, which need not resolve.
  address=""
  ((${#hosts[@]} == 0)) || address=$("$1" "$programs/network_interface.py" --address "${hosts[@]}") || address=""
  words=()
  for word; do
    if [[ $word != --local-addr=own ]]; then
      words+=("$word")
    elif [[ $address ]]; then
      words+=("--local-addr=$address")
    fi
  done
  set -- "${words[@]}"
  # Else torchrun compares the endpoint with what the node's own name resolves to, which may be 127.0.1.1, or nothing.
  set -- "${@/#--rdzv-conf=is_host=first/--rdzv-conf=is_host=$((${SLURM_NODEID:-0} == 0))}"
  set -- "${@/#--node_rank=own/--node_rank=${SLURM_NODEID:-0}}"
  # DeepSpeed's launcher numbers the GPUs of a node from 0, whichever of them Slurm gave.
  [[ -z ${CUDA_VISIBLE_DEVICES:-} ]] || export HPCAI_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES
  # Slurm signals what it started and nothing below: the ranks are the agent's children.
  "$@" &
  agent=$!
  # shellcheck disable=SC2317  # the trap calls it
  tell_ranks() {
    local ranks=()
    read -ra ranks <"/proc/$agent/task/$agent/children" || :
    ((${#ranks[@]} == 0)) || kill -USR1 "${ranks[@]}" || :
  }
  trap tell_ranks USR1
  trap 'kill -TERM "$agent" || :' TERM
  # A signal ends a wait as well, with the status that an agent has which died of it.
  while kill -0 "$agent" 2>/dev/null; do wait "$agent" || :; done
  status=0
  wait "$agent" || status=$?
  exit "$status"
fi

case $kind in
  srun)
    export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
    ;;
  mpirun)
    export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE
    ;;
  deepspeed)
    [[ -z ${HPCAI_VISIBLE_DEVICES:-} ]] || export CUDA_VISIBLE_DEVICES=$HPCAI_VISIBLE_DEVICES
    ;;
esac

if [[ -n ${HPCAI_CPU_MASKS:-} ]]; then
  read -ra masks <<<"$HPCAI_CPU_MASKS"
  taskset --pid "${masks[LOCAL_RANK]}" $$ >/dev/null ||
    echo "rank $RANK on $(uname -n) is not bound to the CPUs ${masks[LOCAL_RANK]}" >&2
fi

# Where PyTorch keeps what it compiles; the first word is the interpreter.
extensions=$("$1" "$programs/torch_extensions.py") || extensions=""
[[ -z $extensions ]] || export TORCH_EXTENSIONS_DIR=$extensions

# gloo listens where the host's own name points to, which may be the loopback device.
if [[ -z ${GLOO_SOCKET_IFNAME:-} ]] && ((${#hosts[@]} > 0)); then
  interface=$("$1" "$programs/network_interface.py" "${hosts[@]}") || interface=""
  [[ -z $interface ]] || export GLOO_SOCKET_IFNAME=$interface
fi

if [[ -n ${HPCAI_RANK_OUTPUT:-} ]]; then
  # What is signalled is all processes of a step: tee has to stay for what the rank says about it.
  exec > >(trap '' INT TERM; exec tee -a "$HPCAI_RANK_OUTPUT/rank-$RANK.txt") 2>&1
fi
exec "$@"
