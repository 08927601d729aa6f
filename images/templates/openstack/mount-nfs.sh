#!/usr/bin/env bash
# Mounts the Manila share over NFS, with retries until a deadline: its access rule may be a moment old.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_NFS_DEADLINE_SEC:-600}

install_client() { command -v mount.nfs >/dev/null || { apt_get update && apt_get install nfs-common; }; }

# NFSv4.1: one port, no callbacks, and what Ganesha before CephFS speaks (Manila's documentation, "CephFS driver"). A mount
# that hangs must not outlive the deadline.
mount_once() {
    timeout --kill-after=5 "$(seconds_left)" \
        mount -t nfs -o nfsvers=4.1,proto=tcp,hard,noatime "$MOUNT_SOURCE" "$MOUNT_POINT"
}

mkdir -p "$MOUNT_POINT"
if mountpoint -q "$MOUNT_POINT"; then
    exit 0
fi
retry "$(seconds_left)" install_client || give_up "cannot install the NFS client within $DEADLINE_SEC s"
retry "$(seconds_left)" mount_once || give_up "cannot mount $MOUNT_SOURCE at $MOUNT_POINT within $DEADLINE_SEC s"
log "nfs: mounted $MOUNT_SOURCE at $MOUNT_POINT"
