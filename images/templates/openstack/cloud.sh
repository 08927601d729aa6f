# shellcheck shell=bash
# OpenStack's functions for common.sh: no groups, no interruption notices, no log service. images/node uploads to the object
# store.
LIB_DIR=$(dirname "${BASH_SOURCE[0]}")/../lib
export ROOT=${GANGWAY_ROOT:-}

# close-metadata.sh: Nova's metadata service; over IPv6 as well.
export METADATA_IPV4='169.254.169.254' METADATA_IPV6='fe80::a9fe:a9fe'

# swift COMMAND...: see images/node/openstack/api.py.
swift() { PYTHONPATH=$LIB_DIR python3 -m gangway.images.node.openstack.api "$@"; }

# Because the machine shuts down: `up` stops an instance before it deletes it.
leaving() { [ "$(systemctl is-system-running)" = stopping ]; }

# Nothing is taken back, so the record prices every node alike.
own_capacity() { :; }

made_for_job() { [ "$ROLE" = worker ]; }
group_waits() { false; }
let_go() { :; }

send_event() { :; }

# An idle node should not look busy. Only `pulumi up` replaces it.
replace_node() {
    log "this node stops: only the next pulumi up replaces it"
    systemctl poweroff
}

# Nothing adds nodes.
stop_filling() { :; }

# A machine may not delete itself: its credential opens the object store alone.
leave_group() {
    log "this node stops; it stays allocated until pulumi destroy"
    systemctl poweroff
}

put_object() { swift put "$1" "$BUCKET_URI/$2"; }
put_folder() {
    PYTHONPATH=$LIB_DIR timeout "$RESULTS_SEC" python3 -m gangway.images.node.openstack.api put-folder "$1" "$BUCKET_URI/$2"
}

member_key() { swift secret member_key; }
signing_key() { swift secret signing_key; }

# The image is in a registry that the machines can read as they are.
registry_login() { :; }
