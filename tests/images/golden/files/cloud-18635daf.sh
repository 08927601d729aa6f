METADATA_URL=${GANGWAY_METADATA_URL:-http://169.254.169.254}
export GANGWAY_METADATA_URL=$METADATA_URL
LIB_DIR=$(dirname "${BASH_SOURCE[0]}")/../lib
ROOT=${GANGWAY_ROOT:-}
export SCRATCH_DISKS='google-local-nvme-ssd-*' IMAGE_SCRATCH=

export METADATA_IPV4='169.254.169.254' METADATA_IPV6='fd20:ce::254'

metadata() { curl -fs --max-time 2 -H 'Metadata-Flavor: Google' "$METADATA_URL/computeMetadata/v1/$1"; }

gce() { PYTHONPATH=$LIB_DIR python3 -m images.node.gcp.api "$@"; }

leaving() {
    [ "$(metadata instance/preempted)" = TRUE ] || [ "$(systemctl is-system-running)" = stopping ] || asked_to_leave
}

asked_to_leave() { [ -n "$IN_GROUP" ] && [[ "$(metadata instance/tags)" == *'"gangway-leave"'* ]]; }

own_capacity() {
    case $(metadata instance/scheduling/preemptible) in
        TRUE) echo spot ;;
        FALSE) echo on-demand ;;
    esac
}

made_for_job() { [ "$ROLE" = worker ]; }
group_waits() { asked_to_leave; }
let_go() { leave_group; }

send_event() { gce event "$PROJECT" "$LOG_GROUP" "$@"; }

replace_node() {
    if [ -z "$IN_GROUP" ]; then
        log "a single host of a slice is not replaced: checked again within 30 minutes"
    elif gce replace; then
        log "the group recreates this node"
    else
        log "this node stops: its group recreates it, except a flex-start group, which shrinks by one"
        systemctl poweroff
    fi
}

hold_launches() {
    leave_group || { log "this node stops, but its group recreates it: set the group's size to 0" && systemctl poweroff; }
}

stop_filling() { gce put "$STATE_DIR/ended" "$BUCKET_URI/$ENDED_OBJECT"; }

leave_group() {
    if [ -n "$IN_GROUP" ]; then
        log "this node leaves its group"
        gce leave
    elif first_host; then
        log "deleting $QUEUED_RESOURCE with its slices"
        gce release "$QUEUED_RESOURCE"
    else
        log "the first host deletes the slices, with this host"
    fi
}

tpu_env() { sed -n "s/^$1: *'\{0,1\}\([^']*\)'\{0,1\} *\$/\1/p" <<<"$TPU_ENV"; }

first_host() {
    TPU_ENV=${TPU_ENV:-$(metadata instance/attributes/tpu-env)} && [ "$(tpu_env WORKER_ID)" = 0 ] &&
        { [ "$NUM_SLICES" = 1 ] || [ "$(tpu_env MEGASCALE_SLICE_ID)" = 0 ]; }
}

put_object() { gce put "$1" "$BUCKET_URI/$2"; }
list_objects() { gce list "$BUCKET_URI/$1"; }
put_folder() {
    PYTHONPATH=$LIB_DIR timeout "$RESULTS_SEC" python3 -m images.node.gcp.api put-folder "$1" "$BUCKET_URI/$2"
}

member_key() { gce secret "$MEMBER_KEY"; }
signing_key() { gce secret "$SIGNING_KEY"; }

login_at() { gce token | docker login --username oauth2accesstoken --password-stdin "https://$1"; }

registry_login() { login_at "$IMAGE_REGISTRY"; }

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"; }

apt_source() {
    apt_key "$1" "$2" "${5:-}" &&
        echo "deb [signed-by=$ROOT/usr/share/keyrings/$1.gpg${4:+ $4}] $3" >"$ROOT/etc/apt/sources.list.d/$1.list"
}

apt_source_of_google() {
    apt_source artifact-registry https://packages.cloud.google.com/apt/doc/apt-key.gpg \
        "https://packages.cloud.google.com/apt apt-transport-artifact-registry-stable main" &&
        apt_get update && apt_get install apt-transport-artifact-registry &&
        apt_source "$1" https://us-apt.pkg.dev/doc/repo-signing-key.gpg "ar+https://us-apt.pkg.dev/projects/$2" "${3:-}"
}

codename() {
    (. "$ROOT/etc/os-release" && echo "$VERSION_CODENAME")
}
