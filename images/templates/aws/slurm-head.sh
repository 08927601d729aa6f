#!/usr/bin/env bash
# The controller's folders, and its accounts where there are any. The state is Slurm's alone, also where it is on the file
# system that jobs see.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
ROOT=${GANGWAY_ROOT:-}
# By which slurm.conf knows it.
hostnamectl set-hostname "$SLURM_HEAD_NAME"
for folder in "$SLURM_STATE_DIR" "$SLURM_STATE_DIR/state" /var/log/slurm /run/gangway-scaler; do
    install -d -m 0700 -o slurm -g slurm "$ROOT$folder"
done
if [ -n "$SLURM_SHARED_DIR" ]; then
    # Everybody's jobs, each in a folder of its owner's.
    install -d -m 1777 -o root -g root "$ROOT$SLURM_SHARED_DIR"
fi
[ -n "$SLURM_ACCOUNTS" ] || exit 0
# slurmdbd refuses one that others may read.
chown slurm:slurm "$ROOT/etc/slurm/slurmdbd.conf"
chmod 0600 "$ROOT/etc/slurm/slurmdbd.conf"
# MariaDB knows the user by the machine's own, over its socket: no password.
systemctl start mariadb.service
mysql --batch <<'SQL'
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';
SQL
