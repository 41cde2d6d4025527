# Rows: registering, choosing, running and reporting them.
#
# A row is a function. It ends with status 0 when the claim in its name holds; `skip WHY` and `fail WHY` end
# it otherwise. `note TEXT` says what was seen, for the table. A row runs in a subshell with `set -e`, its
# standard output goes to a log, and $WORK is a folder of its own.

ROW_JUDGES=() ROW_NAMES=() ROW_TIERS=() ROW_CALLS=()
RESULTS=()

# row JUDGE NAME TIER FUNCTION [ARGUMENT...]
row() {
    ROW_JUDGES+=("$1")
    ROW_NAMES+=("$2")
    ROW_TIERS+=("$3")
    shift 3
    ROW_CALLS+=("$*")
}

readonly SKIPPED=77

note() { printf '%s' "$*" >"$WORK/why"; }
skip() { note "$@"; exit $SKIPPED; }
fail() { note "$@"; exit 1; }

chosen() { # INDEX
    local index=$1 pattern
    [ "${ROW_TIERS[index]}" -le "$tier" ] || return 1
    [ ${#patterns[@]} -gt 0 ] || return 0
    for pattern in "${patterns[@]}"; do
        # The right-hand sides are patterns on purpose.
        # shellcheck disable=SC2053
        if [[ ${ROW_JUDGES[index]} == $pattern || ${ROW_NAMES[index]} == $pattern || ${ROW_JUDGES[index]}/${ROW_NAMES[index]} == $pattern ]]; then
            return 0
        fi
    done
    return 1
}

list_rows() {
    local index
    printf '%-14s %-34s %s\n' JUDGE ROW TIER
    for index in "${!ROW_NAMES[@]}"; do
        if chosen "$index"; then
            printf '%-14s %-34s %s\n' "${ROW_JUDGES[index]}" "${ROW_NAMES[index]}" "${ROW_TIERS[index]}"
        fi
    done
}

run_rows() {
    local index
    printf '%-14s %-34s %-8s %s\n' JUDGE ROW RESULT WHY
    for index in "${!ROW_NAMES[@]}"; do
        if chosen "$index"; then run_row "$index"; fi
    done
}

run_row() { # INDEX
    local index=$1 status=0 started=$EPOCHREALTIME result why
    WORK=$SCRATCH/rows/$index
    export WORK
    mkdir -p "$WORK"

    set +e
    # Split on purpose: a call is a function and its arguments, none of which holds a space.
    # shellcheck disable=SC2086
    (set -euo pipefail && cd "$WORK" && ${ROW_CALLS[index]}) >"$WORK/stdout" 2>"$WORK/stderr" </dev/null
    status=$?
    set -e

    why=$(cat "$WORK/why" 2>/dev/null || true)
    case $status in
    0) result=passed ;;
    "$SKIPPED") result=skipped ;;
    *)
        result=failed
        [ -n "$why" ] || why=$(tail -n 1 "$WORK/stderr")
        [ -n "$why" ] || why="ended with status $status"
        ;;
    esac

    [ -z "$transcripts" ] || keep_transcript "$transcripts/${ROW_JUDGES[index]}/${ROW_NAMES[index]}"
    why=$(printf '%s' "$why" | tr '\n\t' '  ' | cut -c 1-300)
    RESULTS+=("$index|$result|$(seconds_since "$started")|$why")
    printf '%-14s %-34s %-8s %s\n' "${ROW_JUDGES[index]}" "${ROW_NAMES[index]}" "$result" "$why"
}

# keep_transcript FOLDER: what the programs of a row said, as far as people read it; in place of what an earlier run left.
keep_transcript() {
    rm -rf "$1"
    mkdir -p "$1"
    find "$WORK" -maxdepth 1 -type f \( -name '*.txt' -o -name '*.log' -o -name stdout -o -name stderr -o -name why \) -size +0 \
        -exec cp -t "$1" {} +
}

seconds_since() { # EPOCHREALTIME
    # The separator follows the locale.
    local from=${1/,/.} to=${EPOCHREALTIME/,/.}
    awk -v from="$from" -v to="$to" 'BEGIN { printf "%.2f", to - from }'
}

count() { # RESULT
    local entry number=0
    for entry in ${RESULTS[@]+"${RESULTS[@]}"}; do
        case $entry in *"|$1|"*) number=$((number + 1)) ;; esac
    done
    echo $number
}

# Ends the run.
summarize() {
    local failed
    failed=$(count failed)
    echo
    echo "passed $(count passed), failed $failed, skipped $(count skipped)"
    if [ ${#RESULTS[@]} -eq 0 ]; then
        echo "conformance: no row matches" >&2
        exit 2
    fi
    [ "$failed" -eq 0 ] || exit 1
}

json_string() {
    local text=$1
    text=${text//\\/\\\\}
    text=${text//\"/\\\"}
    printf '"%s"' "$(printf '%s' "$text" | tr '\000-\037' ' ')"
}

write_report() { # FILE
    local entry index result seconds why comma=""
    {
        printf '{"passed":%s,"failed":%s,"skipped":%s,"rows":[' "$(count passed)" "$(count failed)" "$(count skipped)"
        for entry in ${RESULTS[@]+"${RESULTS[@]}"}; do
            IFS='|' read -r index result seconds why <<<"$entry"
            printf '%s\n{"judge":%s,"row":%s,"tier":%s,"result":"%s","seconds":%s,"why":%s}' "$comma" \
                "$(json_string "${ROW_JUDGES[index]}")" "$(json_string "${ROW_NAMES[index]}")" "${ROW_TIERS[index]}" \
                "$result" "$seconds" "$(json_string "$why")"
            comma=,
        done
        printf '\n]}\n'
    } >"$1"
}
