#!/usr/bin/env bash
# GOOSE: is it lossless, what does it accept, what does it gain?
#   lossless   token equality with plain decoding and with transformers' generate, float32
#   tau        mean acceptance length beside its baselines, greedy and sampled (the paper's Table 1)
#   ablations  its Table 2, and the additive path of its Section 5.3
#   sweeps     of B, D, r and rho (its Figures 4 and 5)
#   speed      tokens per second, batch 1 and 8; on a quiet machine
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=n] runs/paper_goose.sh [PART]...
# LIMIT is 64 for lossless, 16 for tau, ablations and sweeps, 8 for speed. MODEL, CHAT and NAME are for
# another model than the embedded one (parts.sh); it is measured on eight sets.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
another_model
six=$(usual)
baselines=ar,pld,tr:budget=59,tr,iso3,iso5,goose

lossless() {
    local equal=(--prompts "$six" --dtype float32) own=ar,pld,tr,iso3,iso5,goose
    bench lossless_greedy "${equal[@]}" --limit "${LIMIT:-64}" --methods "$own,hf" --budget 59
    bench lossless_greedy_512 "${equal[@]}" --methods "$own,hf" --budget 16 --max-new-tokens 512
    bench lossless_sampled "${equal[@]}" --limit "${LIMIT:-64}" --methods "$own" --budget 59 --temperature 0.8 --seeds 1
}
tau() {
    bench tau_greedy --prompts "$six" --limit "${LIMIT:-16}" --methods "$baselines"
    bench tau_sampled --prompts "$six" --limit "${LIMIT:-16}" --methods "$baselines" --temperature 0.8 --seeds 1
}
ablations() {
    # tr and the one without pairs and bypass begin the additive path of its Section 5.3.
    local each methods=ar,tr:budget=59,goose,goose:adjacency.bigram=off:bypass=off
    for each in spine_branches=off adjacency.bigram=off bypass=off spine=off spine=control bypass=paper; do
        methods+=,goose:$each
    done
    bench tau_ablations --prompts "$six" --limit "${LIMIT:-16}" --methods "$methods"
}
sweeps() {
    local each methods=ar,goose
    for each in 9 19 29 39 79 99; do methods+=,goose:budget=$each; done
    for each in 1 2 4 8 10; do methods+=,goose:max_depth=$each; done
    for each in 0.15 0.3 0.5 0.7; do methods+=,goose:ratio=$each; done
    for each in 0.1 0.3 0.7 0.9; do methods+=,goose:rho=$each; done
    bench tau_sweeps --prompts "$six" --limit "${LIMIT:-16}" --methods "$methods"
}
speed() {
    local each methods=ar,hf,hf-lookup,pld:budget=10,tr:budget=16,iso3:budget=16
    for each in 8 12 16 24 59; do methods+=,goose:budget=$each; done
    # Its default assistant has the embedded vocabulary.
    if [[ $MODEL == embedded ]]; then methods+=,hf-assistant; fi
    bench speed_greedy --prompts "$six" --methods "$methods" --repeats 3
    bench speed_sampled --prompts "$six" --methods "$methods" --repeats 3 --temperature 0.8 --seeds 1
    bench speed_batch8 --prompts "$six" --methods ar,hf,goose:budget=8 --batch 8 --repeats 2
}
run "lossless tau ablations sweeps speed" "$@"
