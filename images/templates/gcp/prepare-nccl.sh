#!/usr/bin/env bash
# NCCL's plug-in for this machine's GPU NICs: what the host needs for it, its libraries, and its daemon. A node on which
# any of that fails is given up: NCCL would go on over TCP, many times slower.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_NCCL_DEADLINE_SEC:-900}
SYSFS=${GANGWAY_SYSFS:-/sys}
APERTURES=${GANGWAY_APERTURES:-/dev/aperture_devices}
MODULE_PACKAGE=dmabuf-import-helper
# Of Google's plug-ins and daemons. Where nobody without an account may pull them, this machine's may.
REGISTRY=us-docker.pkg.dev
KERNEL_MODULES=() INSTALL_ARGV=() SIDE_ARGV=() SIDE_NAME='' SIDE_READY='' APERTURE_DEVICE=''
# shellcheck source=/dev/null
. "${GANGWAY_NCCL_ENV:-/etc/gangway/nccl.env}"

# The module comes as source. All this as cluster-toolkit of 2026-06-25 does it for an image
# (examples/machine-learning/a3-megagpu-8g).
add_repository() {
    apt_source_of_google gpudirect "gce-ai-infra gpudirect-tcpxo-apt main" arch=all &&
        apt_get update && apt_get install dkms "linux-headers-$(uname -r)"
}

# From Linux 6.13 on the name of a namespace is a string.
names_are_strings() { [ "$(printf '%s\n' 6.13 "$(uname -r)" | sort -V | head -n 1)" = 6.13 ]; }

# build FOLDER: unpacks the source there, and builds it for the running kernel. The package is not installed, because its
# own script would build the source as it is.
build() {
    local tree version
    (cd "$1" && apt-get -q download "$MODULE_PACKAGE" && dpkg-deb -x ./"$MODULE_PACKAGE"_*.deb .) || return
    tree=$(echo "$1/usr/src/$MODULE_PACKAGE"-*)
    version=${tree##*-}
    if names_are_strings; then
        sed -i 's/MODULE_IMPORT_NS(DMA_BUF)/MODULE_IMPORT_NS("DMA_BUF")/' "$tree"/*.c || return
    fi
    # What an earlier try has left.
    dkms remove -m "$MODULE_PACKAGE" -v "$version" --all >/dev/null 2>&1 || true
    rm -rf "$ROOT/usr/src/$MODULE_PACKAGE-$version"
    mv "$tree" "$ROOT/usr/src/" && dkms add -m "$MODULE_PACKAGE" -v "$version" &&
        dkms build -m "$MODULE_PACKAGE" -v "$version" && dkms install -m "$MODULE_PACKAGE" -v "$version"
}

load_module() {
    local folder status=0
    modprobe "$1" && return
    add_repository && folder=$(mktemp -d) || return
    build "$folder" || status=1
    rm -rf "$folder"
    [ "$status" = 0 ] && modprobe "$1"
}

# The PCI resources of each aperture device, where daemon and plug-in look for them.
mount_apertures() {
    local device folder count=0
    for device in "$SYSFS"/bus/pci/devices/*; do
        if [ "$(cat "$device/vendor"):$(cat "$device/device")" = "0x${APERTURE_DEVICE%:*}:0x${APERTURE_DEVICE#*:}" ]; then
            folder=$APERTURES/$(basename "$device")
            mkdir -p "$folder" && { mountpoint -q "$folder" || mount --bind "$device" "$folder"; } || return 1
            chmod a+rw "$folder"/resource* || return 1
            count=$((count + 1))
        fi
    done
    [ "$count" -gt 0 ]
}

start_side() {
    docker rm --force "$SIDE_NAME" >/dev/null 2>&1 || true
    docker "${SIDE_ARGV[@]}"
}

# side_serves: its log says so; one that says nothing runs.
side_serves() {
    if [ -n "$SIDE_READY" ]; then
        docker logs "$SIDE_NAME" 2>&1 | grep -qF "$SIDE_READY"
    else
        [ "$(docker inspect --format '{{.State.Running}}' "$SIDE_NAME")" = true ]
    fi
}

for module in "${KERNEL_MODULES[@]}"; do
    retry "$DEADLINE_SEC" load_module "$module" || give_up "cannot load kernel module $module within $DEADLINE_SEC s"
done
if [ -n "$APERTURE_DEVICE" ]; then
    retry "$DEADLINE_SEC" mount_apertures || give_up "no device $APERTURE_DEVICE after $DEADLINE_SEC s"
fi
retry "$DEADLINE_SEC" login_at "$REGISTRY" || give_up "cannot log in to $REGISTRY within $DEADLINE_SEC s"
retry "$DEADLINE_SEC" docker "${INSTALL_ARGV[@]}" || give_up "cannot install NCCL's plug-in within $DEADLINE_SEC s"
if [ -n "$SIDE_NAME" ]; then
    retry "$DEADLINE_SEC" start_side || give_up "cannot start $SIDE_NAME within $DEADLINE_SEC s"
    retry "$DEADLINE_SEC" side_serves || give_up "$SIDE_NAME does not serve after $DEADLINE_SEC s"
fi
log "NCCL: the plug-in is installed"
