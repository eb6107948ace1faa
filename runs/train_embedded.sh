#!/usr/bin/env bash
# Trains the two models that ship in draftwood/assets, from the text in DATA, into OUT:
# tokenizer, target, draft, export and judgement. Stopped at any point, run it again
# with the same arguments and it goes on from its last checkpoint.
#
#   runs/train_embedded.sh DATA OUT [TARGET_TOKENS] [DRAFT_TOKENS]
#
# DATA holds code, prose, wiki, math and chat as *.txt.gz. Environment: PYTHON, THREADS, ASSETS.
set -euo pipefail

data=${1:?usage: runs/train_embedded.sh DATA OUT [TARGET_TOKENS] [DRAFT_TOKENS]}
out=${2:?usage: runs/train_embedded.sh DATA OUT [TARGET_TOKENS] [DRAFT_TOKENS]}
target_tokens=${3:-20000000}
draft_tokens=${4:-10000000}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python}
threads=${THREADS:-$(nproc)}
assets=${ASSETS:-$here/../draftwood/assets}

shared=(--data "$data" --out "$out" --threads "$threads" --sources "$here/train_sources.json")
mixture=code=0.45,prose=0.17,wiki=0.08,math=0.12,chat=0.18

"$python" -m draftwood.train target "${shared[@]}" --mixture "$mixture" \
    --tokens "$target_tokens" --short-share 0.8 --export "$assets/target"
"$python" -m draftwood.train draft "${shared[@]}" --mixture "$mixture" \
    --tokens "$draft_tokens" --rows 4 --short-share 0.8 \
    --teacher-share 0.9 --teacher-from 0.8 --export "$assets/draft"
