#!/usr/bin/env bash
# Logs in to the registry and pulls the job's image by its digest, so that every node runs the same bytes.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_PULL_DEADLINE_SEC:-900}

pull() { registry_login && docker pull --quiet "$IMAGE"; }

retry "$DEADLINE_SEC" pull || give_up "cannot pull $IMAGE within $DEADLINE_SEC s"
