#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
CHAIN=GANGWAY-METADATA
user=${SLURM_JOB_UID:-${TRAINER_UID:-0}}
[ "$user" != 0 ] || user=65533

refuse() {
for address in $addresses; do
printf -- "-A $CHAIN -d $address -p %s -j $1\n" \
"tcp -m tcp ! --dport 53" "udp -m multiport ! --dports 53,67,123,547"
done
echo COMMIT
}

rules() {
printf '*filter\n:%s -\n' "$CHAIN"
for name in root ${METADATA_USERS:-}; do
uid=$(id -u "$name" 2>/dev/null) && echo "-A $CHAIN -m owner --uid-owner $uid -j RETURN"
done
refuse REJECT
printf '*mangle\n:%s -\n' "$CHAIN"
refuse DROP
}

hook() {
local at=(--wait 10 --table "$1") rule=("$2" --jump "$CHAIN")
if [ "$act" = remove ]; then
for rule in "--delete $2 --jump" --flush --delete-chain; do
"$tables" "${at[@]}" $rule "$CHAIN" 2>/dev/null || true
done
else
"$tables" "${at[@]}" --check "${rule[@]}" 2>/dev/null || "$tables" "${at[@]}" --insert "${rule[@]}"
fi
}

is_refused() {
local code=0 connected
connected=$(setpriv --reuid "$user" --regid "$user" --clear-groups curl --silent --globoff --noproxy '*' \
--connect-timeout 2 --max-time 5 --output /dev/null --write-out '%{time_connect}' "http://$1/") || code=$?
[ "$code" = 7 ] || { [ "$code" = 28 ] && [[ $connected =~ ^0[.,]?0*$ ]]; }
}

act=${1:-}
for tables in iptables ip6tables; do
addresses=$METADATA_IPV4
if [ "$tables" = ip6tables ]; then
[ -e "${GANGWAY_IPV6:-/proc/net/if_inet6}" ] || continue
addresses=$METADATA_IPV6
fi
if ! command -v "$tables" >/dev/null; then
log "no $tables: all users can reach $addresses"
elif ! { [ "$act" = remove ] || "$tables-restore" --noflush --wait 10 <<<"$(rules)"; } ||
! hook filter OUTPUT || ! hook mangle FORWARD; then
log "cannot block $addresses"
exit 1
fi
[ -z "$act" ] || continue
for address in $addresses; do
[ "$tables" = iptables ] || address=[$address]
is_refused "$address" || {
log "user $user can still reach $address"
exit 1
}
done
done
