#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_SECRETS_DEADLINE_SEC:-600}

retry "$DEADLINE_SEC" swift fetch ||
    give_up "cannot fetch this machine's secrets within $DEADLINE_SEC s: no answer, or their URL has expired; run pulumi up"
