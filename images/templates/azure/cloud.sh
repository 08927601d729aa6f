# shellcheck shell=bash
# Azure's functions for common.sh: metadata service, scheduled events, scale set, Log Analytics, Blob Storage, registry;
# images/node makes the calls.
export GANGWAY_CLIENT_ID=$CLIENT_ID
LIB_DIR=$(dirname "${BASH_SOURCE[0]}")/../lib
export ROOT=${GANGWAY_ROOT:-}
# mount-scratch.sh: the machine's own disks, and where the HPC image's service has put a file system over all of them.
export SCRATCH_DISKS='nvme-Microsoft_NVMe_Direct_Disk*' IMAGE_SCRATCH=/mnt/resource_nvme
# Sizes without those have one temporary disk, which cloud-init or Azure's agent has mounted where the image wants it.
if [ -n "$SCRATCH_TEMPORARY" ]; then
    GANGWAY_DISK_BY_ID=${GANGWAY_DISK_BY_ID:-/dev/disk/azure} SCRATCH_DISKS=resource-part1
    IMAGE_SCRATCH=$(findmnt --noheadings --first-only --output TARGET --source "$(readlink -f "$GANGWAY_DISK_BY_ID/resource-part1")" || true)
fi
# close-metadata.sh: the metadata service, and the host's own, which is the resolver too.
export METADATA_IPV4='169.254.169.254 168.63.129.16' METADATA_IPV6=''
# images/node/azure/heartbeat.py says Unhealthy where this is.
GIVEN_UP=${GANGWAY_STATE_DIR:-/run/gangway}/given-up

# azure COMMAND...: see images/node/azure/api.py.
azure() { PYTHONPATH=$LIB_DIR python3 -m gangway.images.node.azure.api "$@"; }

# For an eviction or a deletion, or because the machine shuts down. A restart is no end: run-job.sh waits for it.
leaving() { azure leaving || [ "$(systemctl is-system-running)" = stopping ]; }

own_capacity() { azure capacity; }

made_for_job() { [ "$ROLE" = worker ]; }

# A machine of a scale set that is deleted goes when it says so, or when its notice is over.
group_waits() { [ -n "$IN_GROUP" ] && azure waiting; }
let_go() { azure let-go && log "this machine may be deleted now"; }

send_event() { azure event "$LOG_GROUP" "$ROLE" "$@"; }

# The head requests a replacement. A machine that may not leave its scale set stops, and the head deletes it.
replace_node() {
    mkdir -p "$(dirname "$GIVEN_UP")" && touch "$GIVEN_UP"
    if azure leave; then
        log "this node leaves its scale set: the head requests another"
    else
        log "this node stops: the head deletes it and requests another"
        systemctl poweroff
    fi
}

# While held.json exists, the head requests no nodes.
hold_launches() { replace_node; }

# The head fills scale sets until this blob exists.
stop_filling() { azure put "$STATE_DIR/ended" "$BUCKET_URI/$ENDED_OBJECT"; }

leave_group() {
    log "this node leaves its scale set"
    azure leave
}

put_object() { azure put "$1" "$BUCKET_URI/$2"; }
list_objects() { azure list "$BUCKET_URI/$1"; }
put_folder() {
    PYTHONPATH=$LIB_DIR timeout "$RESULTS_SEC" python3 -m gangway.images.node.azure.api put-folder "$1" "$BUCKET_URI/$2"
}

member_key() { azure secret "$MEMBER_KEY"; }
signing_key() { azure secret "$SIGNING_KEY"; }

# Azure Container Registry's documentation, "Authentication": this name says that the password is a token.
registry_login() {
    azure registry-token "$IMAGE_REGISTRY" |
        docker login --username 00000000-0000-0000-0000-000000000000 --password-stdin "$IMAGE_REGISTRY"
}
