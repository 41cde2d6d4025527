# The real talosctl, built from modules.

# need_talosctl MINOR
need_talosctl() {
    need_tool "talosctl-v1.$1" "$HERE/talosctl" "$(modfile "$1")" "" github.com/siderolabs/talos/cmd/talosctl
}

# real_talosctl MINOR ARGUMENT...: never reads or writes the user's own talosconfig.
real_talosctl() {
    local program minor=$1
    program=$(need_talosctl "$minor")
    shift
    HOME=$WORK TALOSCONFIG=$WORK/talosconfig "$program" "$@"
}

talosctl_version() {
    real_talosctl "$1" version --client --short >version.txt
    note "$(grep -o 'v1\.[0-9.]*' version.txt)"
    grep -q "v1\.$1\." version.txt
}

talosctl_gen_config() { # MINOR OUT_FOLDER [OPTION...]
    local minor=$1 out=$2
    shift 2
    real_talosctl "$minor" gen config demo https://10.0.0.20:6443 --with-docs=false --with-examples=false \
        --kubernetes-version 1.31.4 --talos-version "v1.$minor" --output "$out" "$@"
}

# The judge built from the library and the program must be one mind.
talosctl_agrees_with_library() {
    local judge secrets request='{"cluster":"demo","endpoint":"https://10.0.0.20:6443","kubernetes":"1.31.4","contract":"v1.%s","secrets":"%s","out":"library","options":{"installDisk":"/dev/sda"%s}}'
    local image=ghcr.io/siderolabs/installer:v1.13.0
    judge=$(need_judge "$1")
    secrets=$(real_secrets "$1")
    talosctl_gen_config "$1" program --with-secrets "$secrets" --install-image $image
    # shellcheck disable=SC2059
    printf "$request" "$1" "$secrets" ",\"installImage\":\"$image\"" | "$judge" generate - >/dev/null
    "$judge" same library/controlplane.yaml program/controlplane.yaml || fail "control plane: $("$judge" same library/controlplane.yaml program/controlplane.yaml)"
    "$judge" same library/worker.yaml program/worker.yaml || fail "worker: $("$judge" same library/worker.yaml program/worker.yaml)"
}

talosctl_validates() {
    local file mode
    real_talosctl "$1" gen secrets --output-file secrets.yaml
    talosctl_gen_config "$1" out --with-secrets secrets.yaml
    for file in controlplane worker; do
        for mode in metal cloud; do
            real_talosctl "$1" validate --mode $mode --config out/$file.yaml || fail "$file.yaml is not valid in $mode mode"
        done
    done
    sed 's/type: worker/type: worker\n    certSAN: []/' out/worker.yaml >broken.yaml
    if real_talosctl "$1" validate --mode cloud --config broken.yaml; then fail "an unknown key was accepted"; fi
}

talosctl_reads_talosconfig() {
    talosctl_gen_config "$1" out
    real_talosctl "$1" --talosconfig out/talosconfig config info --output json >info.json
    grep -q '"os:admin"' info.json || fail "no role os:admin: $(cat info.json)"
}

# serve_api MINOR SECRETS: starts the stand-in for a node's API; sets ADDRESS and SERVER.
serve_api() {
    local judge tries=0
    judge=$(need_judge "$1")
    "$judge" serve "$2" >serve.jsonl 2>serve.log &
    SERVER=$!
    # shellcheck disable=SC2064
    trap "kill $SERVER" EXIT
    until ADDRESS=$(sed -n 's/.*"listening":"\([^"]*\)".*/\1/p' serve.jsonl) && [ -n "$ADDRESS" ]; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "the stand-in for a node's API did not start"
        sleep 0.05
    done
}

talosctl_calls() { # MINOR TALOSCONFIG
    real_talosctl "$1" --talosconfig "$2" --endpoints "$ADDRESS" --nodes 127.0.0.1 version --short >answer.txt 2>&1 ||
        fail "talosctl was refused: $(tail -n 1 answer.txt)"
    grep -q '"roles":\["os:admin"\]' serve.jsonl || fail "the server did not see the role os:admin"
}

talosctl_handshake() {
    local secrets
    secrets=$(real_secrets "$1")
    talosctl_gen_config "$1" out --with-secrets "$secrets"
    serve_api "$1" "$secrets"
    talosctl_calls "$1" out/talosconfig
}

# --- ichor ---

talosctl_uses_ichor_secrets() {
    local inventory
    need_verb secrets new >/dev/null
    inventory=$(own_copy "$REPOSITORY/examples/minimal")
    ichor_secrets_new "$inventory"
    ichor_secrets_export "$inventory" >secrets.yaml
    talosctl_gen_config "$1" out --with-secrets secrets.yaml
    real_talosctl "$1" validate --mode metal --config out/controlplane.yaml
}

talosctl_uses_ichor_talosconfig() {
    local inventory
    need_verb talosconfig >/dev/null
    inventory=$(own_copy "$REPOSITORY/examples/minimal")
    ichor_secrets_new "$inventory"
    ichor_secrets_export "$inventory" >secrets.yaml
    ichor_talosconfig "$inventory" >ichor-talosconfig
    real_talosctl "$1" --talosconfig ichor-talosconfig config info --output json >info.json
    grep -q '"os:admin"' info.json || fail "no role os:admin: $(cat info.json)"
    serve_api "$1" secrets.yaml
    talosctl_calls "$1" ichor-talosconfig
}

talosctl_validates_examples() {
    local example below number=0
    need_verb render >/dev/null
    need_talosctl "$1" >/dev/null
    while IFS='|' read -r example below; do
        [ "$(talos_minor "$example")" -le "$1" ] || continue
        render_example "$example" "$below" || fail "$example/$below: $(grep -m 1 error "$WORK/stderr")"
        talosctl_validates_folder "$1" "$WORK/rendered" "$example/$below"
    done < <(example_inventories)
    note "$number configs in both modes"
}

# talosctl_validates_folder MINOR FOLDER NAME: judges every config in it, and adds to $number.
talosctl_validates_folder() {
    local file mode
    while IFS= read -r file; do
        for mode in metal cloud; do
            real_talosctl "$1" validate --mode $mode --config "$file" >verdict.txt 2>&1 ||
                fail "$3, $(basename "$file"), $mode: $(cat verdict.txt)"
        done
        number=$((number + 1))
    done < <(machine_configs "$2")
}

# What `talosctl gen` writes becomes ichor's own: the bundle, and the config of a control plane as people have it, with all
# its comments. What is rendered with it then has the very keys, as Talos' own code and talosctl's configs tell.
talosctl_output_is_imported() {
    local judge source bundle configs inventory role ours
    need_verb secrets import >/dev/null
    judge=$(need_judge "$1")
    real_talosctl "$1" gen secrets --output-file secrets.yaml
    talosctl_gen_config "$1" plain --with-secrets secrets.yaml
    # Without secrets talosctl makes some of its own; what is in no bundle file comes out of the config alone.
    real_talosctl "$1" gen config demo https://10.0.0.20:6443 --output commented
    "$judge" import-secrets commented/controlplane.yaml >commented.yaml
    if "$judge" same secrets.yaml commented.yaml; then fail "talosctl makes the same secrets twice"; fi
    for source in secrets.yaml=secrets.yaml=plain plain/controlplane.yaml=secrets.yaml=plain commented/controlplane.yaml=commented.yaml=commented; do
        IFS== read -r source bundle configs <<<"$source"
        inventory=$(own_copy "$REPOSITORY/examples/minimal")
        ichor_secrets_import "$inventory" "$source" || fail "$source: $(grep -m 1 error "$WORK/stderr")"
        ichor_secrets_export "$inventory" >exported.yaml
        "$judge" same "$bundle" exported.yaml || fail "$source does not come back as it was"
        ichor_render "$inventory" rendered
        for role in controlplane worker; do
            ours=$(machine_configs rendered | xargs grep -lE "^ +type: $role$" | head -n 1)
            [ -n "$ours" ] || fail "no $role was rendered"
            same_secrets "$bundle" "$configs/$role.yaml" "$ours" || fail "$source: a $role has other secrets than by talosctl: $(cat secrets.diff)"
            [ "$role" = worker ] || "$judge" import-secrets "$ours" >back.yaml
        done
        "$judge" same "$bundle" back.yaml || fail "$source: what is rendered does not give the bundle back"
        ichor_talosconfig "$inventory" >ichor-talosconfig
        "$judge" handshake "$bundle" ichor-talosconfig >accepted.json || fail "$source: machines of talosctl refuse ichor: $(cat accepted.json)"
        "$judge" handshake exported.yaml "$configs/talosconfig" >accepted.json || fail "$source: machines of ichor refuse talosctl: $(cat accepted.json)"
        rm -rf "$inventory" rendered
    done
    # A worker's config has no key of any authority.
    inventory=$(own_copy "$REPOSITORY/examples/minimal")
    if ichor_secrets_import "$inventory" plain/worker.yaml 2>refusal.txt; then fail "the config of a worker was taken for a bundle"; fi
    note "$(grep -cE '^ +[a-z0-9]+: .' secrets.yaml) secrets, of a bundle and of two configs; both clients are accepted"
}

# same_secrets BUNDLE THEIRS OURS: of the values of a bundle, both configs have the same.
same_secrets() {
    local config
    for config in "$2" "$3"; do
        sed -nE 's/^ *([a-z0-9]+): (.+)$/\1 \2/p' "$1" | while read -r name value; do
            if grep -qF -- "$value" "$config"; then echo "$name ${value:0:8}"; fi
        done >"secrets-of-$(basename "$(dirname "$config")").txt"
    done
    [ -s "secrets-of-$(basename "$(dirname "$2")").txt" ] &&
        diff "secrets-of-$(basename "$(dirname "$2")").txt" "secrets-of-$(basename "$(dirname "$3")").txt" >secrets.diff
}

# One release in tier 1: each is a build of minutes. 1.14 needs a dependency that cannot be had (README.md).
for minor in 12 13; do
    if [ "$minor" = 13 ]; then level=1; else level=2; fi
    row "talosctl-1.$minor" is-the-release "$level" talosctl_version "$minor"
    row "talosctl-1.$minor" real-configs-validate "$level" talosctl_validates "$minor"
    row "talosctl-1.$minor" agrees-with-library "$level" talosctl_agrees_with_library "$minor"
    row "talosctl-1.$minor" reads-its-talosconfig "$level" talosctl_reads_talosconfig "$minor"
    row "talosctl-1.$minor" real-handshake "$level" talosctl_handshake "$minor"
    row "talosctl-1.$minor" uses-ichor-secrets "$level" talosctl_uses_ichor_secrets "$minor"
    row "talosctl-1.$minor" uses-ichor-talosconfig "$level" talosctl_uses_ichor_talosconfig "$minor"
    row "talosctl-1.$minor" ichor-imports-its-output "$level" talosctl_output_is_imported "$minor"
    row "talosctl-1.$minor" validates-ichor-examples "$level" talosctl_validates_examples "$minor"
    row "talosctl-1.$minor" validates-ichor-inventories "$level" inventories_talosctl "$minor"
done
