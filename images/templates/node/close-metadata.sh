#!/usr/bin/env bash
# Keeps the job's user from the metadata service, and so from this machine's tokens and its user data: who wants something
# of a cloud there is root. Names are still answered: some clouds have their resolver at the same address. A machine on
# which that cannot be seen to hold runs no job.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

# closed TABLES ADDRESS PROTOCOL: docker, which comes with iptables, leaves this chain alone.
closed() {
    local rule=(OUTPUT --destination "$2" --match owner --uid-owner "$TRAINER_UID" --protocol "$3" --match "$3" ! --dport 53
        --jump REJECT)
    if [ "$act" = remove ]; then
        "$1" --wait 10 --delete "${rule[@]}" 2>/dev/null || true
        return
    fi
    "$1" --wait 10 --check "${rule[@]}" 2>/dev/null || "$1" --wait 10 --insert "${rule[@]}"
}

# refused ADDRESS: as the job's user; 7 is curl's word for a connection that is not taken, 28 for one that nobody takes in
# time. A service that takes it and is slow to answer is reached.
refused() {
    local code=0 connected
    connected=$(setpriv --reuid "$TRAINER_UID" --regid "$TRAINER_UID" --clear-groups curl --silent --globoff --noproxy '*' \
        --max-time 5 --output /dev/null --write-out '%{time_connect}' "http://$1/") || code=$?
    [ "$code" = 7 ] || { [ "$code" = 28 ] && [[ $connected =~ ^0[.,]?0*$ ]]; }
}

if [ "$METADATA_IS_SURE" = no ] && ! command -v iptables >/dev/null; then
    log "no iptables here: should this machine have a metadata service, the job reaches it"
    exit 0
fi
act=${1:-close}
for address in $METADATA_ADDRESSES; do
    tables=iptables host=$address
    if [[ $address == *:* ]]; then
        tables=ip6tables host=[$address]
        # A machine without IPv6 has nobody there.
        [ -e "${GANGWAY_IPV6:-/proc/net/if_inet6}" ] || continue
    fi
    for protocol in tcp udp; do
        closed "$tables" "$address" "$protocol" || {
            log "cannot keep the job from $address"
            exit 1
        }
    done
    [ "$act" = remove ] || refused "$host" || {
        log "the job's user still reaches $address"
        exit 1
    }
done
