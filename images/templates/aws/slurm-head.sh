#!/usr/bin/env bash
# The controller's folders, and its accounting database where it has one: a new one gets what the last head saved
# (slurm-save.sh). The state is Slurm's alone, also where it is on the file system that jobs see.
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
systemctl start mariadb.service

# restore DUMP: what an earlier head saved. Jobs that it numbered after its last save are still known to slurmctld by those
# numbers in the database, so new jobs get numbers far beyond them.
restore() {
    zcat "$1" | mysql slurm_acct_db &&
        mysql --batch --skip-column-names --execute="
            SELECT CONCAT('ALTER TABLE \`', table_name, '\` AUTO_INCREMENT=', auto_increment + 1000000, ';')
            FROM information_schema.tables
            WHERE table_schema = 'slurm_acct_db' AND table_name LIKE '%\_job\_table'" | mysql slurm_acct_db
}

create_empty() { mysql --execute='DROP DATABASE IF EXISTS slurm_acct_db; CREATE DATABASE slurm_acct_db'; }

# slurmdbd's user is created last: until then, what is in the database is a restore that was cut short.
ready=$(mysql --batch --skip-column-names --execute="
    SELECT EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = 'slurm_acct_db')
        AND EXISTS (SELECT 1 FROM mysql.user WHERE user = 'slurm')")
dump=$ROOT$SLURM_ACCOUNTING_DUMP
if [ "$ready" = 0 ]; then
    create_empty
    if [ -n "$SLURM_ACCOUNTING_DUMP" ] && [ -e "$dump" ]; then
        if restore "$dump"; then
            log "accounting restored from $(date -ur "$dump" +%FT%TZ)"
        else
            # If MariaDB or the file system is at fault, one of these fails: systemd tries again, and the dump stays.
            create_empty
            kept=$dump.unusable-$(date -u +%Y%m%dT%H%M%SZ)
            mv "$dump" "$kept"
            log "accounting starts empty: cannot restore $kept"
        fi
    fi
fi
# MariaDB knows the user by the machine's own, over its socket: no password.
mysql --batch <<'SQL'
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';
SQL
