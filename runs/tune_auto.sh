#!/usr/bin/env bash
# Compares auto with other methods by replay, at costs that never change: for those who tune auto.
# Play it before and after a change; the clock and the load of the machine have no influence.
#   nodes   mean acceptance length at equal numbers of drafted nodes (free_nodes.json: nodes cost nothing)
#   speed   expected tokens per second (step_costs.json: like the embedded model on two cores)
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=8] [TOKENS=128] [SIZES="4 16 60"] runs/tune_auto.sh [PART]...
# The first play asks the model for rows and takes minutes; later plays take seconds.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
recording=$OUT/tune_auto.rec
drafted=auto:drafter=model:layout=ranked

play() { # NAME COSTS METHODS
    if [[ ! -e $recording ]]; then
        mkdir -p "$OUT"
        limited "${draftwood[@]}" record --prompts "$(sets humaneval mbpp classeval gsm8k_test mt_bench wikitext2_test)" \
            --truncate 1024 --limit "${LIMIT:-8}" --max-new-tokens "${TOKENS:-128}" --out "$recording" ${TINY:+--limit 1 --max-new-tokens 8 --truncate 64}
    fi
    limited "${draftwood[@]}" replay "$recording" --model embedded --costs "$runs/$2" --methods "$3" --json "$OUT/tune_auto_$1.json"
}
nodes() {
    local n methods=ar
    for n in ${SIZES:-4 16 60}; do
        methods+=,auto:budget=$n,goose:budget=$n,iso3:budget=$n,$drafted:budget=$n,talon:budget=$n,eagle3:drafter=model:budget=$n
    done
    play nodes free_nodes.json "$methods"
}
speed() { play speed step_costs.json "ar,pld:budget=10,goose:budget=16,auto,talon:budget=16,$drafted"; }
run "nodes speed" "$@"
