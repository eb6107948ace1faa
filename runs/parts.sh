# shellcheck shell=bash
# Functions that the other scripts source. Environment:
#   PROMPTS   directory of the prompt files
#   OUT       where results go (runs/out)
#   LIMIT     most prompts of each set, and
#   TOKENS    new tokens of each, both except where a part says otherwise
#   MINUTES   a call stops after so many, with exit code 124; call it again to go on
#   TINY      if not empty: one prompt of a set, 8 tokens, to see whether everything runs
#   PYTHON    the interpreter that has Draftwood (the one of the draftwood command)
# Runs are resumed, and a result that is complete stays: delete it to measure it anew.

OUT=${OUT:-runs/out}
runs=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# What is measured is the code beside these scripts, not a copy that is installed.
export PYTHONPATH=${runs%/*}${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-python}
draftwood=("$python" -m draftwood)
if [[ -z ${PYTHON:-} ]] && command -v draftwood > /dev/null; then draftwood=(draftwood); fi
# Behind all others, so that these flags win.
tiny=()
if [[ -n ${TINY:-} ]]; then tiny=(--limit 1 --max-new-tokens 8 --truncate 64 --repeats 1); fi

# The command in the foreground gets the signal as well; the script waits for it.
trap 'exit 143' TERM

# sets NAME...: prompt files as `draftwood bench --prompts` wants them.
sets() {
    printf -v found "%s.jsonl," "${@/#/${PROMPTS:?directory with the prompt files}/}"
    echo "${found%,}"
}

# with_texts: the views of these sets in which a text is given, to edit code and to answer from.
with_texts() {
    local in=${PROMPTS:?directory with the prompt files}
    echo "edit:$in/humaneval.jsonl+$in/mbpp.jsonl+$in/classeval.jsonl,passage:$in/spec_bench.jsonl+$in/wikitext2_test.jsonl"
}

# usual: six sets for the embedded pair, eight for another model.
usual() {
    if [[ ${MODEL:-embedded} == embedded ]]; then
        sets humaneval mbpp classeval gsm8k_test mt_bench wikitext2_test
    else
        echo "$(sets humaneval mbpp gsm8k_test mt_bench spec_bench classeval),$(with_texts)"
    fi
}

# checkpoint: the directory of the MODEL, for engines that do not know its name.
checkpoint() { "$python" -c "from draftwood import models; print(models.location('$MODEL'))"; }

# limited COMMAND...: runs it for what is left of MINUTES. SIGTERM, because a shell makes what it
# starts in the background deaf to SIGINT.
limited() {
    if [[ -z ${MINUTES:-} ]]; then "$@"; return; fi
    local end=$((60 * MINUTES)) code=124
    if ((SECONDS < end)); then
        # Time to write down what has ended, pages and figures too.
        timeout -k 50 -s TERM $((end - SECONDS)) "$@" && return
        code=$?
    fi
    if ((SECONDS >= end)); then
        echo "$0: $MINUTES minutes are over: call again to go on" >&2
        code=124
    fi
    exit "$code"
}

# shipped_head: SmolLM2's own head, unless HEAD names another.
shipped_head() {
    if [[ $MODEL == smollm2 ]]; then HEAD=${HEAD:-smollm2-eagle3}; fi
}

# another_model [draft] [head]: for scripts that measure the embedded pair unless there is a MODEL.
#   MODEL        a name, directory or hub id; results are called after it, or after NAME
#   DRAFT, HEAD  its drafts, if the script names them; without a DRAFT, methods draft with the head
#   CHAT         1: texts that are to be continued are in the chat template too
#   CONTEXT      most tokens of a context, 6144
# Answers have 256 tokens (TOKENS). A part may say otherwise.
another_model() {
    MODEL=${MODEL:-embedded}
    if [[ $MODEL == embedded ]]; then return; fi
    shipped_head
    prefix=${NAME:-${MODEL##*/}}_ target=(--model "$MODEL")
    if [[ " $* " == *" draft "* && -n ${DRAFT:-} ]]; then target+=(--draft "$DRAFT"); fi
    if [[ " $* " == *" head "* || (" $* " == *" draft "* && -z ${DRAFT:-}) ]]; then
        target+=(--head "${HEAD:?an EAGLE-3 head for $MODEL, or a DRAFT}")
    fi
    TOKENS=${TOKENS:-256} target+=(--truncate "${CONTEXT:-6144}" ${CHAT:+--chat})
}
prefix='' target=()

# drafted METHODS: without a DRAFT for another model, methods that need a draft model use its head.
drafted() {
    local each found=()
    if [[ ${MODEL:-embedded} == embedded || -n ${DRAFT:-} ]]; then echo "$1"; return; fi
    for each in ${1//,/ }; do
        case $each in
            ar | hf | eagle3* | goose-eagle3* | *drafter=eagle3*) ;;
            goose:adjacency=model) each=goose:adjacency=eagle3 ;;
            *) each=$each:drafter=eagle3 ;;
        esac
        if [[ " ${found[*]} " != *" $each "* ]]; then found+=("$each"); fi
    done
    (IFS=,; echo "${found[*]}")
}

# Variables of the environment that change what is measured, and are not directories or interpreters.
variables=(MODEL NAME DRAFT HEAD CHAT CONTEXT LIMIT TOKENS SEEDS SEED SAMPLES NODES BUDGET TABLE KEPT NOT_IN BY
    SETS SHAPE SIZE SIZES DRAFT_SIZES DEVICE DTYPE AT ROUNDS SECONDS_EACH SERVERS CB_MEMORY VLLM_CPU_KVCACHE_SPACE REPEATS
    REQUESTS CONNECTIONS PROCESSES THREADS MODELS PRECISION RECURRENT TARGET_TOKENS DRAFT_TOKENS HEAD_TOKENS MICRO_TOKENS
    TINY)
# given: those of a call, as it would be written. Of the process, as scripts give them values of their own.
given() {
    local name each found=() all=()
    if [[ ! -r /proc/$$/environ ]]; then return; fi  # not Linux
    mapfile -d '' all < "/proc/$$/environ"
    for name in "${variables[@]}"; do
        for each in "${all[@]}"; do
            if [[ $each == "$name="?* ]]; then found+=("$name=$(printf %q "${each#*=}")"); fi
        done
    done
    echo "${found[*]}"
}

# made_by FILE: notes which part of which script makes a result, and the environment of the call, for keep.py.
made_by() {
    mkdir -p "$OUT"
    local script environment
    script=$(cd "$(dirname "$0")" && pwd)/${0##*/} environment=$(given)
    printf '%s\n' "${script#"$runs/"} $part" ${environment:+"$environment"} > "${1%.json}.part_of"
}

# bench NAME FLAG...: `draftwood bench` into OUT/NAME.json, unless that is complete.
bench() {
    local json=$OUT/$prefix$1.json; shift
    if grep -qs '^ "complete": true' "$json"; then echo "$json is complete" >&2; return; fi
    made_by "$json"
    limited "${draftwood[@]}" bench --truncate 1024 --max-new-tokens "${TOKENS:-128}" --limit "${LIMIT:-8}" "${target[@]}" "$@" "${tiny[@]}" --json "$json" --resume
}

# save NAME COMMAND...: what the command prints becomes OUT/NAME.json, unless there is one.
save() {
    local json=$OUT/$prefix$1.json; shift
    if [[ -e $json ]]; then echo "$json is complete" >&2; return; fi
    made_by "$json"
    limited "$@" > "$json.part"
    mv "$json.part" "$json"
}

# contenders PROMISE [DRAFTER...]: names of methods with commas between them; see contenders.py.
contenders() { "$python" "$runs/contenders.py" "$@"; }

# run "PART..." [CHOSEN]...: the chosen parts of a script, or all of them.
run() {
    local all=$1 part; shift
    if ! (($#)); then read -ra all_of_them <<< "$all"; set -- "${all_of_them[@]}"; fi
    for part in "$@"; do
        if [[ " $all " != *" $part "* ]]; then echo "$0: no part $part: $all" >&2; exit 2; fi
    done
    for part in "$@"; do "$part"; done
}
