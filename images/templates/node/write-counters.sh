#!/usr/bin/env bash
# Writes counters of EFA and of Lustre's client, which node_exporter does not read, to a file for its textfile collector.
set -euo pipefail
shopt -s nullglob
cd "${GANGWAY_ROOT:-}/"
# EFA's adapters have these names; their lifespan is a setting. Up to 2.10 Lustre has its files in proc, later in sysfs or
# debugfs. Lines are: EFA's one number; TARGET_UUID STATE, which is IDLE if the server is not needed; NAME COUNT samples
# [UNIT] MIN MAX SUM.
awk '
    function put(metric, labels, value) { printf "gangway_%s{%s\"} %s\n", metric, labels, value }
    {
        n = split(FILENAME, path, "/")
        name = path[n-1]
        sub(/-[^-]*$/, "", name)
        name = "file_system=\"" name
    }
    NF == 1 { put("efa_" path[n] "_total", "device=\"" path[n-4], $1) }
    sub(/_UUID$/, "", $1) { put("lustre_connected", "target=\"" $1, $2 ~ /FULL|IDLE/) }
    /bytes]/ { put("lustre_" $1 "_total", name, $7) }
    /\[usec/ {
        name = name "\",operation=\"" $1
        put("lustre_operations_total", name, $2)
        put("lustre_operation_microseconds_total", name, $7)
    }
' /dev/null sys/class/infiniband/{rdmap,efa_}*/ports/1/hw_counters/[!l]* \
    {proc/fs,sys/fs,sys/kernel/debug}/lustre/{llite/*/stats,{osc,mdc}/*/*_server_uuid} >run/gangway-counters/partial
mv run/gangway-counters/{partial,counters.prom}
