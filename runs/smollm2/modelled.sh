#!/usr/bin/env bash
# Expected speed-ups at the cost of larger models on GPUs: replays of SmolLM2-135M-Instruct's answers. Modelled, not
# measured: acceptance is SmolLM2's, step costs are estimated from data sheets (docs/replay.md).
#   greedy sampled   the eight sets of grid.sh, greedy and at temperature 0.7, top-p 0.9
#   oracles          what limits auto in both, at SmolLM2's own costs: with one part of it made perfect at a time
#   left_out         auto without each of its sources, in both
#   shapes hot_shapes  trees against chains of the same sources, greedy and at temperature 1
#   rivals           auto against the rules of vLLM, SGLang and onnxruntime-genai, in both
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=4] [TOKENS=256] runs/smollm2/modelled.sh [PART]...
#   MODEL   smollm2, or a directory with a checkpoint
#   HEAD    its EAGLE-3 head, for eagle3 and auto; the shipped one
#   DTYPE   number format of the model that is recorded, bfloat16 as on a GPU
# What has been found is kept beside the recordings, so that a call goes on where the last one stopped.
# Each part asks the model for the rows of rejected nodes and of the head that no part before it has asked for: the first
# ones take longest. The load of the machine does not matter.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/../parts.sh"
MODEL=${MODEL:-smollm2}
shipped_head

recorded() { # NAME
    local recording=$OUT/modelled_$1.rec sampling=()
    case $1 in
        sampled) sampling=(--temperature 0.7 --top-p 0.9) ;;
        hot) sampling=(--temperature 1) ;;
    esac
    if [[ ! -e $recording ]]; then
        mkdir -p "$OUT"
        limited "${draftwood[@]}" record --model "$MODEL" --dtype "${DTYPE:-bfloat16}" --prompts "$(usual)" --chat --truncate 6144 \
            --limit "${LIMIT:-4}" --max-new-tokens "${TOKENS:-256}" "${sampling[@]}" \
            ${TINY:+--limit 1 --max-new-tokens 8 --truncate 64} --out "$recording"
    fi
}
replay() { # NAME
    recorded "$1"
    save "smollm2_modelled_$1" "$python" "$(dirname "$0")/modelled.py" "$OUT/modelled_$1.rec" --model "$MODEL" \
        ${HEAD:+--head "$HEAD"} ${TINY:+--gpus h100 --shapes 1b --batches 1,4}
}
greedy() { replay greedy; }
sampled() { replay sampled; }
oracles() {
    recorded greedy
    recorded sampled
    save smollm2_oracles "$python" "$(dirname "$0")/oracles.py" "$OUT/modelled_greedy.rec" "$OUT/modelled_sampled.rec" \
        --model "$MODEL" ${HEAD:+--method "auto:head=$HEAD:layout=ranked"}
}
rivals() {
    recorded greedy
    recorded sampled
    save smollm2_rivals "$python" "$(dirname "$0")/rivals.py" "$OUT/modelled_greedy.rec" "$OUT/modelled_sampled.rec" \
        --model "$MODEL" ${HEAD:+--head "$HEAD"} ${TINY:+--gpus "" --batches 1,4}
}
studied() { # STUDY RECORDING...
    local each study=$1 recordings=()
    shift
    for each in "$@"; do
        recorded "$each"
        recordings+=("$OUT/modelled_$each.rec")
    done
    save "smollm2_$part" "$python" "$(dirname "$0")/sources.py" "$study" "${recordings[@]}" \
        --model "$MODEL" ${HEAD:+--head "$HEAD"} ${TINY:+--gpus "" --batches 1,4}
}
left_out() { studied left_out greedy sampled; }
shapes() { studied shapes greedy; }
hot_shapes() { studied shapes hot; }
run "greedy sampled oracles rivals left_out shapes hot_shapes" "$@"
