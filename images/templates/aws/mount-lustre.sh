#!/usr/bin/env bash
# Mounts the FSx for Lustre file system, with retries until a deadline: its DNS name may not resolve yet at first boot.
# LUSTRE_EFA: mount only over EFA, with that many interfaces.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_LUSTRE_DEADLINE_SEC:-600}
ROOT=${GANGWAY_ROOT:-}
# The same with EFA: the first contact is made over TCP, the data then go where LNet prefers.
SOURCE=$LUSTRE_DNS_NAME@tcp:/$LUSTRE_MOUNT_NAME
# The key that signs FSx's packages for Ubuntu. AWS's guide gives none; from a public installer (lustre_installer.sh on
# GitHub, 2026).
FINGERPRINT=9C36DD9C515F10DBC3AA835C5D5CCC3383A962E1
EFA_SETUP=configure-efa-fsx-lustre-client
EFA_SETUP_URL=https://docs.aws.amazon.com/fsx/latest/LustreGuide/samples/$EFA_SETUP.zip

# FSx for Lustre user guide, "Installing the Lustre client": Amazon Linux 2023 has it, Ubuntu needs FSx's packages.
install_client() {
    if command -v dnf >/dev/null; then
        dnf -q -y install lustre-client && modprobe lustre
    else
        install_client_on_ubuntu
    fi
}

install_client_on_ubuntu() {
    local keyring=$ROOT/usr/share/keyrings/fsx-ubuntu-public-key.gpg codename url
    url=https://fsx-lustre-client-repo-public-keys.s3.amazonaws.com/fsx-ubuntu-public-key.asc
    # shellcheck source=/dev/null
    codename=$(. "$ROOT/etc/os-release" && echo "$VERSION_CODENAME") &&
        apt_key fsx-ubuntu-public-key "$url" "$FINGERPRINT" &&
        echo "deb [signed-by=$keyring] https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu $codename main" \
            >"$ROOT/etc/apt/sources.list.d/fsxlustreclientrepo.list" &&
        apt-get -q -o DPkg::Lock::Timeout=120 update &&
        DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 install "lustre-client-modules-$(uname -r)" &&
        modprobe lustre
}

load_client() { modprobe lustre || install_client; }

count_efa() { lnetctl net show --net efa 2>/dev/null | grep -c 'status: up' || true; }
enough_efa() { [ "$(count_efa)" -ge "$LUSTRE_EFA" ]; }

# FSx for Lustre user guide, "Configuring EFA clients": AWS's own script sets up LNet's interfaces and makes a service
# that does so after a reboot. It needs a Nitro v4 machine with EFA, and on Ubuntu 22.04 kernel 6.8 (the AMI has it).
configure_efa() {
    local folder found
    if enough_efa; then
        return
    fi
    # Its module options count only for modules that it loads itself; else LNet takes two interfaces at most.
    lnetctl lnet unconfigure || true
    lustre_rmmod || log "cannot unload the Lustre modules: LNet may use fewer EFA interfaces"
    # Python's unzip, which every AMI has, keeps no modes.
    folder=$(mktemp -d) && curl -fsS -o "$folder/setup.zip" "$EFA_SETUP_URL" || return
    found=$(sha256sum "$folder/setup.zip" | cut -d' ' -f1)
    [ "$found" = "$LUSTRE_EFA_SHA256" ] ||
        give_up "$EFA_SETUP_URL has SHA-256 $found: review it, then set efa_setup_sha256"
    python3 -m zipfile -e "$folder/setup.zip" "$folder" && chmod -R u+x "$folder/$EFA_SETUP" &&
        (cd "$folder/$EFA_SETUP" && timeout "$(seconds_left)" ./setup.sh) && enough_efa
}

mount_once() {
    # A mount that hangs must not outlive the deadline.
    timeout --kill-after=5 "$(seconds_left)" mount -t lustre -o relatime,flock "$SOURCE" "$LUSTRE_MOUNT_POINT"
}

mkdir -p "$LUSTRE_MOUNT_POINT"
if mountpoint -q "$LUSTRE_MOUNT_POINT"; then
    exit 0
fi
retry "$(seconds_left)" load_client || give_up "cannot install the Lustre client within $DEADLINE_SEC s"
# A machine image has all above; the rest is of each boot.
if [ -n "$LUSTRE_EFA" ]; then
    retry "$(seconds_left)" configure_efa ||
        give_up "LNet has $(count_efa) of $LUSTRE_EFA EFA interfaces up after $DEADLINE_SEC s; not mounting $SOURCE over TCP"
    log "lustre: $(count_efa) EFA interfaces"
fi
retry "$(seconds_left)" mount_once || give_up "cannot mount $SOURCE at $LUSTRE_MOUNT_POINT within $DEADLINE_SEC s"
log "lustre: mounted $SOURCE at $LUSTRE_MOUNT_POINT"
