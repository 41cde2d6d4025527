# Tools: built from package registries into a cache outside the clone, and found again by what they are
# made of, so that a second run starts in seconds.

CACHE=${ICHOR_CONFORMANCE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ichor-conformance}

# need_program NAME: skips the row when a program is not installed.
need_program() {
    command -v "$1" >/dev/null 2>&1 || skip "no \`$1\` on this machine"
}

# need_tool NAME FOLDER MODFILE TAGS PACKAGE [LINKING]: prints the path of a Go program, building it at need; it
# is tried once per run. LINKING has more words for the linker.
need_tool() {
    local name=$1 folder=$2 modfile=$3 tags=$4 package=$5 linking=${6:-} path
    need_program go

    path=$CACHE/$name-$(tool_key "$folder" "$modfile" "$tags" "$package" ${linking:+"$linking"})
    if [ ! -x "$path" ]; then
        [ ! -e "$SCRATCH/$name.failed" ] || cannot_have "$name"
        mkdir -p "$CACHE"
        echo "building $name" >&4
        # One build at a time, also between two runs of this program: the machines are small.
        if ! within_budget flock "$CACHE/lock" nice go build -C "$folder" -mod=readonly -modfile="$modfile" -p "${ICHOR_CONFORMANCE_JOBS:-1}" \
            -trimpath -ldflags "-s -w $linking" -tags "$tags" -o "$path.new" "$package" 2>"$SCRATCH/$name.log"; then
            echo "could not build $name: $(why_go_failed "$SCRATCH/$name.log")" >"$SCRATCH/$name.failed"
            cannot_have "$name"
        fi
        mv "$path.new" "$path"
        # Other clones may use other builds of the same tool; what nobody has used for a month goes.
        find "$CACHE" -name "$name-*" -atime +30 -mtime +30 -delete
    fi
    echo "$path"
}

# within_budget COMMAND...: runs a build for no longer than is left of the budget, if there is one. What
# was built of it stays in Go's own cache, so that the next run gets further.
within_budget() {
    local spent=0 started=$SECONDS status=0
    if [ -z "$budget" ]; then
        "$@"
        return
    fi
    [ ! -e "$SCRATCH/spent" ] || spent=$(cat "$SCRATCH/spent")
    if [ "$spent" -lt "$budget" ]; then
        timeout $((budget - spent)) "$@" || status=$?
        echo $((spent + SECONDS - started)) >"$SCRATCH/spent"
    else
        status=124
    fi
    [ $status -ne 124 ] || echo "not built: no time left in the budget" >&2
    return $status
}

# build_in_good_order: builds first what most can be learnt from, for a budget that does not do for all.
build_in_good_order() {
    local minor index
    WORK=$SCRATCH/building
    mkdir -p "$WORK"
    for minor in 13 14 12 11 8 10 9; do
        for index in "${!ROW_NAMES[@]}"; do
            if [ "${ROW_JUDGES[index]}" = "talos-1.$minor" ] && chosen "$index"; then
                (need_judge "$minor") >/dev/null 2>&1 || true
                break
            fi
        done
    done
}

# cannot_have NAME: a module that is not to be had skips the rows that need it. Anything else, such as a
# program of ours that does not compile or a checksum that differs, is a failure and must be seen as one.
cannot_have() {
    if ! grep -q 'checksum mismatch' "$SCRATCH/$1.log" &&
        grep -qE 'no time left in the budget|: (403|404|410) |module lookup disabled|no such host|dial tcp|i/o timeout|connection re|requires go >=' "$SCRATCH/$1.log"; then
        skip "$(cat "$SCRATCH/$1.failed")"
    fi
    fail "$(cat "$SCRATCH/$1.failed")"
}

# tool_key: what a tool is made of, as a hash.
tool_key() {
    local folder=$1 modfile=$2
    {
        echo "$@" | sed "s|$HERE||g"
        go version
        cat "$folder/$modfile" "$folder/${modfile%.mod}.sum"
        find "$folder" -maxdepth 1 -name '*.go' | LC_ALL=C sort | xargs -r cat
    } | sha256sum | cut -c 1-12
}

# why_go_failed: the first complaint that names a cause. The registry's address is nobody's business here.
why_go_failed() {
    grep -v '^go: downloading' "$1" | sed -E 's#https?://[^ /]+/##g' | grep -m 1 -E 'no time left| 40[0-9] |410 |verifying|lookup|no such host|requires go|undefined|missing|cannot|error|:[0-9]+: ' || tail -n 1 "$1"
}

# module_folder FOLDER MODFILE MODULE: where a module's files are, downloading them at need.
module_folder() {
    local list=(go list -C "$1" -mod=readonly "-modfile=$2" -m -f '{{.Dir}}' "$3") path
    path=$("${list[@]}")
    if [ ! -d "$path" ]; then
        (cd "$1" && go mod download "-modfile=$2" "$3") || skip "the files of $3 cannot be had"
        path=$("${list[@]}")
    fi
    echo "$path"
}

# modfile MINOR: the module file of one Talos release, relative to the judge's folder. Go wants a go.mod in
# any case; it is the one of the release that most people run.
modfile() {
    if [ "$1" = 13 ]; then echo go.mod; else echo "versions/v1.$1.mod"; fi
}
