#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_LUSTRE_DEADLINE_SEC:-600}
ROOT=${GANGWAY_ROOT:-}
SOURCE=$LUSTRE_DNS_NAME@tcp:/$LUSTRE_MOUNT_NAME
FINGERPRINT=9C36DD9C515F10DBC3AA835C5D5CCC3383A962E1
EFA_SETUP=configure-efa-fsx-lustre-client
EFA_SETUP_URL=https://docs.aws.amazon.com/fsx/latest/LustreGuide/samples/$EFA_SETUP.zip

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

configure_efa() {
    local folder found
    if enough_efa; then
        return
    fi
    lnetctl lnet unconfigure || true
    lustre_rmmod || log "cannot unload the Lustre modules: LNet may use fewer EFA interfaces"
    folder=$(mktemp -d) && curl -fsS -o "$folder/setup.zip" "$EFA_SETUP_URL" || return
    found=$(sha256sum "$folder/setup.zip" | cut -d' ' -f1)
    [ "$found" = "$LUSTRE_EFA_SHA256" ] ||
        give_up "$EFA_SETUP_URL has SHA-256 $found: review it, then set efa_setup_sha256"
    python3 -m zipfile -e "$folder/setup.zip" "$folder" && chmod -R u+x "$folder/$EFA_SETUP" &&
        (cd "$folder/$EFA_SETUP" && timeout "$(seconds_left)" ./setup.sh) && enough_efa
}

mount_once() {
    timeout --kill-after=5 "$(seconds_left)" mount -t lustre -o relatime,flock "$SOURCE" "$LUSTRE_MOUNT_POINT"
}

mkdir -p "$LUSTRE_MOUNT_POINT"
if mountpoint -q "$LUSTRE_MOUNT_POINT"; then
    exit 0
fi
retry "$(seconds_left)" load_client || give_up "cannot install the Lustre client within $DEADLINE_SEC s"
if [ -n "$LUSTRE_EFA" ]; then
    retry "$(seconds_left)" configure_efa ||
        give_up "LNet has $(count_efa) of $LUSTRE_EFA EFA interfaces up after $DEADLINE_SEC s; not mounting $SOURCE over TCP"
    log "lustre: $(count_efa) EFA interfaces"
fi
retry "$(seconds_left)" mount_once || give_up "cannot mount $SOURCE at $LUSTRE_MOUNT_POINT within $DEADLINE_SEC s"
log "lustre: mounted $SOURCE at $LUSTRE_MOUNT_POINT"
