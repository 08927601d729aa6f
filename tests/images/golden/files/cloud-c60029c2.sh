export GANGWAY_CLIENT_ID=$CLIENT_ID
LIB_DIR=$(dirname "${BASH_SOURCE[0]}")/../lib
export ROOT=${GANGWAY_ROOT:-}
export SCRATCH_DISKS='nvme-Microsoft_NVMe_Direct_Disk*' IMAGE_SCRATCH=/mnt/resource_nvme
if [ -n "$SCRATCH_TEMPORARY" ]; then
    GANGWAY_DISK_BY_ID=${GANGWAY_DISK_BY_ID:-/dev/disk/azure} SCRATCH_DISKS=resource-part1
    IMAGE_SCRATCH=$(findmnt --noheadings --first-only --output TARGET --source "$(readlink -f "$GANGWAY_DISK_BY_ID/resource-part1")" || true)
fi
export METADATA_IPV4='169.254.169.254 168.63.129.16' METADATA_IPV6=''
GIVEN_UP=${GANGWAY_STATE_DIR:-/run/gangway}/given-up

azure() { PYTHONPATH=$LIB_DIR python3 -m images.node.azure.api "$@"; }

leaving() { azure leaving || [ "$(systemctl is-system-running)" = stopping ]; }

own_capacity() { azure capacity; }

made_for_job() { [ "$ROLE" = worker ]; }

group_waits() { [ -n "$IN_GROUP" ] && azure waiting; }
let_go() { azure let-go && log "this machine may be deleted now"; }

send_event() { azure event "$LOG_GROUP" "$ROLE" "$@"; }

replace_node() {
    mkdir -p "$(dirname "$GIVEN_UP")" && touch "$GIVEN_UP"
    if azure leave; then
        log "this node leaves its scale set: the head requests another"
    else
        log "this node stops: the head deletes it and requests another"
        systemctl poweroff
    fi
}

hold_launches() { replace_node; }

stop_filling() { azure put "$STATE_DIR/ended" "$BUCKET_URI/$ENDED_OBJECT"; }

leave_group() {
    log "this node leaves its scale set"
    azure leave
}

put_object() { azure put "$1" "$BUCKET_URI/$2"; }
list_objects() { azure list "$BUCKET_URI/$1"; }
put_folder() {
    PYTHONPATH=$LIB_DIR timeout "$RESULTS_SEC" python3 -m images.node.azure.api put-folder "$1" "$BUCKET_URI/$2"
}

member_key() { azure secret "$MEMBER_KEY"; }
signing_key() { azure secret "$SIGNING_KEY"; }

registry_login() {
    azure registry-token "$IMAGE_REGISTRY" |
        docker login --username 00000000-0000-0000-0000-000000000000 --password-stdin "$IMAGE_REGISTRY"
}

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"; }
