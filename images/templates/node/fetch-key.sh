#!/usr/bin/env bash
# Brings the key by which the nodes of the job know each other from the cloud's store into a file of the trainer's user
# alone, on tmpfs: each boot asks again. It is neither in user data nor in any argument.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_KEY_DEADLINE_SEC:-900}
FILE=${GANGWAY_MEMBER_FILE:-/run/gangway-member.pem}

fetched() { member_key >"$FILE.new" && grep -q 'PRIVATE KEY' "$FILE.new" && grep -q CERTIFICATE "$FILE.new"; }

umask 077
retry "$DEADLINE_SEC" fetched ||
    give_up "cannot read $MEMBER_KEY, by which nodes know each other: no right to it, no way to it, or not there"
chown "$TRAINER_UID:$TRAINER_UID" "$FILE.new"
chmod 0400 "$FILE.new"
mv "$FILE.new" "$FILE"
