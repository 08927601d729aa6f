#!/usr/bin/env bash
# Runs the job's container in the foreground; systemd sees its exit code and its signals reach it.
# Exits with 0 if the node is about to end or the job has ended, 4 if the node is unfit, 1 for other failures.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DOCKER_ARGV=() RUN=(docker)
# shellcheck source=/dev/null
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
# Before each start, since a firewall manager may have removed the rules. A TPU's container runs as root and needs metadata.
"$(dirname "$0")/close-metadata.sh" || exit 1
# After a failure, repeat the checks of the boot; a failed one gives up.
if [ -e "$STATE_DIR/failed" ]; then
    for check in $HEALTH_CHECKS; do
        if ! "$(dirname "$0")/$check"; then
            rest
            exit 4
        fi
    done
fi
rm -f "$STATE_DIR/failed" "$STATE_DIR/unfit"
# The container's user must be able to write both; parallel file systems create folders as root.
for folder in "$RUN_DIR" ${DATA_DIR:+"$DATA_DIR"}; do
    prepare_folder "$folder" || exit 1
done
# If memory runs out, the kernel kills the job, not system services.
total_kib=$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' "${GANGWAY_MEMINFO:-/proc/meminfo}")
kept_kib=$((total_kib / 20 < 8388608 ? total_kib / 20 : 8388608))
DOCKER_ARGV=("${DOCKER_ARGV[0]}" --memory "$((total_kib - kept_kib))k" "${DOCKER_ARGV[@]:1}")
# The log shows which node a line is from; without this, only the container's id.
if [ "$(type -t log_stream)" = function ] && stream=$(log_stream); then
    DOCKER_ARGV=("${DOCKER_ARGV[0]}" --log-opt "awslogs-stream=$stream" "${DOCKER_ARGV[@]:1}")
fi
# For the record's prices.
capacity=$(own_capacity) || capacity=
if [ -n "$capacity" ]; then
    DOCKER_ARGV=("${DOCKER_ARGV[0]}" --env "GANGWAY_CAPACITY=$capacity" "${DOCKER_ARGV[@]:1}")
fi
[ -e "$STATE_DIR/first-start" ] || up_sec >"$STATE_DIR/first-start"
# Marks of an earlier end, if a user starts the node again.
rm -f "$STATE_DIR"/{end-put,told,kept}
touch "$STATE_DIR/ran"
exec "${RUN[@]}" "${DOCKER_ARGV[@]}"
