#!/usr/bin/env bash
# Longer training of the embedded models in bfloat16 on one large GPU, each call resumed from the
# last one's checkpoint. Models go to OUT/models, their records to OUT/gpu_train_*.json.
#   target draft eagle3
#   hybrid    a target of three gated DeltaNet layers to each attention layer, in OUT/models/hybrid
# Usage: DATA=dir [OUT=runs/out] [MINUTES=8] runs/gpu_train.sh [PART]...
#   TARGET_TOKENS, DRAFT_TOKENS, HEAD_TOKENS   100, 50 and 20 million; one may be raised later on.
#   The hybrid has as many tokens as the target.
# Exit code 124: call it again to go on.
set -euo pipefail
MINUTES=${MINUTES:-8}
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
: "${DATA:?directory with the *.txt.gz files}"
target_tokens=${TARGET_TOKENS:-100000000}
draft_tokens=${DRAFT_TOKENS:-50000000}
head_tokens=${HEAD_TOKENS:-20000000}
if [[ -n ${TINY:-} ]]; then target_tokens=6144 draft_tokens=4096 head_tokens=6144; fi

trained() { # MODEL TOKENS [hybrid]
    local run=$OUT/train${3:+_$3} models=$OUT/models${3:+/$3} record
    record=$run/$1/model/provenance.json
    if ! grep -qs '"finished": true' "$record" || ! grep -qs "^    \"tokens\": $2,$" "$record"; then
        mkdir -p "$models"
        limited env PYTHON="$python" ASSETS="$models" MODELS="$1" PRECISION=bfloat16 MICRO_TOKENS="${MICRO_TOKENS:-6144}" \
            RECURRENT="${3:+3}" "$(dirname "$0")/train_embedded.sh" "$DATA" "$run" "$target_tokens" "$draft_tokens" "$head_tokens"
    fi
    cp "$record" "$OUT/gpu_train_${3:-$1}.json"
}
target() { trained target "$target_tokens"; }
draft() { trained draft "$draft_tokens"; }
eagle3() { trained eagle3 "$head_tokens"; }
hybrid() { trained target "$target_tokens" hybrid; }
run "target draft eagle3 hybrid" "$@"
