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

# Each is judged by the release it names and by the newest, since configs must survive upgrades.
inventories_validate() {
    local folder minor judge mode number=0 newest=${TALOS_MINORS##* } judges files
    need_verb render >/dev/null
    random_inventories
    for folder in inventories/*/; do
        minor=$(sed -nE 's/^  talos: v1\.([0-9]+).*/\1/p' "$folder/ichor.yaml")
        judges=$(need_judge "$minor")
        [ "$minor" = "$newest" ] || judges="$judges $(need_judge "$newest")"
        rm -rf rendered && ichor_render "$folder" rendered
        mapfile -t files < <(machine_configs rendered)
        [ ${#files[@]} -gt 0 ] || fail "$folder: nothing was rendered"
        for judge in $judges; do
            for mode in metal cloud; do
                "$judge" validate $mode "${files[@]}" >verdict.json || fail "$folder, $(basename "$judge"), $mode: $(cat verdict.json)"
            done
        done
        number=$((number + ${#files[@]}))
    done
    note "$number configs of $INVENTORY_COUNT inventories"
}

# Rendering twice gives the same bytes.
inventories_render_twice() {
    local folder
    need_verb render >/dev/null
    random_inventories
    for folder in inventories/random-1/ inventories/random-2/ inventories/random-3/; do
        ichor_render "$folder" first
        ichor_render "$folder" second
        diff -r first second >difference.txt || fail "$folder: $(head -n 1 difference.txt)"
        rm -rf first second
    done
}

row inventories ichor-accepts-them 1 inventories_check
row inventories talos-accepts-their-configs 1 inventories_validate
row inventories rendering-is-repeatable 1 inventories_render_twice
