#!/usr/bin/env bash
# Opens the job's ports only to the stack's machines; `remove` opens them to all. Names are resolved now and at each boot.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
CHAIN=GANGWAY
HOOK=(INPUT --protocol tcp --match multiport --dports "$JOB_PORTS" --jump "$CHAIN")

# allowed_addresses TABLES: of IPv4 or IPv6.
allowed_addresses() {
    local database=ahostsv4 source
    [ "$1" = iptables ] || database=ahostsv6
    for source in $ALLOWED_SOURCES; do
        case $source in
        *:*/*) [ "$1" = iptables ] || echo "$source" ;;
        */*) [ "$1" != iptables ] || echo "$source" ;;
        *) getent "$database" "$source" | cut -d' ' -f1 | grep -v '^::ffff:' ;;
        esac
    done | sort -u
}

# close_ports TABLES: replaces the chain atomically, then adds the jump to it.
close_ports() {
    local rules source
    rules=$(
        printf '*filter\n:%s - [0:0]\n-A %s -i lo -j RETURN\n' "$CHAIN" "$CHAIN"
        for source in $(allowed_addresses "$1"); do
            printf -- '-A %s -s %s -j RETURN\n' "$CHAIN" "$source"
        done
        printf -- '-A %s -j REJECT\nCOMMIT\n' "$CHAIN"
    )
    "$1-restore" --noflush --wait 10 <<<"$rules" &&
        { "$1" --wait 10 --check "${HOOK[@]}" 2>/dev/null || "$1" --wait 10 --insert "${HOOK[@]}"; }
}

open_ports() {
    "$1" --wait 10 --delete "${HOOK[@]}" && "$1" --wait 10 --flush "$CHAIN" && "$1" --wait 10 --delete-chain "$CHAIN"
}

if ! command -v iptables >/dev/null; then
    log "no iptables: ports $JOB_PORTS are open to all hosts that can reach this machine"
    exit 0
fi
families=(iptables)
[ ! -e "${GANGWAY_IPV6:-/proc/net/if_inet6}" ] || families+=(ip6tables)
for tables in "${families[@]}"; do
    if [ "${1:-}" = remove ]; then
        open_ports "$tables" 2>/dev/null || true
    else
        close_ports "$tables" || give_up "cannot limit ports $JOB_PORTS to $ALLOWED_SOURCES: $tables fails"
    fi
done
