#!/usr/bin/env bash
# Makes the drafts for SmolLM2-135M-Instruct that ship in draftwood/assets/smollm2, in OUT. Stopped at any point, run it
# again with the same arguments and it goes on.
#
#   runs/smollm2/train.sh DATA OUT [STAGE]...
#
# prompts  chat prompts from the training text in DATA (code, prose, wiki, math and chat as *.txt.gz)
# answers  the model's own answers to them. Those in runs/smollm2/answers.jsonl.gz are taken as they are; KEPT= asks the
#          model for all of them (3 hours on two cores)
# table    a prepared adjacency table of what the model says in the first million tokens of them
# head     an EAGLE-3 head, trained on prompts with answers and on the text of DATA
# calibration  where auto begins: how often candidates of table and head are accepted on about 100 further prompts
# medusa, dflash  Medusa heads and a DFlash drafter, trained as the head on 2 million tokens (TOKENS); they are not
#          shipped, and stay in OUT/medusa/model and OUT/dflash/model
#
# table, head and calibration put their result into ASSETS/smollm2 (draftwood/assets), where auto finds it, with its origin.
#
# Without a STAGE, all but the last two.
#
# Environment: PYTHON; MODEL (smollm2), a name or directory; PROCESSES that answer prompts (one for each core); THREADS
# of the training; PRECISION, bfloat16 or float32 (slower on processors with bfloat16 instructions); NOT_IN, evaluation
# prompts (file,file) that the text must not overlap.
set -euo pipefail

usage="usage: runs/smollm2/train.sh DATA OUT [prompts|answers|table|head|calibration|medusa|dflash]..."
data=$(realpath "${1:?$usage}")
out=${2:?$usage}
shift 2
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python}
# What trains is the code beside this script, not a copy that is installed.
export PYTHONPATH=$here/../..${PYTHONPATH:+:$PYTHONPATH}
model=${MODEL:-smollm2}
processes=${PROCESSES:-$(nproc)}
threads=${THREADS:-$(nproc)}
assets=${ASSETS:-$here/../../draftwood/assets}
kept=${KEPT-$here/answers.jsonl.gz}
not_in=()
if [[ -n ${NOT_IN:-} ]]; then
    not_in=(--not-in "$NOT_IN")
fi
# Whoever stops this script stops what it started, which keeps what it has.
trap 'running=$(jobs -p); [[ -z $running ]] || kill $running; wait; exit 130' INT TERM

prompts() {
    "$python" "$here/prompts.py" "$data" "$out/prompts.jsonl"
}

answers() {
    if [[ -n $kept && -f $kept ]]; then
        "$python" "$here/answers.py" unpack "$out/answers"
    fi
    local part=1 running=()
    for ((part = 1; part <= processes; part++)); do
        "$python" -m draftwood train answers --model "$model" --dtype bfloat16 --threads 1 \
            --prompts "$out/prompts.jsonl" --out "$out/answers" --part "$part/$processes" "${not_in[@]}" &
        running+=($!)
    done
    for each in "${running[@]}"; do
        wait "$each"
    done
    # All shards are there: this call writes the text.
    "$python" -m draftwood train answers --model "$model" --dtype bfloat16 --threads 1 \
        --prompts "$out/prompts.jsonl" --out "$out/answers" "${not_in[@]}"
}

# install PART SOURCE COMMAND...: into the package, with the command as its origin.
install() {
    "$python" "$here/install.py" "$1" "$2" "$assets" "${@:3}"
}

table() {
    local made=$out/table.safetensors
    local words=(--dtype bfloat16 --limit-tokens 1000000)
    if [[ ! -f $made ]]; then
        "$python" -m draftwood harvest "$made" --model "$model" --threads "$threads" \
            --text "$out/answers/answers.txt.gz" --work "$out/table" "${words[@]}" "${not_in[@]}"
    fi
    install table.safetensors "$made" draftwood harvest table.safetensors --model smollm2 --text answers.txt.gz \
        "${words[@]}"
}

calibration() {
    local made=$out/calibration.json
    "$python" "$here/prompts.py" "$data" "$out/calibration.jsonl" --skip 6144 --first 120 --plain
    local words=(--dtype bfloat16 --max-new-tokens 256)
    "$python" -m draftwood calibrate "$made" --model "$model" --threads "$threads" \
        --prompts "$out/calibration.jsonl" "${words[@]}" "${not_in[@]}"
    install calibration.json "$made" draftwood calibrate calibration.json --model smollm2 \
        --prompts calibration.jsonl "${words[@]}"
}

# The text that heads are trained on, and how.
text() {
    mkdir -p "$out/text"
    ln -sf "$data"/{code,chat,prose,wiki,math}.txt.gz "$out/text/"
    ln -sf "$(realpath "$out/answers/answers.txt.gz")" "$out/text/"
    training=(
        --data "$out/text" --target "$model" --threads "$threads"
        --mixture answers=0.8,code=0.08,chat=0.06,prose=0.02,wiki=0.02,math=0.02
        --sources "$here/sources.json" --draft-vocab 16384
        --warmup 40 --muon-rate 0.02 --adam-rate 3e-3 --precision "${PRECISION:-bfloat16}"
        --micro-tokens 512 --checkpoint-every 100 "${not_in[@]}"
    )
}

# drafter KIND FLAG...
drafter() {
    local kind=$1; shift
    text
    "$python" -m draftwood train "$kind" --out "$out" --tokens "${TOKENS:-2000000}" --rows 1 --length 1024 \
        "${training[@]}" "$@"
}
medusa() { drafter medusa; }
dflash() { drafter dflash --block 8 --anchors 48 --layers 2; }

head() {
    text
    "$python" "$here/head.py" "$out" -- "${training[@]}" --tied --fc-norm
    install head "$out/eagle3/model" runs/smollm2/train.sh DATA OUT head
}

mkdir -p "$out"
for stage in "${@:-prompts answers table head calibration}"; do
    # Without arguments, the words of one text.
    for each in $stage; do
        case $each in
            prompts | answers | table | head | calibration | medusa | dflash) "$each" ;;
            *) echo "$usage" >&2; exit 2 ;;
        esac
    done
done
