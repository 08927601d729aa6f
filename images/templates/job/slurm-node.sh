#!/bin/bash
# One node's part of a job in Slurm: slurm-node.sh FOLDER, by srun. FOLDER/node.env has its variables and its WORDS; how it
# ends is left in FOLDER/codes, for of several nodes srun tells one code alone.
set -u
folder=$1
child=
trap '[ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM
MEET_HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# A name that the others may not resolve: its address, as the controller has it.
MEET_HOST=$(scontrol show node --oneliner "$MEET_HOST" | grep -o 'NodeAddr=[^ ]*' | cut -d= -f2)
# shellcheck disable=SC2034 # of node.env
MEET_PORT=$((20000 + (SLURM_JOB_ID * 7 + SLURM_STEP_ID) % 10000))
# shellcheck source=/dev/null
. "$folder/node.env"
cd "$WORKDIR" || exit 2
"${WORDS[@]}" &
child=$!
while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
done
echo "$code" >"$folder/codes/.$SLURMD_NODENAME"
mv "$folder/codes/.$SLURMD_NODENAME" "$folder/codes/$SLURMD_NODENAME"
exit "$code"
