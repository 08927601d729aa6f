#!/usr/bin/env bash
# Mounts the Manila share as CephFS, by the kernel's client, with retries until a deadline.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_CEPH_DEADLINE_SEC:-600}
SECRET_FILE=${GANGWAY_CEPH_SECRET:-/run/gangway-ceph.secret}

# mount.ceph reads the secret from a file: it stands in no command line.
write_secret() { (umask 077 && swift secret mount_key >"$SECRET_FILE"); }
install_client() { command -v mount.ceph >/dev/null || { apt_get update && apt_get install ceph-common; }; }

mount_once() {
    timeout --kill-after=5 "$(seconds_left)" \
        mount -t ceph -o "name=$MOUNT_USER,secretfile=$SECRET_FILE,noatime" "$MOUNT_SOURCE" "$MOUNT_POINT"
}

mkdir -p "$MOUNT_POINT"
if mountpoint -q "$MOUNT_POINT"; then
    exit 0
fi
retry "$(seconds_left)" install_client || give_up "cannot install Ceph's client within $DEADLINE_SEC s"
write_secret || give_up "this machine's secrets have no key for $MOUNT_SOURCE"
retry "$(seconds_left)" mount_once || give_up "cannot mount $MOUNT_SOURCE at $MOUNT_POINT within $DEADLINE_SEC s"
log "ceph: mounted $MOUNT_SOURCE at $MOUNT_POINT"
