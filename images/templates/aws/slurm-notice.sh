#!/usr/bin/env bash
# A notice of this machine's end: the node gets no job any more, and those on it are told to save and go back into the
# queue, while there is time (slurm.conf's KillWait). A group that waits for the machine need not wait longer.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
HELD=${GANGWAY_HELD:-/run/gangway-notices/held}
FILE=${GANGWAY_SLURM_NAME:-/run/gangway-slurm-name}
SAVE_SEC=${GANGWAY_SAVE_SEC:-100}

jobs_here() { squeue --noheader "--nodelist=$name" --format=%A | sort -u; }
nobody_here() { [ -z "$(jobs_here)" ]; }

until grep -qsE '^(spot-interruption|lifecycle-terminate)( |$)' "$HELD"; do
    sleep "$POLL_SEC"
done
if [ -s "$FILE" ]; then
    name=$(cat "$FILE")
    scontrol update "nodename=$name" state=drain "reason=gangway: its machine is taken back" || log "cannot drain $name"
    for job in $(jobs_here); do
        log "$job goes back into the queue"
        # One that may not: it is told as well.
        scontrol requeue "$job" || scancel "$job" || log "could not tell $job"
    done
    retry "$SAVE_SEC" nobody_here || log "jobs are still here after $SAVE_SEC s"
fi
if group_waits; then
    let_go
fi
