LIB_DIR=$(dirname "${BASH_SOURCE[0]}")/../lib
export ROOT=${GANGWAY_ROOT:-}

export METADATA_IPV4='169.254.169.254' METADATA_IPV6='fe80::a9fe:a9fe'

swift() { PYTHONPATH=$LIB_DIR python3 -m images.node.openstack.api "$@"; }

leaving() { [ "$(systemctl is-system-running)" = stopping ]; }

own_capacity() { :; }

made_for_job() { [ "$ROLE" = worker ]; }
group_waits() { false; }
let_go() { :; }

send_event() { :; }

replace_node() {
    log "this node stops: only the next pulumi up replaces it"
    systemctl poweroff
}

stop_filling() { :; }

leave_group() {
    log "this node stops; it stays allocated until pulumi destroy"
    systemctl poweroff
}

put_object() { swift put "$1" "$BUCKET_URI/$2"; }
put_folder() {
    PYTHONPATH=$LIB_DIR timeout "$RESULTS_SEC" python3 -m images.node.openstack.api put-folder "$1" "$BUCKET_URI/$2"
}

member_key() { swift secret member_key; }
signing_key() { swift secret signing_key; }

registry_login() { :; }

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"; }
