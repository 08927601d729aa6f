#!/usr/bin/env bash
# The machine's own NVMe disks as scratch: the image's mount when it made one, else one file system, striped over all.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
BY_ID=${GANGWAY_DISK_BY_ID:-/dev/disk/by-id}
LABEL=gangway-scratch

# One device may have several names in by-id.
own_disks() {
    local link
    # shellcheck disable=SC2231 # a pattern, to be matched
    for link in "$BY_ID"/$SCRATCH_DISKS; do
        [ -e "$link" ] && readlink -f "$link"
    done | sort -u
}

make_file_system() {
    local disks device
    mapfile -t disks < <(own_disks)
    [ "${#disks[@]}" -gt 0 ] || give_up "no local disks for scratch at $SCRATCH_MOUNT_POINT"
    device=${disks[0]}
    if [ "${#disks[@]}" -gt 1 ]; then
        device=/dev/md/$LABEL
        mdadm --create "$device" --run --level=0 --raid-devices="${#disks[@]}" "${disks[@]}" || return 1
    fi
    mkfs.ext4 -q -m 0 -L "$LABEL" "$device" || return 1
    log "scratch: ${#disks[@]} disks as $device"
}

mount_scratch() {
    if [ -n "$IMAGE_SCRATCH" ] && mountpoint -q "$IMAGE_SCRATCH"; then
        log "scratch: using the image's mount $IMAGE_SCRATCH"
        mount --bind "$IMAGE_SCRATCH" "$SCRATCH_MOUNT_POINT"
        return
    fi
    # After a reboot the file system is still there, and the array may have another name.
    blkid -L "$LABEL" >/dev/null || make_file_system || return 1
    mount -o noatime "$(blkid -L "$LABEL")" "$SCRATCH_MOUNT_POINT"
}

mkdir -p "$SCRATCH_MOUNT_POINT"
mountpoint -q "$SCRATCH_MOUNT_POINT" || mount_scratch || give_up "cannot mount scratch at $SCRATCH_MOUNT_POINT"
chown "$TRAINER_UID:$TRAINER_UID" "$SCRATCH_MOUNT_POINT"
