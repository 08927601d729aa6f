#!/bin/bash
# One node's part of a job in Slurm: slurm-node.sh FOLDER, by srun. FOLDER/node.env has the job's variables and its words,
# which only the command gets; how it ends is left in FOLDER/codes, for of several nodes srun tells one code alone. Its own
# variables begin with GANGWAY_, which no job may set.
set -u
GANGWAY_FOLDER=$1
GANGWAY_HEARD=
GANGWAY_CHILD=
trap 'GANGWAY_HEARD=yes; [ -z "$GANGWAY_CHILD" ] || kill -TERM "$GANGWAY_CHILD" 2>/dev/null' TERM
# A signal from before this line found nobody; the notice was written first.
[ ! -s "$GANGWAY_FOLDER/notices.jsonl" ] || GANGWAY_HEARD=yes
GANGWAY_FIRST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# A name that the others may not resolve: its address, as the controller has it, which may be away just then.
GANGWAY_HOST=
while [ -z "$GANGWAY_HOST$GANGWAY_HEARD" ]; do
    GANGWAY_HOST=$(scontrol show node --oneliner "$GANGWAY_FIRST" | grep -o 'NodeAddr=[^ ]*' | cut -d= -f2)
    [ -n "$GANGWAY_HOST" ] || sleep 2
done
# shellcheck disable=SC2034 # of node.env
GANGWAY_PORT=$((20000 + (SLURM_JOB_ID * 7 + SLURM_STEP_ID) % 10000))
# What a container needs for the node's devices, where the job has an image.
# shellcheck disable=SC2034 # of node.env
GANGWAY_DEVICES=()
[ ! -e /proc/driver/nvidia/version ] || GANGWAY_DEVICES+=(--nv)
[ ! -e /dev/kfd ] || GANGWAY_DEVICES+=(--rocm)
: >"$GANGWAY_FOLDER/codes/.begun" # until now a failure is srun's own
(
    # The network between several nodes: of Gangway's own clusters each node says what NCCL takes, or fails without. What
    # the submitter's environment or the job itself has is left as it is.
    if [ "${SLURM_NNODES:-1}" -gt 1 ] && [ -r "${GANGWAY_FABRIC:=/etc/gangway/job-fabric}" ]; then
        while IFS='=' read -r GANGWAY_NAME GANGWAY_VALUE; do
            [ -n "${!GANGWAY_NAME+x}" ] ||
                export "$GANGWAY_NAME=$GANGWAY_VALUE" "APPTAINERENV_$GANGWAY_NAME=$GANGWAY_VALUE"
        done <"$GANGWAY_FABRIC"
    fi
    # shellcheck source=/dev/null
    . "$GANGWAY_FOLDER/node.env"
    # Of a job with an image. That whoever submitted has it says nothing of this node; bash's 127 would be tried again.
    if [ "${GANGWAY_WORDS[0]}" = apptainer ] && ! command -v apptainer >/dev/null; then
        echo "gangway: no apptainer on PATH of $SLURMD_NODENAME to run the job's image:" \
            "install Apptainer on all nodes, or remove image"
        exit 2
    fi
    cd "$GANGWAY_WORKDIR" || exit 2
    exec "${GANGWAY_WORDS[@]}"
) &
GANGWAY_CHILD=$!
[ -z "$GANGWAY_HEARD" ] || kill -TERM "$GANGWAY_CHILD" 2>/dev/null
while :; do
    wait "$GANGWAY_CHILD"
    GANGWAY_CODE=$?
    # Of two signals at once bash may say -1, which is nobody's code.
    [ -n "$GANGWAY_HEARD" ] || [ "$GANGWAY_CODE" -lt 0 ] || break
    GANGWAY_HEARD=
done
echo "$GANGWAY_CODE" >"$GANGWAY_FOLDER/codes/.$SLURMD_NODENAME"
mv "$GANGWAY_FOLDER/codes/.$SLURMD_NODENAME" "$GANGWAY_FOLDER/codes/$SLURMD_NODENAME"
exit "$GANGWAY_CODE"
