#!/usr/bin/env bash
# Runs the job's container in the foreground; systemd sees its exit code and its signals reach it.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DOCKER_ARGV=()
# shellcheck source=/dev/null
. "${GANGWAY_JOB_ENV:-/etc/gangway/job.env}"
install -d -o "$TRAINER_UID" -g "$TRAINER_UID" "$RUN_DIR"
exec docker "${DOCKER_ARGV[@]}"
