#!/usr/bin/env bash
# Runs the job's container in the foreground; systemd sees its exit code and its signals reach it.
# Ends with 0 at once where there is nothing to run any more: the node is about to go, or the job has ended; with 4 where
# the node's health is gone, and with 1 where something else kept the container from running.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DOCKER_ARGV=() RUN=(docker)
# shellcheck source=/dev/null
. "${GANGWAY_JOB_ENV:-/etc/gangway/job.env}"

mkdir -p "$STATE_DIR"
rm -f "$STATE_DIR/ran"
if leaving; then
    log "this node is about to go: the trainer is not started again"
    exit 0
fi
if [ -e "$STATE_DIR/ended" ]; then
    log "the job has ended ($(cat "$STATE_DIR/ended")): remove $STATE_DIR to start it again"
    exit 0
fi
if [ -e "$STATE_DIR/unfit" ] && [ -z "$TRIES_AGAIN" ]; then
    log "this node was given up: nothing is started on it"
    exit 4
fi
# Before each start: whoever manages a firewall may have emptied it. A TPU's container is root's: it asks for its slice there.
"$(dirname "$0")/close-metadata.sh" || exit 1
# After a failure here the node is looked at again, as at its boot. A check that it does not pass gives it up.
if [ -e "$STATE_DIR/failed" ]; then
    for check in $HEALTH_CHECKS; do
        if ! "$(dirname "$0")/$check"; then
            rest
            exit 4
        fi
    done
fi
rm -f "$STATE_DIR/failed" "$STATE_DIR/unfit"
# The container's user must be able to write both, and root owns what a parallel file system makes. Every node does this,
# at any time: install takes a folder that is already there.
for folder in "$RUN_DIR" ${DATA_DIR:+"$DATA_DIR"}; do
    prepare_folder "$folder" || exit 1
done
# Where the job wants more memory than there is, it ends, and not what looks after the machine.
total_kib=$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' "${GANGWAY_MEMINFO:-/proc/meminfo}")
kept_kib=$((total_kib / 20 < 8388608 ? total_kib / 20 : 8388608))
DOCKER_ARGV=("${DOCKER_ARGV[0]}" --memory "$((total_kib - kept_kib))k" "${DOCKER_ARGV[@]:1}")
# What this node costs: the record prices it by the kind of capacity that it came from.
capacity=$(own_capacity) || capacity=
if [ -n "$capacity" ]; then
    DOCKER_ARGV=("${DOCKER_ARGV[0]}" --env "GANGWAY_CAPACITY=$capacity" "${DOCKER_ARGV[@]:1}")
fi
[ -e "$STATE_DIR/first-start" ] || up_sec >"$STATE_DIR/first-start"
# What a start before this one may have said of its end, should somebody have this node start again.
rm -f "$STATE_DIR"/{end-put,told,kept}
touch "$STATE_DIR/ran"
exec "${RUN[@]}" "${DOCKER_ARGV[@]}"
