#!/usr/bin/env bash
# Has root alone ask the metadata service, which tells whoever asks where this machine's secrets are: the job's containers
# share the machine's network.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

# refused TABLES ADDRESS: by others than root, from now on.
refused() {
    local rule=(OUTPUT -d "$2" -p tcp -m owner '!' --uid-owner 0 -j REJECT)
    "$1" -w -C "${rule[@]}" 2>/dev/null || "$1" -w -I "${rule[@]}"
}

refused iptables 169.254.169.254 || give_up "cannot close the metadata service to all but root: iptables refuses"
# Nova answers there too, where a machine knows IPv6 at all.
if [ -e "${GANGWAY_IF_INET6:-/proc/net/if_inet6}" ]; then
    refused ip6tables fe80::a9fe:a9fe || give_up "cannot close the metadata service to all but root: ip6tables refuses"
fi
