#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_PULL_DEADLINE_SEC:-900}

pull() { registry_login && docker pull --quiet "$IMAGE"; }

retry "$DEADLINE_SEC" pull || give_up "cannot pull $IMAGE within $DEADLINE_SEC s"
