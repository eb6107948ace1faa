#!/usr/bin/env bash
# What a server of the embedded model does when clients, requests or the model fail; see server_faults.py.
#   clients grammars ends long
# Usage: [OUT=runs/out] [REQUESTS=10000] [CONNECTIONS=1000] runs/server_faults.sh [PART]...
# Linux. A part that finds a fault ends the script.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
mkdir -p "$OUT"

faults() { # NAME CASE...: cases of server_faults.py, into OUT/server_faults_NAME.json
    local name=$1 each only=(); shift
    for each in "$@"; do only+=(--only "$each"); done
    save "server_faults_$name" "$python" "$runs/server_faults.py" "${only[@]}" \
        --requests "${REQUESTS:-10000}" --connections "${CONNECTIONS:-1000}"
}

clients() { faults clients killed_clients half_open bodies over_the_context; }
grammars() { faults grammars bombs; }
ends() { faults ends little_memory full_queue terminated failing_model; }
long() { faults long long_run; }
run "clients grammars ends long" "$@"
