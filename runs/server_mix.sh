#!/usr/bin/env bash
# Requests with mixed settings to a server, up to 16 at once: does each have the tokens that it would
# have alone, decoded plainly with its seed? The server has a prefix cache. It decodes with `auto`, or
# with trees of a draft model in every step, whether they pay or not.
#   auto talon
# Usage: [OUT=runs/out] [REQUESTS=200] runs/server_mix.sh [PART]...
#   MODEL    of the server and of the comparison (embedded); `talon` needs DRAFT for another one
#   SEED     of the requests and their arrival (0)
#   THREADS  of the server and of the comparison (1)
# It measures no time. pip install 'draftwood[serve,grammar]'
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
# shellcheck source=runs/serving.sh
source "$(dirname "$0")/serving.sh"
MODEL=${MODEL:-embedded} THREADS=${THREADS:-1}
mkdir -p "$OUT"

mixed() { # NAME FLAG...: into OUT/server_mix_NAME.json
    local name=$1; shift
    serving "$OUT/server_mix_$name.log" \
        "${draftwood[@]}" serve "$MODEL" --port "$PORT" --dtype float32 --threads "$THREADS" --prefix-cache 50MB "$@" -- \
        save "server_mix_$name" "$python" "$runs/server_mix.py" "$url" --model "$MODEL" \
        --requests "${REQUESTS:-200}" --seed "${SEED:-0}" --threads "$THREADS"
}
auto() { mixed auto --method auto; }
talon() { mixed talon --method talon --budget 8 --drafter model ${DRAFT:+--draft "$DRAFT"}; }
run "auto talon" "$@"
