# Random inventories: ichor accepts them, and Talos accepts what ichor makes of them.

readonly INVENTORY_COUNT=50

random_inventories() { "$HERE/inventories" "${ICHOR_CONFORMANCE_SEED:-1}" $INVENTORY_COUNT inventories; }

inventories_check() {
    local ichor folder
    ichor=$(need_verb check)
    random_inventories
    for folder in inventories/*/; do
        "$ichor" -f "$folder" check >check.txt 2>&1 || fail "$folder: $(grep -m 1 '^error' check.txt)"
    done
    note "$INVENTORY_COUNT inventories"
}

# rendered NUMBER: renders a random inventory once per run, and prints the folder.
rendered() {
    local folder=$SCRATCH/rendered/random-$1
    if [ ! -d "$folder" ]; then
        ichor_render "inventories/random-$1" "$folder" --secrets "$(ichor_bundle)" >render.txt 2>&1 ||
            fail "random-$1: $(grep -m 1 '^error' render.txt)"
    fi
    echo "$folder"
}

inventory_minor() { sed -nE 's/^  talos: v1\.([0-9]+).*/\1/p' "inventories/random-$1/ichor.yaml"; } # NUMBER

# Each is judged by the release it names and by the newest, since configs must survive upgrades.
inventories_validate() {
    local number minor judge mode total=0 newest=${TALOS_MINORS##* } judges files folder
    need_verb render >/dev/null
    random_inventories
    for number in $(seq 1 $INVENTORY_COUNT); do
        minor=$(inventory_minor "$number")
        judges=$(need_judge "$minor")
        [ "$minor" = "$newest" ] || judges="$judges $(need_judge "$newest")"
        folder=$(rendered "$number")
        mapfile -t files < <(machine_configs "$folder")
        [ ${#files[@]} -gt 0 ] || fail "random-$number: nothing was rendered"
        for judge in $judges; do
            for mode in metal cloud; do
                "$judge" validate $mode "${files[@]}" >verdict.json || fail "random-$number, $(basename "$judge"), $mode: $(cat verdict.json)"
            done
        done
        total=$((total + ${#files[@]}))
    done
    note "$total configs of $INVENTORY_COUNT inventories, in both modes"
}

# The program people use judges what its release knows.
inventories_talosctl() {
    local count minor number=0 folder
    need_verb render >/dev/null
    need_talosctl "$1" >/dev/null
    random_inventories
    for count in $(seq 1 $INVENTORY_COUNT); do
        minor=$(inventory_minor "$count")
        [ "$minor" -le "$1" ] || continue
        folder=$(rendered "$count")
        talosctl_validates_folder "$1" "$folder" "random-$count"
    done
    note "$number configs in both modes"
}

# Rendering twice gives the same bytes: into the same folder all of them, into another one all but the client
# certificate, which begins when it is made, and the list of what was written.
inventories_render_twice() {
    local number folder
    need_verb render >/dev/null
    random_inventories
    for number in $(seq 1 $INVENTORY_COUNT); do
        folder=$(rendered "$number")
        ichor_render "inventories/random-$number" second --secrets "$(ichor_bundle)"
        diff -r --exclude talosconfig --exclude .rendered.json "$folder" second >difference.txt || fail "random-$number: $(head -n 1 difference.txt)"
        rm -rf second first && cp -R "$folder" first
        ichor_render "inventories/random-$number" "$folder" --secrets "$(ichor_bundle)"
        diff -r "$folder" first >difference.txt || fail "random-$number, again: $(head -n 1 difference.txt)"
    done
}

row inventories ichor-accepts-them 1 inventories_check
row inventories talos-accepts-their-configs 1 inventories_validate
row inventories rendering-is-repeatable 1 inventories_render_twice
