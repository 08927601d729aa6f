#!/usr/bin/env bash
# Writes counters of EFA and of Lustre's client, which node_exporter does not read, to a file for its textfile collector.
set -euo pipefail
ROOT=${GANGWAY_ROOT:-}
FOLDER=$ROOT/run/gangway-counters
shopt -s nullglob

# efa_counters: other adapters have no port counter rx_drops.
efa_counters() {
    local drops
    for drops in "$ROOT"/sys/class/infiniband/*/ports/*/hw_counters/rx_drops; do
        awk '{
            n = split(FILENAME, path, "/")
            if (path[n] != "lifespan")
                printf "gangway_efa_%s_total{device=\"%s\",port=\"%s\"} %s\n", path[n], path[n-4], path[n-2], $1
        }' "${drops%/*}"/*
    done
}

# lustre_files PATTERN: up to 2.10 Lustre has them in proc, later in sysfs or debugfs.
lustre_files() {
    local tree
    for tree in proc/fs sys/fs sys/kernel/debug; do
        compgen -G "$ROOT/$tree/lustre/$1" || true
    done
}

# lustre_counters: lines are NAME COUNT samples [UNIT] MIN MAX SUM; [regs] has no sum.
lustre_counters() {
    local file
    for file in $(lustre_files 'llite/*/stats'); do
        awk '
            FNR == 1 {
                n = split(FILENAME, path, "/")
                name = path[n-1]
                sub(/-[^-]*$/, "", name)
            }
            $3 != "samples" { next }
            $4 == "[bytes]" {
                printf "gangway_lustre_%s_total{file_system=\"%s\"} %s\n", $1, name, $7
                next
            }
            { labels = sprintf("{file_system=\"%s\",operation=\"%s\"}", name, $1) }
            { printf "gangway_lustre_operations_total%s %s\n", labels, $2 }
            $4 ~ /^\[usecs?\]$/ { printf "gangway_lustre_operation_seconds_total%s %.6f\n", labels, $7 / 1e6 }
        ' "$file"
    done
    # IDLE: nothing was needed from this server for a while.
    for file in $(lustre_files 'osc/*/ost_server_uuid') $(lustre_files 'mdc/*/mds_server_uuid'); do
        awk '{
            sub(/_UUID$/, "", $1)
            printf "gangway_lustre_connected{target=\"%s\"} %d\n", $1, $2 == "FULL" || $2 == "IDLE"
        }' "$file"
    done
}

{
    efa_counters
    lustre_counters
} | sort >"$FOLDER/partial"
mv "$FOLDER/partial" "$FOLDER/counters.prom"
