# Clients that we did not write work with `ichor lab serve`. Each row opens a lab of its own on free ports of this
# computer, and closes it; what client and lab said to each other stays in the row's folder (`--keep`).

readonly LAB_CLIENTS=$HERE/lab-clients
readonly LAB_TALOS=v1.13.9 LAB_KUBERNETES=v1.36.3

# open_lab: starts a lab that ends with the row; what clients need is in access.json.
open_lab() {
    local ichor tries=0
    ichor=$(need_verb lab serve)
    "$ichor" lab serve --profile instant --port 0 --factory-port 0 --proxy-port 0 -o json >access.json 2>lab.log &
    LAB=$!
    # shellcheck disable=SC2064
    trap "kill $LAB 2>/dev/null || true" EXIT
    until grep -qs '^}' access.json; do
        tries=$((tries + 1))
        if [ $tries -ge 200 ] || ! kill -0 $LAB; then fail "the lab did not open: $(tail -n 1 lab.log)"; fi
        sleep 0.05
    done
}

# lab_still_stands: a client that brings the lab down has won, whatever it was told.
lab_still_stands() {
    kill -0 "$LAB" || fail "the lab ended: $(tail -n 1 lab.log)"
    if grep -q panicked lab.log; then fail "the lab panicked: $(grep -m 1 -A 1 panicked lab.log)"; fi
}

# access SERVER KEY: one value of access.json.
access() { sed -n "/\"$1\": {/,/}/s/.*\"$2\": \"\([^\"]*\)\".*/\1/p" access.json; }

# schematic: makes Talos with the guest agent known to the lab's factory, and prints the id.
schematic() {
    printf 'customization:\n  systemExtensions:\n    officialExtensions: [siderolabs/qemu-guest-agent]\n' |
        curl -sSf --data-binary @- "$(access factory url)/schematics" | sed 's/.*"id":"\([0-9a-f]*\)".*/\1/'
}

# --- proxmoxer ---

# need_proxmoxer: prints the path of a Python that has it.
need_proxmoxer() {
    local wanted=$LAB_CLIENTS/proxmoxer/requirements.txt folder
    need_program python3
    folder=$CACHE/proxmoxer-$({ python3 --version && cat "$wanted"; } | sha256sum | cut -c 1-12)
    if [ ! -e "$folder/complete" ]; then
        mkdir -p "$CACHE"
        echo "installing proxmoxer" >&4
        python3 -m venv "$folder" >venv.log 2>&1 || skip "python3 cannot make a virtual environment"
        "$folder/bin/pip" install -q -r "$wanted" >pip.log 2>&1 || skip "proxmoxer cannot be had: $(tail -n 1 pip.log)"
        touch "$folder/complete"
    fi
    echo "$folder/bin/python"
}

lab_proxmoxer() {
    local python
    python=$(need_proxmoxer)
    open_lab
    PYTHONWARNINGS=ignore "$python" "$LAB_CLIENTS/proxmoxer/vm_life.py" access.json >claims.txt 2>transcript.txt ||
        fail "after $(wc -l <claims.txt) claims: $(tail -n 1 transcript.txt)"
    lab_still_stands
    note "$("$python" -m pip list 2>/dev/null | sed -n 's/^proxmoxer */proxmoxer /p'): $(wc -l <claims.txt) claims in $(wc -l <transcript.txt) calls"
}

# --- Terraform ---

need_bpg() {
    need_tool terraform-provider-proxmox "$LAB_CLIENTS/bpg" go.mod "" github.com/bpg/terraform-provider-proxmox
}

# real_terraform ARGUMENT...: with the provider that was built here, and nothing of the user's.
real_terraform() {
    echo "--- terraform $* (workers: $TF_VAR_workers)"
    HOME=$WORK TF_CLI_CONFIG_FILE=$WORK/terraform.rc TF_IN_AUTOMATION=1 CHECKPOINT_DISABLE=1 terraform "$@" -no-color -input=false
}

# unchanged: a second look finds everything as it was described.
unchanged() {
    real_terraform plan -detailed-exitcode >>transcript.txt 2>&1 || fail "terraform sees changes in what it made: $(grep -m 1 -E '^ +[~+-] |Error' transcript.txt)"
}

lab_terraform_bpg() {
    local provider
    need_program terraform
    need_program curl
    provider=$(need_bpg)
    mkdir plugins
    ln -s "$provider" plugins/terraform-provider-proxmox
    printf 'provider_installation {\n  dev_overrides { "bpg/proxmox" = "%s" }\n  direct {}\n}\n' "$WORK/plugins" >terraform.rc
    cp "$LAB_CLIENTS/bpg/main.tf" .
    open_lab
    TF_VAR_endpoint=$(access pve url)
    TF_VAR_token=$(access pve token)
    TF_VAR_schematic=$(schematic)
    export TF_VAR_endpoint TF_VAR_token TF_VAR_schematic TF_VAR_workers=2

    real_terraform apply -auto-approve >>transcript.txt 2>&1 || fail "create: $(grep -m 1 -A 4 Error transcript.txt)"
    grep -q 'Resources: 8 added, 0 changed, 0 destroyed' transcript.txt || fail "not 3 images and 5 machines were made"
    grep -q '"10.0.0.22"' transcript.txt || fail "the agents did not tell the addresses"
    unchanged
    TF_VAR_workers=3
    real_terraform apply -auto-approve >>transcript.txt 2>&1 || fail "scale: $(grep -m 1 -A 4 Error transcript.txt)"
    grep -q 'Resources: 1 added, 0 changed, 0 destroyed' transcript.txt || fail "one worker more is not one machine more"
    unchanged
    real_terraform destroy -auto-approve >>transcript.txt 2>&1 || fail "destroy: $(grep -m 1 -A 4 Error transcript.txt)"
    grep -q 'Resources: 9 destroyed' transcript.txt || fail "not everything was destroyed"
    pve GET /cluster/resources type=vm | grep -q '"data":\[\]' || fail "VMs are left"
    lab_still_stands
    note "$(terraform version | sed -n 's/^Terraform /terraform /p'), provider v0.111.1: 3+2 made, unchanged, scaled to 3+3, unchanged, destroyed"
}

# pve METHOD PATH [NAME=VALUE...]: a call of the Proxmox API with curl.
pve() {
    local method=$1 path=$2 form=() pair
    shift 2
    for pair in "$@"; do form+=(--data-urlencode "$pair"); done
    [ "$method" != GET ] || form+=(--get)
    curl -sSkf -X "$method" -H "Authorization: PVEAPIToken=$(access pve token)" ${form[@]+"${form[@]}"} "$(access pve url)/api2/json$path"
}

# The provider has been asked for in every version from v0.4.0 to v0.12.0.
lab_terraform_talos() { skip "siderolabs/terraform-provider-talos cannot be had as a Go module in any version"; }

# --- recordings ---

lab_transcripts() {
    local folder=${ICHOR_TRANSCRIPTS:-$REPOSITORY/../shared/pve-transcripts}
    need_program cargo
    [ -d "$folder" ] || skip "no recordings beside the clone"
    cargo run -q --manifest-path "$REPOSITORY/Cargo.toml" -p xtask -- replay "$folder" --at-least 97 >replay.txt 2>replay.log ||
        fail "$(tail -n 1 replay.txt) $(tail -n 1 replay.log)"
    note "$(tail -n 1 replay.txt)"
}

row lab proxmoxer 1 lab_proxmoxer
row lab terraform-bpg 1 lab_terraform_bpg
row lab terraform-talos 1 lab_terraform_talos
row lab transcripts 1 lab_transcripts
