#!/usr/bin/env bash
# Mounts the FSx for Lustre file system, with retries until a deadline: its DNS name may not resolve yet at first boot.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_LUSTRE_DEADLINE_SEC:-600}
ROOT=${GANGWAY_ROOT:-}
SOURCE=$LUSTRE_DNS_NAME@tcp:/$LUSTRE_MOUNT_NAME

# FSx for Lustre user guide, "Installing the Lustre client": Amazon Linux 2023 has it, Ubuntu needs FSx's packages.
install_client() {
    if command -v dnf >/dev/null; then
        dnf -q -y install lustre-client && modprobe lustre
    else
        install_client_on_ubuntu
    fi
}

install_client_on_ubuntu() {
    local keyring=$ROOT/usr/share/keyrings/fsx-ubuntu-public-key.gpg codename
    # shellcheck source=/dev/null
    codename=$(. "$ROOT/etc/os-release" && echo "$VERSION_CODENAME") &&
        curl -fsS https://fsx-lustre-client-repo-public-keys.s3.amazonaws.com/fsx-ubuntu-public-key.asc |
        gpg --dearmor --yes --output "$keyring" &&
        echo "deb [signed-by=$keyring] https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu $codename main" \
            >"$ROOT/etc/apt/sources.list.d/fsxlustreclientrepo.list" &&
        apt-get -q -o DPkg::Lock::Timeout=120 update &&
        DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 install "lustre-client-modules-$(uname -r)" &&
        modprobe lustre
}

mount_once() {
    mountpoint -q "$LUSTRE_MOUNT_POINT" && return
    modprobe lustre || install_client || return 1
    # A mount that hangs must not outlive the deadline. SECONDS counts from the start of this script.
    timeout --kill-after=5 "$((DEADLINE_SEC > SECONDS ? DEADLINE_SEC - SECONDS : 1))" \
        mount -t lustre -o relatime,flock "$SOURCE" "$LUSTRE_MOUNT_POINT"
}

mkdir -p "$LUSTRE_MOUNT_POINT"
retry "$DEADLINE_SEC" mount_once || give_up "cannot mount $SOURCE at $LUSTRE_MOUNT_POINT within $DEADLINE_SEC s"
log "lustre: $SOURCE is at $LUSTRE_MOUNT_POINT"
