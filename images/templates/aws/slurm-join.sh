#!/usr/bin/env bash
# Waits until the controller assigns a node name, and joins as that node. The controller ends a machine without one.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=slurm-cloud.sh
. "$(dirname "$0")/slurm-cloud.sh"
FILE=${GANGWAY_SLURM_NAME:-/run/gangway-slurm-name}
until name=$(slurm_name) && [[ $name =~ ^[a-z][a-z0-9-]*-n[0-9]{1,5}$ ]]; do
    sleep "$POLL_SEC"
done
echo "$name" >"$FILE"
log "this machine is $name"
exec slurmd -D -N "$name" --conf-server "$SLURM_HEAD"
