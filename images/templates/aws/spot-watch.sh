#!/usr/bin/env bash
# Turns EC2's notices into SIGTERM for the trainer. An interruption (two minutes away) stops it for good; a rebalance
# recommendation makes it save and start again, because the node may well go on for hours.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
rebalance=

while true; do
    if notice=$(imds spot/instance-action); then
        log "interruption notice: $notice"
        systemctl stop gangway-trainer.service
        exit 0
    fi
    if [ -z "$rebalance" ] && rebalance=$(imds events/recommendations/rebalance); then
        log "rebalance recommendation: $rebalance"
        docker kill --signal TERM "$CONTAINER_NAME" || log "no trainer is running"
    fi
    sleep "$POLL_SEC"
done
