#!/usr/bin/env bash
# Checks that all planned GPUs are healthy, else gives up the node: one bad GPU slows or stops all nodes of the job.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_GPU_DEADLINE_SEC:-120}
DIAG_SEC=${GANGWAY_GPU_DIAG_SEC:-300}
# NVIDIA, "Analyzing Xid Errors with the Xid Catalog" (docs.nvidia.com/deploy/xid-errors, November 2026): those whose
# immediate action is to reset the GPU or to restart the machine, by the GPUs they apply to. Left out is 155, which a link
# that goes to sleep causes as well.
XIDS_OF_ALL='46|48|62|64|79|95|109|119|120|140|158'
XIDS_OF_AMPERE='74'
XIDS_OF_HOPPER='74|110|136|143|151|156'
XIDS_OF_BLACKWELL='110|143|151|156'
# NVLink 5 has one number for what is fatal and what is not, and the line says which.
XIDS_OF_NVLINK5='14[4-9]|150'
# 154 sums up what others need: nothing, or one of these.
RECOVERY='(GPU Reset|Node Reboot) Required|Drain and Reset'

count_gpus() { nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | grep -c '^[0-9]'; }

enough_gpus() { [ "$(count_gpus)" -ge "$GPUS_PLANNED" ]; }

# sick_by NAME OPTIONS...: gives the node up when any value but the first column is neither zero, "No" nor unknown.
sick_by() {
    local name=$1 rows
    shift
    rows=$(nvidia-smi "$@" --format=csv,noheader,nounits) || give_up "nvidia-smi does not answer for $name"
    rows=$(grep -Ei ', *(yes|[1-9][0-9]*)' <<<"$rows") || return 0
    give_up "$name: $rows"
}

# fatal_lines: a pattern of what follows the GPU in the driver's line, by the compute capability of the first GPU.
fatal_lines() {
    local more=$XIDS_OF_AMPERE nvlink5=
    case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1) in
        9.*) more=$XIDS_OF_HOPPER ;;
        1[0-9].*)
            more=$XIDS_OF_BLACKWELL
            nvlink5="|($XIDS_OF_NVLINK5), [A-Z0-9_]+ Fatal "
            ;;
    esac
    echo "(($XIDS_OF_ALL|$more),|154,.* to .*\(($RECOVERY)\)$nvlink5)"
}

# The driver may still be loading when this runs.
retry "$DEADLINE_SEC" enough_gpus || give_up "$(count_gpus) GPUs after $DEADLINE_SEC s, $GPUS_PLANNED planned"
sick_by "rows to remap" --query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure
sick_by "uncorrected ECC errors" --query-gpu=index,ecc.errors.uncorrected.volatile.total
if xids=$(dmesg | grep -E "NVRM: Xid \(.*\): $(fatal_lines)"); then
    give_up "fatal Xid: $xids"
fi
# DCGM's service accepts commands from any process, also the job's: stop it unless it ran before.
ran_before=$(systemctl is-active nvidia-dcgm.service) || ran_before=
if command -v dcgmi >/dev/null && systemctl start nvidia-dcgm.service && dcgmi discovery -l >/dev/null; then
    report=$(timeout "$DIAG_SEC" dcgmi diag -r 1) || give_up "dcgmi diag -r 1: $report"
    [ "$ran_before" = active ] || systemctl stop nvidia-dcgm.service
    log "GPUs: $(count_gpus), dcgmi diag -r 1 passed"
else
    log "GPUs: $(count_gpus), no DCGM: checked ECC, row remapping and Xids"
fi
