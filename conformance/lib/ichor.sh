# ichor: how the rows call it. What the command line looks like is said here and nowhere else.

# need_ichor: prints the path of the binary.
need_ichor() {
    local path newest=""
    if [ -n "${ICHOR:-}" ]; then
        [ -x "$ICHOR" ] || skip "ICHOR names no program"
        echo "$ICHOR"
        return
    fi
    for path in "${CARGO_TARGET_DIR:-$REPOSITORY/target}"/{release,debug}/ichor; do
        if [ -x "$path" ] && { [ -z "$newest" ] || [ "$path" -nt "$newest" ]; }; then newest=$path; fi
    done
    [ -n "$newest" ] || skip "no ichor binary: build it with \`cargo build\`, or set ICHOR"
    echo "$newest"
}

# need_verb VERB...: prints the path of a binary that has the verb.
need_verb() {
    local ichor
    ichor=$(need_ichor)
    "$ichor" "$@" --help >/dev/null 2>&1 || skip "ichor has no such verb yet: $*"
    echo "$ichor"
}

# own_copy INVENTORY: prints the path of a copy in $WORK, so that no store appears in the clone. Secrets
# that an inventory takes from the environment get a value that stands for them.
own_copy() {
    local name
    name=$(basename "$1")
    cp -R "$1" "$WORK/$name"
    echo "$WORK/$name"
}

export ICHOR_PVE_TOKEN=${ICHOR_PVE_TOKEN:-ichor@pve!conformance=00000000-0000-0000-0000-000000000000}
export ICHOR_REGISTRY_PASSWORD=${ICHOR_REGISTRY_PASSWORD:-conformance}
export HEADSCALE_AUTH_KEY=${HEADSCALE_AUTH_KEY:-conformance} FLUX_GIT_TOKEN=${FLUX_GIT_TOKEN:-conformance}

ichor_secrets_new() { # INVENTORY
    local ichor
    ichor=$(need_verb secrets new)
    "$ichor" -f "$1" secrets new
}

ichor_secrets_import() { # INVENTORY FILE: a secrets.yaml, or a control plane's machine config
    local ichor
    ichor=$(need_verb secrets import)
    "$ichor" -f "$1" secrets import "$2"
}

ichor_secrets_export() { # INVENTORY: prints talosctl's secrets.yaml
    local ichor
    ichor=$(need_verb secrets export)
    "$ichor" -f "$1" secrets export
}

ichor_render() { # INVENTORY FOLDER [OPTION...]
    local ichor inventory=$1 folder=$2
    ichor=$(need_verb render)
    shift 2
    "$ichor" -f "$inventory" render "$folder" "$@"
}

# ichor_bundle: prints the path of a bundle by ichor, in talosctl's form; one per run, for speed.
ichor_bundle() {
    local path=$SCRATCH/ichor-secrets.yaml inventory
    if [ ! -e "$path" ]; then
        inventory=$(own_copy "$REPOSITORY/examples/minimal")
        ichor_secrets_new "$inventory" >&2
        ichor_secrets_export "$inventory" >"$path.new"
        mv "$path.new" "$path"
        rm -rf "$inventory"
    fi
    echo "$path"
}

# example_inventories: every inventory of examples/ as `example|folder below it`.
example_inventories() {
    local file
    find "$REPOSITORY/examples" -name ichor.yaml -o -name cluster.yaml | LC_ALL=C sort | while read -r file; do
        file=${file#"$REPOSITORY/examples/"}
        file=${file%/*}
        echo "${file%%/*}|${file#*/}"
    done
}

# render_example EXAMPLE BELOW: renders one of them into $WORK/rendered. Its secrets are made for it, unless
# they would come from a SOPS file that only its owner can open.
render_example() {
    local inventory=$WORK/$1
    [ -e "$inventory" ] || own_copy "$REPOSITORY/examples/$1" >/dev/null
    # A leased endpoint is not known before a machine runs; a name stands for it.
    if grep -q 'addressing: dhcp' "$inventory/ichor.yaml" 2>/dev/null; then
        sed -i 's/^cluster:$/cluster:\n  endpoint: {host: api.lab.example}/' "$inventory/ichor.yaml"
    fi
    [ "$1" = "$2" ] || inventory=$inventory/$2
    rm -rf "$WORK/rendered"
    if grep -rq 'sops' --include '*.yaml' "$WORK/$1"; then
        ichor_render "$inventory" "$WORK/rendered" --secrets "$(ichor_bundle)"
    else
        ichor_secrets_new "$inventory"
        ichor_render "$inventory" "$WORK/rendered"
    fi
}

# talos_minor EXAMPLE: the Talos minor that an example names.
talos_minor() { grep -rhoE 'talos: v1\.[0-9]+' "$REPOSITORY/examples/$1" | head -n 1 | grep -oE '[0-9]+$'; }

ichor_talosconfig() { # INVENTORY: prints it
    local ichor
    ichor=$(need_verb talosconfig)
    "$ichor" -f "$1" talosconfig
}

ichor_kubeconfig() { # INVENTORY: prints it
    local ichor
    ichor=$(need_verb kubeconfig)
    "$ichor" -f "$1" kubeconfig --offline
}

ichor_image_id() { # INVENTORY: prints the schematic id
    local ichor
    ichor=$(need_verb image id)
    "$ichor" -f "$1" image id
}

# need_counterpart: prints the path of the program that answers cases with ichor's libraries, see README.md.
need_counterpart() {
    if [ -n "${ICHOR_COUNTERPART:-}" ]; then
        [ -x "$ICHOR_COUNTERPART" ] || skip "ICHOR_COUNTERPART names no program"
        echo "$ICHOR_COUNTERPART"
        return
    fi
    local source=$REPOSITORY/crates/core/machineconfig/examples/counterpart.rs
    [ -e "$source" ] || [ -e "${source%.rs}/main.rs" ] || skip "ichor's libraries have no counterpart program yet"
    need_example ichor-machineconfig counterpart
}

# need_example PACKAGE NAME: prints the path of a program that uses one of ichor's libraries as a judge wants it.
need_example() {
    need_program cargo
    if [ ! -e "$SCRATCH/$2" ]; then
        cargo build -q --manifest-path "$REPOSITORY/Cargo.toml" -p "$1" --example "$2" --message-format json 2>"$SCRATCH/$2.log" |
            sed -n "s/.*\"executable\":\"\([^\"]*\/$2\)\".*/\1/p" >"$SCRATCH/$2.path" || fail "the program \`$2\` does not build"
        ln -s "$(tail -n 1 "$SCRATCH/$2.path")" "$SCRATCH/$2"
    fi
    echo "$SCRATCH/$2"
}
