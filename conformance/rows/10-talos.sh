# Talos' machinery library, one judge per release.

readonly MACHINERY=github.com/siderolabs/talos/pkg/machinery
readonly TALOS_MINORS="8 9 10 11 12 13 14"

# need_judge MINOR: prints the path of the judge of one release.
need_judge() {
    local tags="" n
    for n in $(seq 9 "$1"); do tags=$tags,from_1_$n; done
    need_tool "talos-judge-v1.$1" "$HERE/talos" "$(modfile "$1")" "${tags#,}" .
}

machinery_folder() { module_folder "$HERE/talos" "$(modfile "$1")" "$MACHINERY"; } # MINOR

# real_secrets MINOR: prints the path of a bundle by the release itself; one per run, for speed.
real_secrets() {
    local judge path=$SCRATCH/secrets-v1.$1.yaml
    judge=$(need_judge "$1")
    [ -e "$path" ] || "$judge" gen-secrets "v1.$1" >"$path"
    echo "$path"
}

# real_configs MINOR: prints a folder with controlplane.yaml and worker.yaml by the release itself.
real_configs() {
    local judge secrets folder=$SCRATCH/configs-v1.$1
    judge=$(need_judge "$1")
    secrets=$(real_secrets "$1")
    printf '{"cluster":"demo","endpoint":"https://10.0.0.20:6443","kubernetes":"1.31.4","contract":"v1.%s","secrets":"%s","out":"%s","options":{"installDisk":"/dev/sda"}}' \
        "$1" "$secrets" "$folder" | "$judge" generate - >/dev/null
    echo "$folder"
}

# refused COMMAND...: holds when the judge says no (status 1), not when it could not judge.
refused() {
    local status=0
    "$@" >"$WORK/refused.json" || status=$?
    [ $status -eq 1 ]
}

# --- the judges judging themselves: a judge that accepts everything proves nothing ---

real_goldens() {
    local judge module
    judge=$(need_judge "$1")
    module=$(machinery_folder "$1")
    "$judge" golden "$module" >goldens.json || fail "the real generator differs from upstream's golden configs"
    note "$(grep -o '"equal":true' goldens.json | wc -l) golden configs"
}

real_patch_fixtures() {
    local judge module
    judge=$(need_judge "$1")
    module=$(machinery_folder "$1")
    "$judge" patch-fixtures "$module" >fixtures.json || fail "the real patcher differs from upstream's fixtures"
    note "$(grep -o '"good":true' fixtures.json | wc -l) fixtures"
}

real_configs_validate() {
    local judge folder mode
    judge=$(need_judge "$1")
    folder=$(real_configs "$1")
    for mode in metal cloud; do
        "$judge" validate $mode "$folder/controlplane.yaml" "$folder/worker.yaml" || fail "a config of the real generator is not valid in $mode mode"
    done
    sed 's/type: worker/type: worker\n    certSAN: []/' "$folder/worker.yaml" >unknown-key.yaml
    refused "$judge" validate cloud unknown-key.yaml || fail "an unknown key was accepted"
    sed 's/type: worker/type: controlplane/' "$folder/worker.yaml" >wrong-role.yaml
    refused "$judge" validate cloud wrong-role.yaml || fail "a worker that says it is a control plane was accepted"
}

real_secrets_validate() {
    local judge secrets
    judge=$(need_judge "$1")
    secrets=$(real_secrets "$1")
    "$judge" secrets "$secrets" >good.json || fail "a bundle of the real generator is not valid"
    grep -q '"roundTrips":true' good.json || fail "the real code writes the bundle differently from how it was"
    grep -q '"checked":true' good.json || { note "reads and writes alike; this release does not validate bundles"; return; }
    grep -v '^    bootstraptoken:' "$secrets" >broken.yaml
    refused "$judge" secrets broken.yaml || fail "a bundle without bootstrap token was accepted"
}

real_import() {
    local judge secrets folder
    judge=$(need_judge "$1")
    secrets=$(real_secrets "$1")
    folder=$(real_configs "$1")
    "$judge" import-secrets "$folder/controlplane.yaml" >imported.yaml
    "$judge" same "$secrets" imported.yaml || fail "the real import of a control plane's config does not give the bundle back"
}

real_handshake() {
    local judge secrets defect
    judge=$(need_judge "$1")
    secrets=$(real_secrets "$1")
    "$judge" gen-talosconfig "$secrets" demo os:admin 10.0.0.11 >talosconfig
    "$judge" handshake "$secrets" talosconfig >accepted.json || fail "the real talosconfig was not accepted"
    grep -q '"roles":\["os:admin"\]' accepted.json || fail "the role is not os:admin"
    for defect in server-usage both-usages no-usage expired; do
        "$judge" broken-talosconfig "$secrets" $defect >broken
        refused "$judge" handshake "$secrets" broken || fail "a client certificate with $defect was accepted"
    done
    "$judge" gen-secrets "v1.$1" >foreign.yaml
    refused "$judge" handshake foreign.yaml talosconfig || fail "a client of another cluster was accepted"
}

# --- ichor ---

ichor_generates() {
    local counterpart judge secrets module
    counterpart=$(need_counterpart)
    judge=$(need_judge "$1")
    secrets=$(real_secrets "$1")
    module=$(machinery_folder "$1")
    "$judge" generate-cases "$secrets" "$module" >cases.jsonl
    "$counterpart" generate <cases.jsonl >answers.jsonl
    compared "$judge" generate-compare cases.jsonl answers.jsonl
}

ichor_patches() {
    local counterpart judge secrets module
    counterpart=$(need_counterpart)
    judge=$(need_judge "$1")
    secrets=$(real_secrets "$1")
    module=$(machinery_folder "$1")
    "$judge" patch-fixtures "$module" cases.jsonl >/dev/null
    "$judge" patch-random "${ICHOR_CONFORMANCE_SEED:-1}" 500 "$secrets" >>cases.jsonl
    "$counterpart" patch <cases.jsonl >answers.jsonl
    compared "$judge" patch-compare cases.jsonl answers.jsonl
}

ichor_validates() {
    local counterpart judge secrets
    counterpart=$(need_counterpart)
    judge=$(need_judge "$1")
    secrets=$(real_secrets "$1")
    "$judge" patch-random "${ICHOR_CONFORMANCE_SEED:-1}" 500 "$secrets" >cases.jsonl
    "$counterpart" validate <cases.jsonl >answers.jsonl
    compared "$judge" validate-compare cases.jsonl answers.jsonl
}

# compared COMMAND...: runs a comparison and puts its numbers into the table.
compared() {
    local status=0 summary
    "$@" >comparison.json || status=$?
    [ $status -le 1 ] || fail "the answers could not be compared"
    summary=$(sed -E 's/^\{"cases":([0-9]+),"agree":([0-9]+).*/\2 of \1 agree/' comparison.json)$(exceptions comparison.json)
    [ $status -eq 0 ] || fail "$summary; $(sed -E 's/.*"differences":\["(.*)/\1/' comparison.json)"
    note "$summary"
}

# exceptions COMPARISON: the differences that README.md lists and justifies, and what was skipped, counted.
exceptions() {
    local kept skipped
    kept=$(sed -nE 's/.*"kept":\{([^}]*)\}.*/\1/p' "$1" | sed -E 's/"([^"]*)":([0-9]+)/\2 \1/g; s/,/, /g')
    skipped=$(grep -oE '"skipped":\[[^]]*' "$1" | grep -oE ': [^"]*"' | tr -d '"' | sort | uniq -c | sed -E 's/^ *([0-9]+) : /\1 skipped: /' | paste -sd, | sed "s/,/, /g" || true)
    echo "${kept:+, kept: $kept}${skipped:+, $skipped}"
}

ichor_makes_secrets() {
    local inventory judge
    need_verb secrets new >/dev/null
    inventory=$(own_copy "$REPOSITORY/examples/minimal")
    ichor_secrets_new "$inventory"
    ichor_secrets_export "$inventory" >secrets.yaml
    judge=$(need_judge "$1")
    "$judge" secrets secrets.yaml >verdict.json || fail "the real code refuses ichor's bundle: $(cat verdict.json)"
    grep -q '"roundTrips":true' verdict.json || fail "the real code writes ichor's bundle differently"
}

ichor_imports_secrets() {
    local inventory judge secrets configs
    need_verb secrets import >/dev/null
    judge=$(need_judge "$1")
    secrets=$(real_secrets "$1")
    configs=$(real_configs "$1")
    inventory=$(own_copy "$REPOSITORY/examples/minimal")
    ichor_secrets_import "$inventory" "$secrets"
    ichor_secrets_export "$inventory" >exported.yaml
    "$judge" same "$secrets" exported.yaml || fail "a real bundle does not come back as it was"

    rm -rf "$inventory"
    inventory=$(own_copy "$REPOSITORY/examples/minimal")
    ichor_secrets_import "$inventory" "$configs/controlplane.yaml"
    ichor_secrets_export "$inventory" >from-config.yaml
    "$judge" same "$secrets" from-config.yaml || fail "a real control plane's config does not give the bundle back"
}

ichor_talosconfig_is_accepted() {
    local inventory judge
    need_verb talosconfig >/dev/null
    inventory=$(own_copy "$REPOSITORY/examples/minimal")
    ichor_secrets_new "$inventory"
    ichor_secrets_export "$inventory" >secrets.yaml
    ichor_talosconfig "$inventory" >talosconfig
    judge=$(need_judge "$1")
    "$judge" talosconfig talosconfig >read.json || fail "the real code cannot use ichor's talosconfig: $(cat read.json)"
    "$judge" handshake secrets.yaml talosconfig >accepted.json || fail "ichor's talosconfig was not accepted: $(cat accepted.json)"
    grep -q '"roles":\["os:admin"\]' accepted.json || fail "the role is not os:admin"
}

ichor_kubeconfig_is_accepted() {
    local inventory judge
    need_verb kubeconfig >/dev/null
    inventory=$(own_copy "$REPOSITORY/examples/minimal")
    ichor_secrets_new "$inventory"
    ichor_secrets_export "$inventory" >secrets.yaml
    ichor_kubeconfig "$inventory" >kubeconfig
    judge=$(need_judge "$1")
    "$judge" kubeconfig secrets.yaml kubeconfig >verdict.json || fail "$(cat verdict.json)"
}

# Older contracts must stay valid on newer releases, so each release judges all examples up to its own.
ichor_examples_validate() {
    local judge example below number=0 mode files
    need_verb render >/dev/null
    judge=$(need_judge "$1")
    while IFS='|' read -r example below; do
        [ "$(talos_minor "$example")" -le "$1" ] || continue
        render_example "$example" "$below" || fail "$example/$below: $(grep -m 1 error "$WORK/stderr")"
        mapfile -t files < <(machine_configs "$WORK/rendered")
        [ ${#files[@]} -gt 0 ] || fail "$example/$below: nothing was rendered"
        for mode in metal cloud; do
            "$judge" validate $mode "${files[@]}" >verdict.json || fail "$example/$below, $mode: $(cat verdict.json)"
        done
        number=$((number + ${#files[@]}))
    done < <(example_inventories)
    [ $number -gt 0 ] || skip "no example has a Talos version up to 1.$1"
    note "$number configs in both modes"
}

# The configs that ichor's own tests compare with are ones that their release and all later ones accept.
ichor_goldens_validate() {
    local judge mode minor files=()
    judge=$(need_judge "$1")
    for minor in $(seq 8 "$1"); do
        mapfile -t -O ${#files[@]} files < <(find "$REPOSITORY/crates/core/machineconfig/tests/golden/compose" -name "1.$minor-*.yaml")
    done
    [ ${#files[@]} -gt 0 ] || skip "there is no golden config up to 1.$1"
    for mode in metal cloud; do
        "$judge" validate $mode "${files[@]}" >verdict.json || fail "$mode: $(cat verdict.json)"
    done
    note "${#files[@]} configs in both modes"
}

# machine_configs FOLDER: the rendered files that are machine configs.
machine_configs() { grep -rlE '^machine:' --include '*.yaml' "$1"; }

for minor in $TALOS_MINORS; do
    row "talos-1.$minor" real-generator-equals-goldens 1 real_goldens "$minor"
    row "talos-1.$minor" real-patcher-passes-fixtures 1 real_patch_fixtures "$minor"
    row "talos-1.$minor" real-configs-validate 1 real_configs_validate "$minor"
    row "talos-1.$minor" real-secrets-validate 1 real_secrets_validate "$minor"
    row "talos-1.$minor" real-import-gives-secrets-back 1 real_import "$minor"
    row "talos-1.$minor" real-handshake-refuses-defects 1 real_handshake "$minor"
    row "talos-1.$minor" ichor-generates-alike 1 ichor_generates "$minor"
    row "talos-1.$minor" ichor-patches-alike 1 ichor_patches "$minor"
    row "talos-1.$minor" ichor-validates-alike 1 ichor_validates "$minor"
    # The oldest golden config of a whole machine is one of 1.9.
    [ "$minor" -lt 9 ] || row "talos-1.$minor" ichor-goldens-validate 1 ichor_goldens_validate "$minor"
    row "talos-1.$minor" ichor-secrets-are-read 1 ichor_makes_secrets "$minor"
    row "talos-1.$minor" ichor-imports-real-secrets 1 ichor_imports_secrets "$minor"
    row "talos-1.$minor" ichor-talosconfig-is-accepted 1 ichor_talosconfig_is_accepted "$minor"
    row "talos-1.$minor" ichor-kubeconfig-is-accepted 1 ichor_kubeconfig_is_accepted "$minor"
    row "talos-1.$minor" ichor-examples-validate 1 ichor_examples_validate "$minor"
done
