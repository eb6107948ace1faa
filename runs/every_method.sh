#!/usr/bin/env bash
# The headline: every method and all peers, each part with its page (html) and its figures.
#   greedy_1 greedy_4 greedy_16     batches of 1, 4 and 16
#   sampled_1 sampled_4 sampled_16  the same at temperature 1
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=8] [SEEDS=1] runs/every_method.sh [PART]...
#   MODEL     the target: embedded, or a directory or hub id
#   DRAFT     its draft model (embedded-draft)
#   HEAD      its EAGLE-3 head (embedded-eagle3 for embedded, else methods with a head are left out)
#   BUDGET    most drafted nodes a step, 16; empty: as each method has it
#   NAME      of the results: every_speed, and the last part of MODEL unless that is embedded
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
MODEL=${MODEL:-embedded} BUDGET=${BUDGET-16}
if [[ $MODEL == embedded ]]; then HEAD=${HEAD-embedded-eagle3}; else NAME=${NAME:-every_speed_${MODEL##*/}}; fi
NAME=${NAME:-every_speed}
six=$(sets humaneval mbpp classeval gsm8k_test mt_bench wikitext2_test)

every() { # greedy|sampled BATCH FLAG...
    local name=${NAME}_$1_$2 drafters=(model) methods
    shift
    if [[ -n ${HEAD:-} ]]; then drafters+=(eagle3); fi
    methods=$(contenders all "${drafters[@]}")
    # Without a model of its own, though --draft or --head is given.
    methods=${methods/#auto,/auto:neural=,}
    # Five tokens are what a chain is published with; one of 16 would be a straw man.
    methods=${methods//,sd/,sd:budget=5},goose:adjacency=model
    bench "$name" --model "$MODEL" --prompts "$six" --methods "$methods" --peers --batch "$@" ${BUDGET:+--budget "$BUDGET"} \
        ${DRAFT:+--draft "$DRAFT"} ${HEAD:+--head "$HEAD"} --html "$OUT/$name.html" --plots "$OUT/$name"
}
greedy_1() { every greedy 1; }
greedy_4() { every greedy 4; }
greedy_16() { every greedy 16 --limit "${LIMIT:-16}"; }
sampled() { every sampled "$@" --temperature 1 --seeds "${SEEDS:-1}"; }
sampled_1() { sampled 1; }
sampled_4() { sampled 4; }
sampled_16() { sampled 16 --limit "${LIMIT:-16}"; }
run "greedy_1 greedy_4 greedy_16 sampled_1 sampled_4 sampled_16" "$@"
