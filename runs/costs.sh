#!/usr/bin/env bash
# What a step costs on this machine, and what auto leaves to gain at given costs.
#   step    cost of a step of the target by nodes, time of a step outside the model, index memory
#   level   one level of a draft-model tree outside the model, for a vocabulary of 150,000
#   search  auto over a recording: equal numbers of nodes, oracles, errors of its probabilities
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=8] [TOKENS=128] runs/costs.sh [PART]...
# PROMPTS, LIMIT and TOKENS are for search only. step and level need a quiet machine.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"

step() { save engine_overhead "$python" "$runs/engine_overhead.py" ${TINY:+--context 32 --text 2000}; }
level() { save level_cost "$python" "$runs/level_cost.py" ${TINY:+--vocabulary 500 --trees 2}; }
search() {
    local recording=$OUT/auto_search.rec
    if [[ ! -e $recording ]]; then
        mkdir -p "$OUT"
        limited "${draftwood[@]}" record --prompts "$(sets humaneval mbpp classeval gsm8k_test mt_bench wikitext2_test)" \
            --truncate 1024 --limit "${LIMIT:-8}" --max-new-tokens "${TOKENS:-128}" --out "$recording" ${TINY:+--limit 1 --max-new-tokens 8 --truncate 64}
    fi
    save auto_search "$python" -m runs.auto_search "$recording" --model embedded ${TINY:+--sizes 4 --warm 2 --limit 1}
}
run "step level search" "$@"
