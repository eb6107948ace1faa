#!/usr/bin/env bash
# Expected speed-ups at the cost of larger models on GPUs: replays of SmolLM2-135M-Instruct's answers. Modelled, not
# measured: acceptance is SmolLM2's, step costs are estimated from data sheets (docs/replay.md).
#   greedy sampled   the eight sets of grid.sh, greedy and at temperature 0.7, top-p 0.9
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=4] [TOKENS=256] runs/smollm2/modelled.sh [PART]...
#   MODEL   smollm2, or a directory with a checkpoint
#   HEAD    its EAGLE-3 head: adds eagle3; auto uses it in place of a shipped one
# The first play asks the model for the rows of rejected nodes and of the head (an hour on two cores), later ones take
# minutes. The load of the machine does not matter.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/../parts.sh"
MODEL=${MODEL:-smollm2}

play() { # NAME FLAG...
    local recording=$OUT/modelled_$1.rec name=smollm2_modelled_$1; shift
    if [[ ! -e $recording ]]; then
        mkdir -p "$OUT"
        limited "${draftwood[@]}" record --model "$MODEL" --dtype float32 --prompts "$(usual)" --chat --truncate 6144 \
            --limit "${LIMIT:-4}" --max-new-tokens "${TOKENS:-256}" "$@" "${tiny[@]/--repeats/--seed}" --out "$recording"
    fi
    save "$name" "$python" "$(dirname "$0")/modelled.py" "$recording" --model "$MODEL" ${HEAD:+--head "$HEAD"} \
        ${TINY:+--gpus h100 --shapes 1b --batches 1,4}
}
greedy() { play greedy; }
sampled() { play sampled --temperature 0.7 --top-p 0.9; }
run "greedy sampled" "$@"
