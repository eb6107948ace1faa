#!/usr/bin/env bash
# Trains the models that ship in draftwood/assets, from the text in DATA, into OUT:
# tokenizer, target, draft, EAGLE-3 head, each with export and judgement. Stopped at any
# point, run it again with the same arguments and it goes on from its last checkpoint.
#
#   runs/train_embedded.sh DATA OUT [TARGET_TOKENS] [DRAFT_TOKENS] [HEAD_TOKENS]
#
# DATA holds code, prose, wiki, math and chat as *.txt.gz. Environment: PYTHON, THREADS; ASSETS,
# where the models go in the end; MODELS, those to train (target draft eagle3); PRECISION, float32
# or bfloat16 (faster on CPUs that have instructions for it), if not set bfloat16 on a GPU and
# float32 on a CPU; MICRO_TOKENS, how many run through a model at once; RECURRENT, gated DeltaNet
# layers before each attention layer of the target (3: the layout of Qwen3.5; if not set, a Llama).
set -euo pipefail

usage="usage: runs/train_embedded.sh DATA OUT [TARGET_TOKENS] [DRAFT_TOKENS] [HEAD_TOKENS]"
data=${1:?$usage}
out=${2:?$usage}
target_tokens=${3:-20000000}
draft_tokens=${4:-10000000}
head_tokens=${5:-4000000}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python}
threads=${THREADS:-$(nproc)}
assets=${ASSETS:-$here/../draftwood/assets}
models=${MODELS:-target draft eagle3}
micro_tokens=${MICRO_TOKENS:-}
if [[ -n ${RECURRENT:-} && -z ${ASSETS:-} ]]; then
    echo "$0: a target with recurrent layers does not ship: name another place with ASSETS" >&2
    exit 2
fi
mixture=code=0.45,prose=0.17,wiki=0.08,math=0.12,chat=0.18

shared=(--data "$data" --out "$out" --threads "$threads" --sources "$here/train_sources.json"
    --mixture "$mixture")
if [[ -n ${PRECISION:-} ]]; then
    shared+=(--precision "$PRECISION")
fi
if [[ ${PRECISION:-} == bfloat16 ]]; then
    micro_tokens=${micro_tokens:-3072}
fi
if [[ -n $micro_tokens ]]; then
    shared+=(--micro-tokens "$micro_tokens")
fi
# Whoever stops this script stops the training too, which still writes its checkpoint; then it is
# not the next model's turn.
trap 'exit 130' INT
trap 'exit 143' TERM

for model in $models; do
    case $model in
        target) "$python" -m draftwood train target "${shared[@]}" \
            ${RECURRENT:+--recurrent "$RECURRENT"} \
            --tokens "$target_tokens" --short-share 0.8 --export "$assets/target" ;;
        draft) "$python" -m draftwood train draft "${shared[@]}" \
            --tokens "$draft_tokens" --rows 4 --short-share 0.8 \
            --teacher-share 0.9 --teacher-from 0.8 --export "$assets/draft" ;;
        eagle3) "$python" -m draftwood train eagle3 "${shared[@]}" \
            --tokens "$head_tokens" --export "$assets/eagle3" ;;
        *) echo "$0: no model $model: target draft eagle3" >&2; exit 2 ;;
    esac
done
