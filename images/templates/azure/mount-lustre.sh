#!/usr/bin/env bash
# Mounts the Azure Managed Lustre file system. The HPC images have its client. Microsoft builds and signs it for most of
# Azure's kernels of Ubuntu; for another it is built here, unsigned, and Secure Boot refuses to load it.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_LUSTRE_DEADLINE_SEC:-1800}
KEYRING=$ROOT/usr/share/keyrings/gangway-microsoft.gpg
# Of Microsoft's key for Linux packages, by their own documentation (Azure CLI, Defender for Endpoint on Linux).
FINGERPRINT=BC528686B50D79E339D3721CEB3E94ADBE1229CF

# codename: of this Ubuntu.
codename() {
    # shellcheck source=/dev/null
    (. "$ROOT/etc/os-release" && echo "$VERSION_CODENAME")
}

# newest_first PREFIX: packages with this prefix, by Lustre's version.
newest_first() { apt-cache search --names-only "^$1-[0-9]" | cut -d' ' -f1 | sort -rV; }

# built_package: the newest one for this kernel; empty if there is none.
built_package() {
    local name
    while read -r name; do
        if apt-cache madison "$name" | grep -q "| *$(uname -r) *|"; then
            echo "$name=$(uname -r)"
            return
        fi
    done < <(newest_first amlfs-lustre-client)
}

# Azure Managed Lustre documentation, "Install Lustre client software", for Ubuntu: the prebuilt modules, else DKMS.
install_client() {
    local package source
    modprobe lustre && return
    apt_key gangway-microsoft https://packages.microsoft.com/keys/microsoft.asc "$FINGERPRINT" &&
        echo "deb [arch=$(dpkg --print-architecture) signed-by=$KEYRING] https://packages.microsoft.com/repos/amlfs-$(codename)/ $(codename) main" \
            >"$ROOT/etc/apt/sources.list.d/gangway-amlfs.list" && apt_get update || return
    package=$(built_package)
    if [ -n "$package" ]; then
        apt_get install "$package" && modprobe lustre
        return
    fi
    log "no prebuilt Lustre client for kernel $(uname -r): building it"
    source=$(newest_first amlfs-lustre-client-dkms | head -n 1)
    [ -n "$source" ] && apt_get install "linux-headers-$(uname -r)" "$source" && modprobe lustre
}

# After the same documentation, "Connect clients"; a mount that hangs must not outlive the deadline.
mount_once() {
    timeout --kill-after=5 "$(seconds_left)" mount -t lustre -o noatime,flock "$MOUNT_SOURCE" "$MOUNT_POINT"
}

mkdir -p "$MOUNT_POINT"
if mountpoint -q "$MOUNT_POINT"; then
    exit 0
fi
retry "$(seconds_left)" install_client ||
    give_up "cannot install the Lustre client for kernel $(uname -r) within $DEADLINE_SEC s"
# A machine image has all above; the rest is of each boot.
retry "$(seconds_left)" mount_once || give_up "cannot mount $MOUNT_SOURCE at $MOUNT_POINT within $DEADLINE_SEC s"
log "lustre: mounted $MOUNT_SOURCE at $MOUNT_POINT"
