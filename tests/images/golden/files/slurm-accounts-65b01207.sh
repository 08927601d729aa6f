#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
FILE=${GANGWAY_SLURM_ACCOUNTS:-/etc/gangway/slurm-accounts}
answers() { sacctmgr --noheader list cluster >/dev/null; }
retry "${GANGWAY_ACCOUNTS_DEADLINE_SEC:-300}" answers || give_up "slurmdbd does not answer"
while read -ra words; do
    sacctmgr --immediate --quiet "${words[@]}" || log "sacctmgr ${words[*]}: nothing to do"
done <"$FILE"
sacctmgr --noheader --parsable2 list associations format=cluster,account,user | while IFS='|' read -r cluster account user; do
    if [ -n "$user" ] && [ "$user" != root ] && ! grep -qxF "add user $user account=$account cluster=$cluster" "$FILE"; then
        sacctmgr --immediate --quiet remove user "name=$user" "account=$account" "cluster=$cluster" </dev/null ||
            log "cannot remove $user from $account: will retry when the controller restarts"
    fi
done
