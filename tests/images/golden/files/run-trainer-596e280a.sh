#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DOCKER_ARGV=() RUN=(docker)
. "${GANGWAY_JOB_ENV:-/etc/gangway/job.env}"

mkdir -p "$STATE_DIR"
rm -f "$STATE_DIR/ran"
if leaving; then
    log "this node is about to end: not starting the trainer"
    exit 0
fi
if [ -e "$STATE_DIR/ended" ]; then
    log "the job has ended ($(cat "$STATE_DIR/ended")): remove $STATE_DIR to start it again"
    exit 0
fi
if [ -e "$STATE_DIR/unfit" ] && [ -z "$TRIES_AGAIN" ]; then
    log "this node gave up: not starting the trainer"
    exit 4
fi
"$(dirname "$0")/close-metadata.sh" || exit 1
if [ -e "$STATE_DIR/failed" ]; then
    for check in $HEALTH_CHECKS; do
        if ! "$(dirname "$0")/$check"; then
            rest
            exit 4
        fi
    done
fi
rm -f "$STATE_DIR/failed" "$STATE_DIR/unfit"
for folder in "$RUN_DIR" ${DATA_DIR:+"$DATA_DIR"}; do
    prepare_folder "$folder" || exit 1
done
total_kib=$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' "${GANGWAY_MEMINFO:-/proc/meminfo}")
kept_kib=$((total_kib / 20 < 8388608 ? total_kib / 20 : 8388608))
DOCKER_ARGV=("${DOCKER_ARGV[0]}" --memory "$((total_kib - kept_kib))k" "${DOCKER_ARGV[@]:1}")
capacity=$(own_capacity) || capacity=
if [ -n "$capacity" ]; then
    DOCKER_ARGV=("${DOCKER_ARGV[0]}" --env "GANGWAY_CAPACITY=$capacity" "${DOCKER_ARGV[@]:1}")
fi
[ -e "$STATE_DIR/first-start" ] || up_sec >"$STATE_DIR/first-start"
rm -f "$STATE_DIR"/{end-put,told,kept}
touch "$STATE_DIR/ran"
exec "${RUN[@]}" "${DOCKER_ARGV[@]}"
