#!/usr/bin/env bash
# Fetches this machine's secrets, from the URL in its metadata, into a file for root alone. The URL expires hours after a
# `pulumi up`; secrets are fetched again only if the metadata names another object.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_SECRETS_DEADLINE_SEC:-600}

retry "$DEADLINE_SEC" swift fetch ||
    give_up "cannot fetch this machine's secrets within $DEADLINE_SEC s: no answer, or their URL has expired; run pulumi up"
