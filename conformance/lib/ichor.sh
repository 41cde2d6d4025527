# ichor: how the rows call it. What the command line looks like is said here and nowhere else.

# need_ichor: prints the path of the binary.
need_ichor() {
    local path newest=""
    if [ -n "${ICHOR:-}" ]; then
        [ -x "$ICHOR" ] || skip "ICHOR names no program"
        echo "$ICHOR"
        return
    fi
    for path in "$REPOSITORY/target/release/ichor" "$REPOSITORY/target/debug/ichor"; do
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

ichor_render() { # INVENTORY FOLDER
    local ichor
    ichor=$(need_verb render)
    "$ichor" -f "$1" render "$2"
}

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
    need_program cargo
    if [ ! -e "$SCRATCH/counterpart" ]; then
        cargo build -q --manifest-path "$REPOSITORY/Cargo.toml" -p ichor-machineconfig --example counterpart --release \
            --message-format json 2>"$SCRATCH/counterpart.log" |
            sed -n 's/.*"executable":"\([^"]*\/counterpart\)".*/\1/p' >"$SCRATCH/counterpart.path" || fail "the counterpart does not build"
        ln -s "$(tail -n 1 "$SCRATCH/counterpart.path")" "$SCRATCH/counterpart"
    fi
    echo "$SCRATCH/counterpart"
}
