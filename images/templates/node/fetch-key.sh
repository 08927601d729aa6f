#!/usr/bin/env bash
# Fetches the member key, which authenticates the job's nodes to each other, into a file for the trainer's user on tmpfs, at
# each boot. It is not in user data or arguments.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_KEY_DEADLINE_SEC:-900}
FILE=${GANGWAY_MEMBER_FILE:-/run/gangway-member.pem}

fetch_key() { member_key >"$FILE.new" && grep -q 'PRIVATE KEY' "$FILE.new" && grep -q CERTIFICATE "$FILE.new"; }

umask 077
retry "$DEADLINE_SEC" fetch_key ||
    give_up "cannot read the member key $MEMBER_KEY: missing, unreachable or not allowed"
chown "$TRAINER_UID:$TRAINER_UID" "$FILE.new"
chmod 0400 "$FILE.new"
mv "$FILE.new" "$FILE"
