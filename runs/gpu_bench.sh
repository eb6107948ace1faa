#!/usr/bin/env bash
# Speed on one large GPU: the embedded target and the models of gpu_inflate.sh. An inflated target
# has a draft model of a size that is common for it (draft-0.25b, draft-0.5b, draft-1b).
#   plain        our plain decoding and transformers' generate, compiled too if there is such a peer
#   tune         time of a step by nodes, batch and context
#   methods      every method and all peers, batch 1
#   small_draft  the same with the embedded draft model, which costs next to nothing
#   batch_4 batch_16 batch_64   ar, goose, talon and auto
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=2] [MINUTES=8] runs/gpu_bench.sh [PART]...
#   SIZES   "embedded 1b 3b 8b"
# Exit code 124: call it again to go on.
set -euo pipefail
MINUTES=${MINUTES:-8} LIMIT=${LIMIT:-2}
here=$(dirname "$0")
# shellcheck source=runs/parts.sh
source "$here/parts.sh"
if [[ -n ${TINY:-} ]]; then SIZES=${SIZES:-embedded}; fi
read -ra sizes <<< "${SIZES:-embedded 1b 3b 8b}"
small=embedded-draft

choose() { # SIZE: sets model and draft
    model=embedded draft=$small
    if [[ $1 == embedded ]]; then return; fi
    model=$OUT/models/$1
    case $1 in
        3b) draft=$OUT/models/draft-0.5b ;;
        8b) draft=$OUT/models/draft-1b ;;
        *) draft=$OUT/models/draft-0.25b ;;
    esac
    if [[ ! -d $model || ! -d $draft ]]; then echo "$0: no $model or $draft: run gpu_inflate.sh" >&2; exit 2; fi
}
plain() {
    local size peers='from draftwood.lab.bench.peers import names; print(*(n for n in names() if n == "hf" or "compile" in n or "static" in n), sep=",")'
    peers=$("$python" -c "$peers")
    for size in "${sizes[@]}"; do
        choose "$size"
        bench "gpu_plain_$size" --model "$model" --prompts "$(sets humaneval gsm8k_test wikitext2_test)" --methods "ar,$peers" --repeats 3
    done
}
tune() {
    local size json flags=(--batch "1,4,16" --context "128,1024,3072" --largest 128 --seconds 60)
    if [[ -n ${TINY:-} ]]; then flags=(--batch 1 --context 64 --largest 4 --seconds 2); fi
    mkdir -p "$OUT"
    for size in "${sizes[@]}"; do
        choose "$size"
        json=$OUT/gpu_tune_$size.json
        if [[ -e $json ]]; then echo "$json is complete" >&2; continue; fi
        limited "${draftwood[@]}" tune --model "$model" --draft "$draft" "${flags[@]}" --json "$json"
    done
}
every() { # NAME DRAFT: of the chosen model
    local head=
    if [[ $model == embedded ]]; then head=embedded-eagle3; elif [[ -d $model/head ]]; then head=$model/head; fi
    limited env -u MINUTES MODEL="$model" DRAFT="$2" HEAD="$head" BUDGET= NAME="$1" LIMIT="$LIMIT" "$here/every_method.sh" greedy_1
}
methods() {
    local size
    for size in "${sizes[@]}"; do choose "$size"; every "gpu_speed_$size" "$draft"; done
}
small_draft() {
    local size
    for size in "${sizes[@]}"; do
        choose "$size"
        if [[ $draft != "$small" ]]; then every "gpu_speed_${size}_small_draft" "$small"; fi
    done
}
batch() { # SEQUENCES
    local size
    for size in "${sizes[@]}"; do
        choose "$size"
        bench "gpu_speed_${size}_batch_$1" --model "$model" --prompts "$(sets humaneval gsm8k_test wikitext2_test)" --batch "$1" --limit "$1" \
            --draft "$draft" --methods ar,hf,goose,goose:budget=16,talon,talon:budget=16,auto:neural=,auto:drafter=model
    done
}
batch_4() { batch 4; }
batch_16() { batch 16; }
batch_64() { batch 64; }
run "plain tune methods small_draft batch_4 batch_16 batch_64" "$@"
