#!/usr/bin/env bash
# Installs Slurm and munge from Ubuntu, and fetches the cluster's munge key at each boot, so that a new key takes effect.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=slurm-cloud.sh
. "$(dirname "$0")/slurm-cloud.sh"
DEADLINE_SEC=${GANGWAY_SLURM_DEADLINE_SEC:-900}
ROOT=${GANGWAY_ROOT:-}

# Our units start the daemons once their files exist.
install_slurm() {
    local packages
    read -ra packages <<<"$SLURM_PACKAGES"
    # Of a machine image: installing again would take newer ones than the controller's.
    dpkg-query -s "${packages[@]}" >/dev/null 2>&1 && return
    systemctl mask slurmd.service slurmctld.service slurmdbd.service &&
        apt-get -q -o DPkg::Lock::Timeout=120 update &&
        DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 --no-install-recommends install \
            "${packages[@]}"
}

# munged refuses a key of fewer bytes.
fetch_key() { munge_key >"$key.new" && [ "$(stat -c %s "$key.new")" -ge 32 ]; }

retry "$DEADLINE_SEC" install_slurm || give_up "cannot install $SLURM_PACKAGES within $DEADLINE_SEC s"
# A machine image has all above; the rest is of each boot.
key=$ROOT/etc/munge/munge.key
umask 077
retry "$DEADLINE_SEC" fetch_key || give_up "cannot read $MUNGE_KEY: missing, unreachable or not allowed"
chown munge:munge "$key.new"
mv "$key.new" "$key"
umask 022
systemctl restart munge.service || give_up "munge does not start"
# The users who run jobs, with the same UIDs on all machines.
for user in $SLURM_USERS; do
    name=${user%:*} uid=${user#*:}
    id "$name" >/dev/null 2>&1 || useradd --uid "$uid" --create-home --shell /bin/bash "$name" ||
        give_up "cannot create user $name with UID $uid"
    [ "$(id -u "$name")" = "$uid" ] || give_up "user $name of the image does not have UID $uid"
done
mkdir -p "$ROOT/var/spool/slurmd" "$ROOT/var/log/slurm"
log "slurm: installed $SLURM_PACKAGES"
