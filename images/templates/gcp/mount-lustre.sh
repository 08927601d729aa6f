#!/usr/bin/env bash
# Mounts the Managed Lustre file system, with retries until a deadline. Google builds its client's modules for some
# kernels only: a node whose kernel has none is given up, and says so.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_LUSTRE_DEADLINE_SEC:-600}

# Managed Lustre documentation, "Connect to your Managed Lustre instance from Compute Engine": for Ubuntu.
install_client() {
    modprobe lustre && return
    apt_source lustre-client https://us-apt.pkg.dev/doc/repo-signing-key.gpg \
        "https://us-apt.pkg.dev/projects/lustre-client-binaries lustre-client-ubuntu-$(codename) main" &&
        apt_get update && apt_get install "lustre-client-modules-$(uname -r)" lustre-client-utils && modprobe lustre
}

seconds_left() { echo $((DEADLINE_SEC > SECONDS ? DEADLINE_SEC - SECONDS : 1)); }

mount_once() {
    # A mount that hangs must not outlive the deadline.
    timeout --kill-after=5 "$(seconds_left)" mount -t lustre -o relatime,flock "$MOUNT_SOURCE" "$MOUNT_POINT"
}

mkdir -p "$MOUNT_POINT"
if mountpoint -q "$MOUNT_POINT"; then
    exit 0
fi
retry "$(seconds_left)" install_client ||
    give_up "cannot install the Lustre client for kernel $(uname -r) within $DEADLINE_SEC s"
retry "$(seconds_left)" mount_once || give_up "cannot mount $MOUNT_SOURCE at $MOUNT_POINT within $DEADLINE_SEC s"
log "lustre: $MOUNT_SOURCE is at $MOUNT_POINT"
