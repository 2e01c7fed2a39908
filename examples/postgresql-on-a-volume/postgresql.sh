#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Start and stop the PostgreSQL whose data is on the volume; run as the user that owns the data.
#
#   failover-postgresql start        start it, return once it takes connections
#   failover-postgresql stop         stop it: fast, then at once
#   failover-postgresql is-running   exit 0: it takes connections; 1: it does not run; 3: neither
#   failover-postgresql is-stopped   exit 0: it does not run; 1: it does
#   failover-postgresql check        look for damaged tables and indexes with pg_amcheck (14 and
#                                    newer, Debian: in postgresql-VERSION); exit 0: there are none
#
# In a rehearsal (FAILOVER_REHEARSAL=yes) it archives no WAL, and check installs what it needs.
#
# Every verb may be repeated. Other exit codes: 2 usage, 3 refused (nothing was touched), 4 it failed.
#
# Environment:
#   VOLUME_MOUNT, VOLUME_MODE  as of failover-volume
#   PGDATA      the data directory (default VOLUME_MOUNT/data)
#   PG_BIN      where initdb, pg_ctl and the others are (default: in /usr/lib/postgresql those of
#               the version that the data is of, for a new database the newest)
#   PG_INIT     yes: make a new database cluster where there is none; default: that is refused
#   PG_OPTIONS  further options of the server, as in "-c listen_addresses=10.0.0.5"
#   PG_SOCKETS  folder of its socket (default /var/run/postgresql)
#   PGPORT      (default 5432)
#   PG_LIMIT    seconds that a start, and each way to stop, may take (default 60)
set -eu
export LC_ALL=C

mount=${VOLUME_MOUNT:-/srv/data}
PGDATA=${PGDATA:-$mount/data}
PGPORT=${PGPORT:-5432}
sockets=${PG_SOCKETS:-/var/run/postgresql}
limit=${PG_LIMIT:-60}
export PGDATA PGPORT

say() { printf '%s\n' "$*" >&2; }
refuse() { say "refused: $*"; exit 3; }
fail() { say "failed: $*"; exit 4; }

# Without the volume the mount point is a directory of the machine's own disk: a database made there
# would be another one.
is_mounted() {
    if [ "${VOLUME_MODE:-}" = directory ]; then
        [ -L "$mount" ] && [ -d "$mount" ]
    else
        mountpoint -q "$mount"
    fi
}

# The process that runs on this data on this machine now. The server changes into its data directory
# before it writes its id there. So a file from another host, or with the id of another process, is
# distinguished from that of a running server.
server() {
    [ -r "$PGDATA/postmaster.pid" ] || return 1
    read -r pid <"$PGDATA/postmaster.pid" || return 1
    case $pid in '' | *[!0-9]*) return 1 ;; esac
    [ "/proc/$pid/cwd" -ef "$PGDATA" ] || return 1
}

# A directory that cannot be read cannot be reported as stopped. (A missing one can.)
is_open() {
    [ ! -e "$PGDATA" ] || [ -x "$PGDATA" ] || refuse "$(id -un) may not look into $PGDATA"
}

# The programs are needed only to start a server, or if one runs: a machine without the volume, or
# without PostgreSQL, counts as stopped.
find_programs() {
    of='*'
    [ ! -r "$PGDATA/PG_VERSION" ] || read -r of <"$PGDATA/PG_VERSION" || of='*'
    # Unquoted, for the pattern.
    bin=${PG_BIN:-$(ls -d /usr/lib/postgresql/$of/bin 2>/dev/null | sort -t/ -k5 -V | tail -n 1)}
    [ "$of" = '*' ] && of='' || of=" $of"
    [ -x "${bin:-}/pg_ctl" ] || refuse "there is no PostgreSQL$of on this machine; set PG_BIN"
}

takes_connections() {
    "$bin/pg_isready" --quiet --host="$sockets" --timeout=3
}

make_cluster() {
    [ "${PG_INIT:-}" = yes ] || refuse "there is no database in $PGDATA, and PG_INIT is not yes"
    if [ -d "$PGDATA" ]; then
        rmdir "$PGDATA" || refuse "$PGDATA has no database in it, and is not empty"
    fi
    # Under another name until it is complete: after a kill half way, a repeat starts over.
    rm -rf "$PGDATA.new"
    "$bin/initdb" --pgdata="$PGDATA.new" --auth=peer --encoding=UTF8 >&2
    mv "$PGDATA.new" "$PGDATA"
}

start() {
    is_mounted || refuse "no volume is mounted at $mount"
    find_programs
    [ -f "$PGDATA/PG_VERSION" ] || make_cluster
    [ "${FAILOVER_REHEARSAL:-}" != yes ] || PG_OPTIONS="${PG_OPTIONS:-} -c archive_mode=off"
    if ! server; then
        rm -f "$PGDATA/postmaster.pid"
        unset FAILOVER_COMMAND_ID # the server is not the command, and outlives it
        "$bin/pg_ctl" start --silent --wait --timeout="$limit" --log="$PGDATA/server.log" \
            --options="-c unix_socket_directories=$sockets ${PG_OPTIONS:-}" >&2 ||
            fail "it did not start within $limit s: $(tail -n 3 "$PGDATA/server.log" 2>&1)"
    fi
    left=$limit # it may still be in crash recovery
    until takes_connections; do
        [ "$left" -gt 0 ] || fail "it runs, and takes no connections within $limit s"
        server || fail "it ended: $(tail -n 3 "$PGDATA/server.log" 2>&1)"
        left=$((left - 1))
        sleep 1
    done
}

stop() {
    is_open
    for mode in fast immediate; do
        server || return 0
        find_programs
        "$bin/pg_ctl" stop --silent --mode=$mode --wait --timeout="$limit" >&2 || true
    done
    ! server || fail "process $pid did not stop"
}

check() {
    server || fail "it does not run"
    find_programs
    [ -x "$bin/pg_amcheck" ] || refuse "there is no pg_amcheck in $bin"
    set -- --host="$sockets" --all
    [ "${FAILOVER_REHEARSAL:-}" != yes ] || set -- "$@" --install-missing
    "$bin/pg_amcheck" "$@"
}

case "${1:-}" in
start) start ;;
stop) stop ;;
is-running)
    server || exit 1
    find_programs
    takes_connections || exit 3
    ;;
is-stopped)
    is_open
    ! server
    ;;
check) check ;;
*)
    say "usage: $0 start|stop|is-running|is-stopped|check"
    exit 2
    ;;
esac
