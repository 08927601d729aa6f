#!/usr/bin/env bash
# Mounts the Filestore share, with retries until a deadline.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_NFS_DEADLINE_SEC:-600}

install_client() { command -v mount.nfs >/dev/null || { apt_get update && apt_get install nfs-common; }; }

# Filestore documentation, "Mount file shares on Compute Engine clients": these options for its basic tiers, NFSv3.
mount_once() {
    timeout --kill-after=5 "$(seconds_left)" \
        mount -t nfs -o hard,timeo=600,retrans=3,rsize=524288,wsize=524288,nfsvers=3 "$MOUNT_SOURCE" "$MOUNT_POINT"
}

mkdir -p "$MOUNT_POINT"
if mountpoint -q "$MOUNT_POINT"; then
    exit 0
fi
retry "$(seconds_left)" install_client || give_up "cannot install the NFS client within $DEADLINE_SEC s"
retry "$(seconds_left)" mount_once || give_up "cannot mount $MOUNT_SOURCE at $MOUNT_POINT within $DEADLINE_SEC s"
log "nfs: mounted $MOUNT_SOURCE at $MOUNT_POINT"
