#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
BY_ID=${GANGWAY_DISK_BY_ID:-/dev/disk/by-id}
LABEL=gangway-scratch

own_disks() {
local link
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
blkid -L "$LABEL" >/dev/null || make_file_system || return 1
mount -o noatime "$(blkid -L "$LABEL")" "$SCRATCH_MOUNT_POINT"
}

mkdir -p "$SCRATCH_MOUNT_POINT"
mountpoint -q "$SCRATCH_MOUNT_POINT" || mount_scratch || give_up "cannot mount scratch at $SCRATCH_MOUNT_POINT"
chown "$TRAINER_UID:$TRAINER_UID" "$SCRATCH_MOUNT_POINT"
