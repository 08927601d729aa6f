#!/usr/bin/env bash
# Updates slurmdbd's accounts: each line of the file is sacctmgr's arguments. Removes users from accounts that the file does
# not list for them.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
FILE=${GANGWAY_SLURM_ACCOUNTS:-/etc/gangway/slurm-accounts}
answers() { sacctmgr --noheader list cluster >/dev/null; }
retry "${GANGWAY_ACCOUNTS_DEADLINE_SEC:-300}" answers || give_up "slurmdbd does not answer"
while read -ra words; do
    # "Nothing new added" is exit code 1 too.
    sacctmgr --immediate --quiet "${words[@]}" || log "sacctmgr ${words[*]}: nothing to do"
done <"$FILE"
sacctmgr --noheader --parsable2 list associations format=cluster,account,user | while IFS='|' read -r cluster account user; do
    if [ -n "$user" ] && [ "$user" != root ] && ! grep -qxF "add user $user account=$account cluster=$cluster" "$FILE"; then
        sacctmgr --immediate --quiet remove user "name=$user" "account=$account" "cluster=$cluster" </dev/null ||
            log "cannot remove $user from $account: will retry when the controller restarts"
    fi
done
