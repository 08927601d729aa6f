#!/usr/bin/env bash
# Blocks the cloud's metadata services, with this machine's tokens and user data, for all users but root and METADATA_USERS,
# and for containers and network namespaces of any user. Before a job it also tries to connect as the job's user; if that
# works, no job runs.
#     close-metadata.sh           sets the rules, then tests them
#     close-metadata.sh rules     sets the rules: at boot, before there is a network
#     close-metadata.sh remove    removes the rules
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
CHAIN=GANGWAY-METADATA
# Slurm says in a prolog whose job begins. Any user but root stands for all others, also one without a name.
user=${SLURM_JOB_UID:-${TRAINER_UID:-0}}
[ "$user" != 0 ] || user=65533

# refuse TARGET: some clouds have their resolver, time server (chrony) and DHCP server (systemd-networkd), which users other
# than root talk to, at the same address.
refuse() {
    for address in $addresses; do
        printf -- "-A $CHAIN -d $address -p %s -j $1\n" \
            "tcp -m tcp ! --dport 53" "udp -m multiport ! --dports 53,67,123,547"
    done
    echo COMMIT
}

# rules: one chain for what users of this machine send, and one for what is forwarded.
rules() {
    printf '*filter\n:%s -\n' "$CHAIN"
    for name in root ${METADATA_USERS:-}; do
        # Not before its package is installed.
        uid=$(id -u "$name" 2>/dev/null) && echo "-A $CHAIN -m owner --uid-owner $uid -j RETURN"
    done
    refuse REJECT
    printf '*mangle\n:%s -\n' "$CHAIN"
    refuse DROP
}

# hook TABLE CHAIN: leads there, once; with `remove`, no more. Docker writes to neither of the two.
hook() {
    local at=(--wait 10 --table "$1") rule=("$2" --jump "$CHAIN")
    if [ "$act" = remove ]; then
        for rule in "--delete $2 --jump" --flush --delete-chain; do
            # shellcheck disable=SC2086 # words
            "$tables" "${at[@]}" $rule "$CHAIN" 2>/dev/null || true
        done
    else
        "$tables" "${at[@]}" --check "${rule[@]}" 2>/dev/null || "$tables" "${at[@]}" --insert "${rule[@]}"
    fi
}

# is_refused HOST: for the user. curl exits with 7 if refused, and 28 for a timeout, which counts only before a connection.
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
        # Without IPv6 there is nothing to block.
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
