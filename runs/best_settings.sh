#!/usr/bin/env bash
# Each method as published and at its best setting, found on other prompts of the same kind: of each
# set every second prompt is searched on, and the others are measured. Sequoia's tree is searched too.
#   search     the best settings, by tokens per second (BY=mean_acceptance_length: by tokens per forward)
#   greedy_1   both settings of each method, auto and transformers' generate beside them
#   sampled_1  the same at temperature 1, settings searched at that temperature
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=8] [TOKENS=128] [SEEDS=1] runs/best_settings.sh [PART]...
# The search is of every combination of values that the methods declare: it takes long. Quiet machine.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
six=(humaneval mbpp classeval gsm8k_test mt_bench wikitext2_test)
models=(--draft embedded-draft --head embedded-eagle3)
methods=pld,tr,iso3,goose,sd,fixed-tree,dynatree,talon,opt-tree,sequoia,eagle3,goose-eagle3

half() { # odd|even: every second prompt of each set, as a list of files
    local name files=()
    mkdir -p "$OUT/$1"
    for name in "${six[@]}"; do
        awk -v rest="$([[ $1 == odd ]] && echo 1 || echo 0)" 'NR % 2 == rest' "${PROMPTS:?directory with the prompt files}/$name.jsonl" > "$OUT/$1/$name.jsonl"
        files+=("$OUT/$1/$name.jsonl")
    done
    (IFS=,; echo "${files[*]}")
}
found() { # NAME FLAG...
    local best=$OUT/$1.json; shift
    if [[ -e $best && ! -e ${best%.json}.journal.jsonl ]]; then echo "$best is complete" >&2; return; fi
    limited "${draftwood[@]}" search "$best" --prompts "$(half odd)" --truncate 1024 --max-new-tokens "${TOKENS:-128}" \
        --limit "${LIMIT:-8}" --methods "$methods" --by "${BY:-tokens_per_second}" "${models[@]}" "$@" --resume \
        ${TINY:+--limit 1 --max-new-tokens 8 --truncate 64}
}
search() { found best_greedy; }
beside() { # NAME BEST FLAG...
    local name=$1 best=$OUT/$2.json; shift 2
    bench "$name" --prompts "$(half even)" --best "$best" --methods "ar,hf,$methods,auto,auto:drafter=model,auto:drafter=eagle3" "${models[@]}" "$@"
}
greedy_1() { search; beside best_speed_greedy_1 best_greedy; }
sampled_1() {
    found best_sampled --temperature 1
    beside best_speed_sampled_1 best_sampled --temperature 1 --seeds "${SEEDS:-1}"
}
run "search greedy_1 sampled_1" "$@"
