#!/usr/bin/env bash
# On a notice of this machine's end: drains the node, requeues its jobs, which have KillWait (slurm.conf) to save, and
# completes the group's hook.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
HELD=${GANGWAY_HELD:-/run/gangway-notices/held}
FILE=${GANGWAY_SLURM_NAME:-/run/gangway-slurm-name}
SAVE_SEC=${GANGWAY_SAVE_SEC:-100}

jobs_here() { squeue --noheader "--nodelist=$name" --format=%A | sort -u; }
is_empty() { [ -z "$(jobs_here)" ]; }

until grep -qsE '^(spot-interruption|lifecycle-terminate)( |$)' "$HELD"; do
    sleep "$POLL_SEC"
done
if [ -s "$FILE" ]; then
    name=$(cat "$FILE")
    scontrol update "nodename=$name" state=drain "reason=gangway: its machine is taken back" || log "cannot drain $name"
    for job in $(jobs_here); do
        log "requeueing $job"
        # Cancel a job that may not be requeued.
        scontrol requeue "$job" || scancel "$job" || log "cannot requeue or cancel $job"
    done
    retry "$SAVE_SEC" is_empty || log "jobs still run after $SAVE_SEC s"
fi
if group_waits; then
    let_go
fi
