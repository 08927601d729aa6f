#!/usr/bin/env bash
# Mounts a folder of the run bucket for TPUs without a file system: all hosts of a slice must see the same checkpoints, and a
# preempted slice returns with empty disks. Cloud Storage FUSE shows a file once it is closed and, from 3.1.0 on, renames
# atomically (its release notes); it has no hard links.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_BUCKET_DEADLINE_SEC:-600}

# Cloud Storage documentation, "Install Cloud Storage FUSE", for Ubuntu.
install_client() {
    command -v gcsfuse >/dev/null && return
    apt_source gcsfuse https://packages.cloud.google.com/apt/doc/apt-key.gpg \
        "https://packages.cloud.google.com/apt gcsfuse-$(codename) main" &&
        apt_get update && apt_get install gcsfuse
}

# MOUNT_SOURCE is BUCKET/FOLDER. Without metadata caches, other hosts' new files appear at once.
mount_once() {
    timeout --kill-after=5 60 gcsfuse --only-dir "${MOUNT_SOURCE#*/}" --implicit-dirs -o allow_other \
        --uid "$TRAINER_UID" --gid "$TRAINER_UID" --file-mode 644 --dir-mode 755 \
        --metadata-cache-ttl-secs 0 "${MOUNT_SOURCE%%/*}" "$MOUNT_POINT"
}

mkdir -p "$MOUNT_POINT"
if mountpoint -q "$MOUNT_POINT"; then
    exit 0
fi
retry "$DEADLINE_SEC" install_client || give_up "cannot install Cloud Storage FUSE within $DEADLINE_SEC s"
retry "$DEADLINE_SEC" mount_once || give_up "cannot mount gs://$MOUNT_SOURCE at $MOUNT_POINT within $DEADLINE_SEC s"
mkdir -p "$RUN_DIR"
log "bucket: mounted gs://$MOUNT_SOURCE at $MOUNT_POINT"
