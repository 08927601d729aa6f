#!/usr/bin/env bash
# Mounts the Managed Lustre file system. Google builds its client's modules for some kernels; for another they are built
# here, unsigned, and Secure Boot refuses to load them.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_LUSTRE_DEADLINE_SEC:-1800}

# Managed Lustre documentation, "Connect to your Managed Lustre instance from Compute Engine": for Ubuntu.
install_built() {
    apt_source lustre-client https://us-apt.pkg.dev/doc/repo-signing-key.gpg \
        "https://us-apt.pkg.dev/projects/lustre-client-binaries lustre-client-ubuntu-$(codename) main" &&
        apt_get update && apt_get install "lustre-client-modules-$(uname -r)" lustre-client-utils
}

# The same, "Dynamic Kernel Module Support (DKMS) for Compute Engine clients": built here, in some minutes, and not signed.
install_source() {
    apt_source_of_google lustre-client-dkms "lustre-client-modules-dkms lustre-client-ubuntu-$(codename) main" &&
        apt_get update && apt_get install dkms "linux-headers-$(uname -r)" &&
        apt_get install lustre-client-modules-dkms lustre-client-utils
}

install_client() {
    modprobe lustre && return
    if ! install_built; then
        log "no prebuilt Lustre client for kernel $(uname -r): building it"
        # A source that apt cannot read would fail its next update too.
        install_source || { rm -f "$ROOT/etc/apt/sources.list.d/lustre-client-dkms.list" && return 1; }
    fi
    modprobe lustre
}

# secure_boot: what may be the reason, where it is on.
secure_boot() {
    if [[ $(mokutil --sb-state 2>/dev/null) == *enabled* ]]; then
        echo "; Secure Boot is on, which rejects modules built here"
    fi
}

mount_once() {
    # A mount that hangs must not outlive the deadline.
    timeout --kill-after=5 "$(seconds_left)" mount -t lustre -o relatime,flock "$MOUNT_SOURCE" "$MOUNT_POINT"
}

mkdir -p "$MOUNT_POINT"
if mountpoint -q "$MOUNT_POINT"; then
    exit 0
fi
retry "$(seconds_left)" install_client ||
    give_up "cannot install the Lustre client for kernel $(uname -r) within $DEADLINE_SEC s$(secure_boot)"
# A machine image has all above; the rest is of each boot.
retry "$(seconds_left)" mount_once || give_up "cannot mount $MOUNT_SOURCE at $MOUNT_POINT within $DEADLINE_SEC s"
log "lustre: mounted $MOUNT_SOURCE at $MOUNT_POINT"
