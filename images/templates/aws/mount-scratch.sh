#!/usr/bin/env bash
# Instance-store NVMe as scratch: the AMI's own mount when it made one, else one file system, striped over several disks.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
AMI_MOUNT=${GANGWAY_AMI_NVME_MOUNT:-/opt/dlami/nvme}
BY_ID=${GANGWAY_DISK_BY_ID:-/dev/disk/by-id}
LABEL=gangway-scratch

# One device may have several names in by-id.
instance_store_disks() {
    local link
    for link in "$BY_ID"/nvme-Amazon_EC2_NVMe_Instance_Storage_*; do
        [ -e "$link" ] && readlink -f "$link"
    done | sort -u
}

make_file_system() {
    local disks device
    mapfile -t disks < <(instance_store_disks)
    [ "${#disks[@]}" -gt 0 ] || give_up "scratch is planned at $SCRATCH_MOUNT_POINT, but there is no instance store"
    device=${disks[0]}
    if [ "${#disks[@]}" -gt 1 ]; then
        device=/dev/md/$LABEL
        mdadm --create "$device" --run --level=0 --raid-devices="${#disks[@]}" "${disks[@]}" || return 1
    fi
    mkfs.ext4 -q -m 0 -L "$LABEL" "$device" || return 1
    log "scratch: ${#disks[@]} disks as $device"
}

mount_scratch() {
    if mountpoint -q "$AMI_MOUNT"; then
        log "scratch: the AMI has already mounted the instance store at $AMI_MOUNT"
        mount --bind "$AMI_MOUNT" "$SCRATCH_MOUNT_POINT"
        return
    fi
    # After a reboot the file system is still there, and the array may have another name.
    blkid -L "$LABEL" >/dev/null || make_file_system || return 1
    mount -o noatime "$(blkid -L "$LABEL")" "$SCRATCH_MOUNT_POINT"
}

mkdir -p "$SCRATCH_MOUNT_POINT"
mountpoint -q "$SCRATCH_MOUNT_POINT" || mount_scratch || give_up "cannot mount scratch at $SCRATCH_MOUNT_POINT"
chown "$TRAINER_UID:$TRAINER_UID" "$SCRATCH_MOUNT_POINT"
