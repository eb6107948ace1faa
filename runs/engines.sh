#!/usr/bin/env bash
# Tokens a step of Draftwood's drafts inside SGLang and vLLM, beside those of the engine's own n-grams
# with as many nodes, for SmolLM2-135M-Instruct on the eight sets, greedy, eight requests at once; and
# whether all answers have the tokens of the engine's plain decoding.
#   sglang vllm
# Usage: PROMPTS=dir [OUT=runs/out] [NODES="8 16"] runs/engines.sh [PART]...
#   TOKENS   new tokens of each answer (128)
#   LIMIT    prompts of each set (8)
#   SGLANG   python of an environment with SGLang (.venv-sglang, of `make test-sglang`)
#   VLLM     python of an environment with vLLM (.venv-vllm, of `make test-vllm`)
# It measures no time. Results are printed by engine_acceptance.py.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
MODEL=smollm2
root=${runs%/*} here=$(mkdir -p "$OUT" && cd "$OUT" && pwd)
table=$root/draftwood/assets/$MODEL/table.safetensors

# prompts: where the model is, and token ids of every set, which engines read without Draftwood's reader.
prompts() {
    where=$(checkpoint)
    if [[ -d $here/ids ]]; then return; fi
    "$python" "$runs/chat_ids.py" "$MODEL" --out "$here/ids.part" --prompts "$(usual)" --limit "${LIMIT:-8}"
    mv "$here/ids.part" "$here/ids"
}
# decoded SCRIPT PYTHON LABEL FLAG...: into OUT/engine_LABEL.json, unless there is one
decoded() {
    local script=$1 interpreter=$2 json=$here/engine_$3.json; shift 3
    if [[ -e $json ]]; then echo "$json is complete" >&2; return; fi
    limited "$interpreter" "$runs/$script" "$where" "$here"/ids/*.json --tokens "${TOKENS:-128}" "$@" --out "$json" > "${json%.json}.log" 2>&1
}

sglang() {
    prompts
    export SGLANG_USE_CPU_ENGINE=1 SGLANG_NCCL_SO_PATH=/nonexistent.so GLOO_SOCKET_IFNAME=lo
    local with=(decoded sglang_decode.py "${SGLANG:-$root/.venv-sglang/bin/python}") nodes
    "${with[@]}" sglang_plain
    for nodes in ${NODES:-8 16}; do
        "${with[@]}" "sglang_NGRAM_$nodes" --drafts NGRAM --nodes "$nodes"
        "${with[@]}" "sglang_draftwood_$nodes" --drafts DRAFTWOOD --nodes "$nodes"
        DRAFTWOOD_METHOD=auto:also=memory:adjacency.table=$table \
            "${with[@]}" "sglang_draftwood-table_$nodes" --drafts DRAFTWOOD --nodes "$nodes"
    done
    "$python" "$runs/engine_acceptance.py" sglang "$here"
}
vllm() {
    prompts
    export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-2} # GB; or vLLM takes most of the memory
    local with=(decoded vllm_decode.py "${VLLM:-$root/.venv-vllm/bin/python}") nodes
    "${with[@]}" vllm_plain --drafts none
    for nodes in ${NODES:-8 16}; do
        "${with[@]}" "vllm_ngram_$nodes" --drafts ngram --draft-tokens $((nodes - 1))
        "${with[@]}" "vllm_suffix_$nodes" --drafts suffix --draft-tokens $((nodes - 1))
        "${with[@]}" "vllm_draftwood_$nodes" --drafts draftwood --draft-tokens $((nodes - 1))
        DRAFTWOOD_METHOD=auto:also=memory:context.lengths=8+5+4+3+2+1:adjacency.table=$table \
            "${with[@]}" "vllm_draftwood-table_$nodes" --drafts draftwood --draft-tokens $((nodes - 1))
    done
    "$python" "$runs/engine_acceptance.py" vllm "$here"
}
run "sglang vllm" "$@"
