#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
ROOT=${GANGWAY_ROOT:-}
hostnamectl set-hostname "$SLURM_HEAD_NAME"
for folder in "$SLURM_STATE_DIR" "$SLURM_STATE_DIR/state" /var/log/slurm /run/gangway-scaler; do
    install -d -m 0700 -o slurm -g slurm "$ROOT$folder"
done
if [ -n "$SLURM_SHARED_DIR" ]; then
    install -d -m 1777 -o root -g root "$ROOT$SLURM_SHARED_DIR"
fi
[ -n "$SLURM_ACCOUNTS" ] || exit 0
chown slurm:slurm "$ROOT/etc/slurm/slurmdbd.conf"
chmod 0600 "$ROOT/etc/slurm/slurmdbd.conf"
systemctl start mariadb.service

restore() {
    zcat "$1" | mysql slurm_acct_db &&
        mysql --batch --skip-column-names --execute="
            SELECT CONCAT('ALTER TABLE \`', table_name, '\` AUTO_INCREMENT=', auto_increment + 1000000, ';')
            FROM information_schema.tables
            WHERE table_schema = 'slurm_acct_db' AND table_name LIKE '%\_job\_table'" | mysql slurm_acct_db
}

create_empty() { mysql --execute='DROP DATABASE IF EXISTS slurm_acct_db; CREATE DATABASE slurm_acct_db'; }

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
            create_empty
            kept=$dump.unusable-$(date -u +%Y%m%dT%H%M%SZ)
            mv "$dump" "$kept"
            log "accounting starts empty: cannot restore $kept"
        fi
    fi
fi
mysql --batch <<'SQL'
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';
SQL
