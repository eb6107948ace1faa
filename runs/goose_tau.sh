#!/usr/bin/env bash
# Mean acceptance length of GOOSE beside its baselines, its ablations (the paper's Table 2), and
# sweeps of B, D, r and rho (its Figures 4 and 5).
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=16] runs/goose_tau.sh
set -euo pipefail
: "${PROMPTS:?directory with the prompt files}"
OUT=${OUT:-runs/out}; LIMIT=${LIMIT:-16}; mkdir -p "$OUT"
sets=$PROMPTS/humaneval.jsonl,$PROMPTS/mbpp.jsonl,$PROMPTS/gsm8k_test.jsonl,$PROMPTS/mt_bench.jsonl,$PROMPTS/classeval.jsonl,$PROMPTS/wikitext2_test.jsonl
bench() { draftwood bench --prompts "$sets" --truncate 1024 --max-new-tokens 128 --limit "$LIMIT" "$@"; }
baselines=ar,pld,tr:budget=59,tr,iso3,iso5,goose
bench --methods $baselines --json "$OUT/tau_greedy.json"
bench --methods $baselines --temperature 0.8 --seed 1 --json "$OUT/tau_sampled.json"
bench --methods ar,goose,goose:spine_branches=off,goose:adjacency.bigram=off,goose:bypass=off,goose:spine=off,goose:spine=control,goose:bypass=paper --json "$OUT/tau_ablations.json"
sweep=ar
for b in 9 19 29 39 79 99; do sweep+=,goose:budget=$b; done
for d in 1 2 4 8 10; do sweep+=,goose:max_depth=$d; done
for r in 0.15 0.3 0.5 0.7; do sweep+=,goose:ratio=$r; done
for rho in 0.1 0.3 0.7 0.9; do sweep+=,goose:rho=$rho; done
bench --methods $sweep,goose --json "$OUT/tau_sweeps.json"
