# shellcheck shell=bash
# Sourced by every script of the node: its settings, and what more than one of them does.
# shellcheck source=/dev/null
. "${GANGWAY_NODE_ENV:-/etc/gangway/node.env}"
IMDS_URL=${GANGWAY_IMDS_URL:-http://169.254.169.254}
POLL_SEC=${GANGWAY_POLL_SEC:-5}

log() { printf 'gangway: %s\n' "$*" >&2; }

# imds PATH: one item of instance metadata (IMDSv2); fails where there is no such item.
imds() {
    local token
    token=$(curl -fsS --max-time 2 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$IMDS_URL/latest/api/token") &&
        curl -fs --max-time 2 -H "X-aws-ec2-metadata-token: $token" "$IMDS_URL/latest/meta-data/$1"
}

# lifecycle_ends: the node's Auto Scaling group wants it to go.
lifecycle_ends() { [ "$(imds autoscaling/target-lifecycle-state)" = Terminated ]; }

# leaving: the node is about to go, for its group or for a spot interruption.
leaving() { lifecycle_ends || imds spot/instance-action >/dev/null; }

# retry SECONDS COMMAND...: until COMMAND succeeds; fails when SECONDS have passed.
retry() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep "$POLL_SEC"
    done
}

# give_up REASON: this node will not train. Its Auto Scaling group is told to replace it, and preparation ends here. A
# head node has no group; systemd tries again.
give_up() {
    local instance
    if [ "$ROLE" = head ]; then
        log "not ready: $1"
        exit 1
    fi
    log "giving this node up: $1"
    if instance=$(imds instance-id) && aws autoscaling set-instance-health --region "$REGION" \
        --instance-id "$instance" --health-status Unhealthy --no-should-respect-grace-period; then
        log "$instance is marked unhealthy, its group replaces it"
    else
        log "could not mark this node unhealthy: terminate it by hand, it costs money and does nothing"
    fi
    exit 1
}
