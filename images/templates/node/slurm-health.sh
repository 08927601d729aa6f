#!/usr/bin/env bash
# Slurm's prolog and epilog: the node's checks. An unfit node is drained, its job requeued and its machine replaced.
set -uo pipefail
# shellcheck source=common.sh
. "${GANGWAY_NODE_ENV:-/etc/gangway/node.env}"
export GANGWAY_NODE_ENV=${GANGWAY_CHECK_ENV:-/etc/gangway/check.env}
# unfit OUTPUT: its last line is the reason.
unfit() {
    echo "$1" >&2
    why=$(tail -n 1 <<<"$1" | tr -cd '[:alnum:] .,:_/-' | cut -c1-200)
    scontrol update "nodename=$SLURMD_NODENAME" state=drain "reason=gangway: unfit: $why"
    exit 1
}

# A new machine knows users that were added later.
[ -z "${SLURM_USERS:-}" ] || id "${SLURM_JOB_UID:-0}" >/dev/null 2>&1 || unfit "unknown user $SLURM_JOB_UID"
for check in $HEALTH_CHECKS; do
    output=$(bash "$(dirname "$0")/$check" 2>&1) || unfit "$output"
done
