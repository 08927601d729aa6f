# shellcheck shell=bash
# Google Cloud's functions for common.sh: metadata server, managed instance group, Cloud Logging, Cloud Storage, Artifact
# Registry; images/node makes the calls.
METADATA_URL=${GANGWAY_METADATA_URL:-http://169.254.169.254}
export GANGWAY_METADATA_URL=$METADATA_URL
LIB_DIR=$(dirname "${BASH_SOURCE[0]}")/../lib
ROOT=${GANGWAY_ROOT:-}
# mount-scratch.sh: which disks are the machine's own. No image of Google's or Canonical's mounts them.
export SCRATCH_DISKS='google-local-nvme-ssd-*' IMAGE_SCRATCH=

# close-metadata.sh: the metadata server, which is the resolver too; over IPv6 as well.
export METADATA_IPV4='169.254.169.254' METADATA_IPV6='fd20:ce::254'

# metadata PATH: one item; fails if it is missing.
metadata() { curl -fs --max-time 2 -H 'Metadata-Flavor: Google' "$METADATA_URL/computeMetadata/v1/$1"; }

# gce COMMAND...: see images/node/gcp/api.py.
gce() { PYTHONPATH=$LIB_DIR python3 -m gangway.images.node.gcp.api "$@"; }

# Preempted, shutting down (a group deletes its instances without notice), or asked to leave.
leaving() {
    [ "$(metadata instance/preempted)" = TRUE ] || [ "$(systemctl is-system-running)" = stopping ] || asked_to_leave
}

# asked_to_leave: by its group, with the tag that images/node/gcp/notices.py watches.
asked_to_leave() { [ -n "$IN_GROUP" ] && [[ "$(metadata instance/tags)" == *'"gangway-leave"'* ]]; }

own_capacity() {
    case $(metadata instance/scheduling/preemptible) in
        TRUE) echo spot ;;
        FALSE) echo on-demand ;;
    esac
}

made_for_job() { [ "$ROLE" = worker ]; }
# A node that is asked to leave does so once the trainer has saved.
group_waits() { asked_to_leave; }
let_go() { leave_group; }

send_event() { gce event "$PROJECT" "$LOG_GROUP" "$@"; }

# A machine that may not call its group stops, and the group recreates it. Flex-start instances may not be repaired: the head
# fills the rung below. A TPU host is in no group.
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

# While held.json exists, the head fills no group; this node leaves for good, since a group would keep its size.
hold_launches() {
    leave_group || { log "this node stops, but its group recreates it: set the group's size to 0" && systemctl poweroff; }
}

# The head fills groups until this object exists.
stop_filling() { gce put "$STATE_DIR/ended" "$BUCKET_URI/$ENDED_OBJECT"; }

# One host deletes the queued resource, and with it all slices of the job.
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

# tpu_env NAME: a value of a TPU host's metadata `tpu-env`, which is YAML with one 'quoted' value a line.
tpu_env() { sed -n "s/^$1: *'\{0,1\}\([^']*\)'\{0,1\} *\$/\1/p" <<<"$TPU_ENV"; }

# first_host: this is the first host of the first slice, where all meet.
first_host() {
    TPU_ENV=${TPU_ENV:-$(metadata instance/attributes/tpu-env)} && [ "$(tpu_env WORKER_ID)" = 0 ] &&
        { [ "$NUM_SLICES" = 1 ] || [ "$(tpu_env MEGASCALE_SLICE_ID)" = 0 ]; }
}

put_object() { gce put "$1" "$BUCKET_URI/$2"; }
list_objects() { gce list "$BUCKET_URI/$1"; }
put_folder() {
    PYTHONPATH=$LIB_DIR timeout "$RESULTS_SEC" python3 -m gangway.images.node.gcp.api put-folder "$1" "$BUCKET_URI/$2"
}

member_key() { gce secret "$MEMBER_KEY"; }
signing_key() { gce secret "$SIGNING_KEY"; }

# login_at HOST: to a registry, as this machine's service account.
login_at() { gce token | docker login --username oauth2accesstoken --password-stdin "https://$1"; }

registry_login() { login_at "$IMAGE_REGISTRY"; }

# apt_source NAME KEY_URL WHERE [OPTIONS [FINGERPRINT]]: adds a repository; WHERE is a line of sources.list from its address
# on. Google's own repositories have no fixed FINGERPRINT: their keys change every few years.
apt_source() {
    apt_key "$1" "$2" "${5:-}" &&
        echo "deb [signed-by=$ROOT/usr/share/keyrings/$1.gpg${4:+ $4}] $3" >"$ROOT/etc/apt/sources.list.d/$1.list"
}

# apt_source_of_google NAME WHERE [OPTIONS]: the same for a repository of Google's that requires authentication, for which apt
# needs a package.
apt_source_of_google() {
    apt_source artifact-registry https://packages.cloud.google.com/apt/doc/apt-key.gpg \
        "https://packages.cloud.google.com/apt apt-transport-artifact-registry-stable main" &&
        apt_get update && apt_get install apt-transport-artifact-registry &&
        apt_source "$1" https://us-apt.pkg.dev/doc/repo-signing-key.gpg "ar+https://us-apt.pkg.dev/projects/$2" "${3:-}"
}

# codename: of this Ubuntu.
codename() {
    # shellcheck source=/dev/null
    (. "$ROOT/etc/os-release" && echo "$VERSION_CODENAME")
}
