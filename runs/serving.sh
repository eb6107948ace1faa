# shellcheck shell=bash
# A server for as long as a script needs it. Environment:
#   PORT   where it listens on the loopback (8123)
PORT=${PORT:-8123}
url=http://127.0.0.1:$PORT

# answers PROCESS URL LOG: waits until the server of this process answers there; fails if it ends.
answers() {
    until curl -sf "$2/v1/models" > /dev/null; do
        if ! kill -0 "$1" 2> /dev/null; then
            echo "$0: the server ended; see $3" >&2
            return 1
        fi
        sleep 1
    done
}

# serving LOG COMMAND... -- CLIENT...: runs the client, a function or a command, once the server that
# the command starts answers; then stops that server.
serving() {
    local log=$1 command=() server; shift
    while [[ $1 != -- ]]; do command+=("$1"); shift; done
    shift
    "${command[@]}" > "$log" 2>&1 &
    server=$!
    # shellcheck disable=SC2064
    trap "kill $server 2> /dev/null || true" EXIT
    answers "$server" "$url" "$log"
    "$@"
    kill "$server"
    wait "$server" || true
}
