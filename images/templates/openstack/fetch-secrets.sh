#!/usr/bin/env bash
# Brings what this machine has to know and its user data must not say, by the address in its metadata, into a file that
# root alone reads. The address is good for some hours after an `up`: what was fetched stays, and is fetched again where
# the metadata name another object.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_SECRETS_DEADLINE_SEC:-600}

retry "$DEADLINE_SEC" swift fetch ||
    give_up "cannot fetch this machine's secrets within $DEADLINE_SEC s: their address is over until the next up, or nobody answers"
