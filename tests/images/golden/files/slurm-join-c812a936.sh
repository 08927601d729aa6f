#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/slurm-cloud.sh"
FILE=${GANGWAY_SLURM_NAME:-/run/gangway-slurm-name}
until name=$(slurm_name) && [[ $name =~ ^[a-z][a-z0-9-]*-n[0-9]{1,5}$ ]]; do
    sleep "$POLL_SEC"
done
echo "$name" >"$FILE"
log "this machine is $name"
exec slurmd -D -N "$name" --conf-server "$SLURM_HEAD"
