#!/usr/bin/env bash
# The services of compose.yaml as plain processes: docker/run_local.sh [DATA ROOT [PORT]]
#
# Ctrl-C, SIGTERM or a closed terminal stops all of them. A service that dies is named and restarted, as in compose.
# Without DAGSTER_PG_HOST, the script runs its own PostgreSQL on a free port, with its files in
# DATA ROOT/dagster/server/postgres.
set -euo pipefail
bin=${CORPUSMILL_BIN:-$(cd "$(dirname "$0")/.." && pwd)/.venv/bin}
docker=$(cd "$(dirname "$0")" && pwd)
port=${2:-3000}
usage="usage: run_local.sh [DATA ROOT [PORT]]"
max_deaths=5  # of one service within five minutes; after that, all services stop

fail() { echo "run_local.sh: $*" >&2; exit 1; }
free_port() { "$bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# Each service has its own session: Ctrl-C does not reach it before `stop` does, and a signal reaches its children, too.
# alone SIGNAL COMMAND…: on Linux, the service gets SIGNAL if this script dies without `stop`, as after SIGKILL.
alone() { exec "$bin/python" -c 'import ctypes, os, signal, sys
os.setsid(); signal.signal(signal.SIGINT, signal.SIG_DFL)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.Signals["SIG" + sys.argv[2]])  # PR_SET_PDEATHSIG
    if os.getppid() != int(sys.argv[1]): sys.exit(1)
os.execvp(sys.argv[3], sys.argv[3:])' $$ "$@"; }
# PostgreSQL refuses to run as root. A change of the user clears the signal of `alone`.
as_postgres=(env)
[ "$(id -u)" != 0 ] || as_postgres=(setpriv --reuid=postgres --regid=postgres --init-groups --pdeathsig=INT)
postgres_program() {
    command -v "$1" || find /usr/lib/postgresql -path "*/bin/$1" 2> /dev/null | sort -V | tail -n 1 | grep . \
        || fail "$1 not found; install PostgreSQL (apt: postgresql), or set DAGSTER_PG_HOST"
}

case ${1:-} in
    -h | --help) echo "$usage"; exit ;;
    -*) fail "no option $1; $usage" ;;
esac
[ $# -le 2 ] || fail "expected at most two arguments, got $#; $usage"
[[ $port =~ ^[0-9]{1,5}$ ]] && [ "$((10#$port))" -ge 1 ] && [ "$((10#$port))" -le 65535 ] \
    || fail "PORT must be from 1 to 65535, got $port; $usage"
[ -x "$bin/dagster-daemon" ] || fail "$bin/dagster-daemon not found; run make demo, or set CORPUSMILL_BIN"
"$bin/python" -c 'import dagster_postgres' 2> /dev/null || fail "dagster-postgres not found; $bin/pip install -c constraints.txt -e '.[postgres]'"
export PYTHONSAFEPATH=1  # `python -m` imports nothing from the current folder, such as a gql.py of the user
problem=$("$bin/python" -c 'import os, sys, pathlib
from pipeline_assets.commands.settings import invalid_settings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.sealed_folder import raise_if_artifact
try:
    raise_if_artifact(pathlib.Path(sys.argv[1]), "pass another folder")
    sys.exit("; ".join(f"{error}; correct it" for error in invalid_settings(os.environ)) or 0)
except UsageError as error:
    sys.exit(str(error))' "${1:-data}" 2>&1) || fail "$(tail -n 1 <<< "$problem")"
problem=$(mkdir -p "${1:-data}/dagster/server" 2>&1) || fail "$problem; pass a data root that you may write"
data=$(cd "${1:-data}" && pwd)
home=$data/dagster/server
exec 8>> "$home/lock"  # the services inherit this lock
chmod 600 "$home/lock"  # another user who may read it could lock it
flock -n 8 || {
    ! ps -p "$(cat "$home/lock")" > /dev/null 2>&1 || fail "another run_local.sh serves $data; stop it, or choose another data root"
    echo "waiting for the services of a script that was killed …"
    flock -w 60 8 || fail "services of a script that was killed still run; stop them: kill $(cat "$home"/*.pid | xargs)"
}
echo $$ > "$home/lock"
"$bin/python" -c 'import socket, sys; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))' "$port" 2> /dev/null || fail "port $port is not free; pass another: run_local.sh $data PORT"
cp "$docker/dagster.yaml" "$home/"
echo 'load_from: [{grpc_server: {socket: {env: CORPUSMILL_CODE_SOCKET}, location_name: pipeline}}]' > "$home/workspace.yaml"
export CORPUSMILL_DATA=$data CORPUSMILL_SERVER_LOGS=$data/dagster DAGSTER_HOME=$home PYTHONWARNINGS=ignore
TMPDIR=$(mktemp -d)  # private: a code server runs any caller's code, so other users must not reach its sockets
export TMPDIR CORPUSMILL_CODE_SOCKET=$TMPDIR/code
export DAGSTER_GRPC_TIMEOUT_SECONDS=${DAGSTER_GRPC_TIMEOUT_SECONDS:-300} DAGSTER_DAEMON_HEARTBEAT_TOLERANCE=600
export DAGSTER_BACKFILL_RETRY_DEFINITION_CHANGED_ERROR=1
export PATH=$bin:$PATH

names=(code webserver daemon)
if [ -z "${DAGSTER_PG_HOST:-}" ]; then
    names=(postgres "${names[@]}")
    server=$(postgres_program postgres)
    export DAGSTER_PG_HOST=127.0.0.1 DAGSTER_PG_PORT DAGSTER_PG_DB=postgres DAGSTER_PG_USER=dagster DAGSTER_PG_PASSWORD
    DAGSTER_PG_PORT=$(free_port)
    if [ ! -s "$home/password" ]; then
        (umask 077 && "$bin/python" -c 'import secrets; print(secrets.token_hex(16))' > "$home/password")
    fi
    DAGSTER_PG_PASSWORD=$(cat "$home/password")
    if [ ! -f "$home/postgres/PG_VERSION" ]; then
        rm -rf "$home/postgres" "$home/postgres.new" && mkdir -m 700 "$home/postgres.new"
        [ "$(id -u)" != 0 ] || chown postgres "$home/postgres.new" "$home/password"
        "${as_postgres[@]}" "$(postgres_program initdb)" -D "$home/postgres.new" -U dagster -A scram-sha-256 \
            --pwfile="$home/password" > /dev/null || fail "initdb failed in $home; its user needs access to the folder"
        mv "$home/postgres.new" "$home/postgres"  # so that an interrupted creation leaves no database that cannot start
    fi
else
    : "${DAGSTER_PG_DB:?}" "${DAGSTER_PG_USER:?}" "${DAGSTER_PG_PASSWORD:?}" "${DAGSTER_PG_PORT:=5432}"
    export DAGSTER_PG_PORT
fi

pids=() deaths=() since=() guard=
lock_database() {  # PostgreSQL releases the lock when this process ends, at the latest with the script
    "$bin/python" -c 'import os, sys, time, psycopg2
address = {name: os.environ["DAGSTER_PG_" + name.upper()] for name in ("host", "port", "user", "password")}
database = psycopg2.connect(dbname=os.environ["DAGSTER_PG_DB"], connect_timeout=10, **address)
database.autocommit, cursor = True, database.cursor()
cursor.execute("select pg_try_advisory_lock(1668248176)")
print(cursor.fetchone()[0], flush=True)
while os.getppid() == int(sys.argv[1]): time.sleep(1)' $$ > "$home/database" 2> /dev/null &
    guard=$!
    until [ -s "$home/database" ] || ! kill -0 "$guard" 2> /dev/null; do sleep 0.1; done
    [ "$(cat "$home/database")" != False ] || fail "another run_local.sh uses database $DAGSTER_PG_DB of \
$DAGSTER_PG_HOST:$DAGSTER_PG_PORT; stop it, or give each data root a database of its own"
}
free_database() {
    [ -z "$guard" ] || { kill "$guard" && wait "$guard"; } 2> /dev/null || true
    guard=
}
start() {  # start the service at a position of `names`
    case ${names[$1]} in
        postgres) alone INT "${as_postgres[@]}" "$server" -D "$home/postgres" -p "$DAGSTER_PG_PORT" -c listen_addresses=127.0.0.1 \
            -c unix_socket_directories= -c log_min_messages=fatal & ;;
        code) alone TERM sh -c 'now=$(date +%s); (until python -m pipeline_assets.dead_runs "$0" "$now" || ! kill -0 $$; do sleep 1; done) &
            exec python -m pipeline_assets.code_server start --socket "$0" -m pipeline_assets.definitions --log-level warning' \
            "$CORPUSMILL_CODE_SOCKET" & ;;
        webserver) alone TERM python -m pipeline_assets.webserver -w "$home/workspace.yaml" -h 127.0.0.1 \
            -p "$port" --log-level warning & ;;
        daemon) alone TERM dagster-daemon run -w "$home/workspace.yaml" --log-level warning & ;;
    esac
    pids[$1]=$!
    echo "$!" > "$home/${names[$1]}.pid"
}
stop() {  # in reverse order, because services need earlier ones
    trap '' INT TERM HUP
    trap - EXIT
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        signal=TERM
        [ "${names[$i]}" != postgres ] || { free_database; signal=INT; }  # a fast shutdown; it logs open connections
        kill -s $signal -- "-${pids[$i]}" 2> /dev/null || continue
        for _ in $(seq 150); do kill -0 "${pids[$i]}" 2> /dev/null && sleep 0.2 || break; done
        kill -KILL -- "-${pids[$i]}" 2> /dev/null || true
    done
    free_database
    rm -rf "$home"/*.pid "$TMPDIR"
}
watch() {  # restart services that died
    for i in "${!pids[@]}"; do
        kill -0 "${pids[$i]}" 2> /dev/null && continue
        status=0
        wait "${pids[$i]}" 2> /dev/null || status=$?
        kill -KILL -- "-${pids[$i]}" 2> /dev/null || true  # its children
        [ $((SECONDS - ${since[$i]:-0})) -lt 300 ] || { deaths[$i]=0; since[$i]=$SECONDS; }
        deaths[$i]=$((${deaths[$i]:-0} + 1))
        [ "${deaths[$i]}" -lt "$max_deaths" ] || fail "${names[$i]} died $max_deaths times in five minutes, at last with status $status"
        echo "run_local.sh: ${names[$i]} died with status $status; starting it again" >&2
        start "$i"
    done
}
until_ready() {  # COMMAND…, for ten minutes
    local began=$SECONDS
    until "$@" > /dev/null 2>&1; do
        [ $((SECONDS - began)) -lt 600 ] || fail "no answer to: $*"
        watch
        sleep 0.5
    done
}
serves() {  # `dagster api grpc-health-check` asks the same, but loads all of Dagster for each try
    python -c 'import sys, grpc
from grpc_health.v1 import health_pb2 as messages, health_pb2_grpc as health
request, stub = messages.HealthCheckRequest(service="DagsterApi"), health.HealthStub(grpc.insecure_channel(sys.argv[1]))
sys.exit(stub.Check(request, timeout=20).status != messages.HealthCheckResponse.SERVING)' "unix:$CORPUSMILL_CODE_SOCKET"
}
answers() { python -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=20)' "http://127.0.0.1:$port/server_info"; }

trap 'stop; exit 130' INT
trap 'stop; exit 143' TERM
trap 'stop; exit 129' HUP  # a closed terminal sends it twice
trap stop EXIT
first=0
if [ "${names[0]}" = postgres ]; then
    echo "starting PostgreSQL …"
    start 0
    first=1
    until_ready "$(postgres_program pg_isready)" -h 127.0.0.1 -p "$DAGSTER_PG_PORT"
fi
lock_database
echo "preparing the database …"
dagster instance migrate > "$home/migrate.log" 2>&1 || fail "dagster instance migrate failed; see $home/migrate.log"
echo "loading the recipes …"
start "$first"
until_ready serves
echo "starting the UI and the daemon …"
start $((first + 1))
start $((first + 2))
until_ready answers
echo "Dagster UI: http://127.0.0.1:$port  (data root $data; Ctrl-C stops all services)"
while true; do
    watch
    { sleep 1 & wait $!; } 2> /dev/null || true  # `wait` ends with a signal; the shell reports deaths in its own words
done
