#!/usr/bin/env bash
# Before the daemons begin: a release of Slurm that reads what is written here, their folders, and the configuration where
# daemons and commands look for it, on the controller with the machine's own name in it.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
ROOT=${GANGWAY_ROOT:-}
RUN=$ROOT/run/slurm/conf

release=$(slurmd -V | cut -d' ' -f2) || give_up "slurmd -V fails"
[[ $release =~ ^[0-9]+\.[0-9]+ ]] || give_up "slurmd -V prints no release: $release"
[ "$(printf '22.05\n%s\n' "$release" | sort -V | head -n 1)" = 22.05 ] ||
    give_up "Slurm $release is too old; required: 22.05 or later (Debian 12, Ubuntu 24.04)"
install -d -m 0755 "$RUN" "$ROOT/var/spool/slurmd" "$ROOT/var/log/slurm"
if [ -n "$SLURM_STATE_DIR" ]; then
    # The state is Slurm's alone.
    chown slurm:slurm "$ROOT/var/log/slurm"
    install -d -m 0700 -o slurm -g slurm "$ROOT$SLURM_STATE_DIR" "$ROOT$SLURM_STATE_DIR/state"
fi
for file in "$ROOT"/etc/gangway/slurm/*.conf; do
    sed "s/@HEAD@/${SLURM_HEAD_NAME:-$(hostname -s)}/" "$file" >"$RUN/${file##*/}.new"
    mv "$RUN/${file##*/}.new" "$RUN/${file##*/}"
done
log "slurm $release: this machine is $SLURM_NODE"
