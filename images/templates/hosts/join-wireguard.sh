#!/usr/bin/env bash
# Joins the other machines by WireGuard, with the configuration that `up` has put where wg-quick looks for it; with
# `remove`, leaves them.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

wg-quick down "$WIREGUARD" >/dev/null 2>&1 || true
[ "${1:-}" != remove ] || exit 0
wg-quick up "$WIREGUARD" || give_up "WireGuard does not start: run wg-quick up $WIREGUARD, and check the kernel module wireguard"
