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

# pve METHOD PATH [NAME=VALUE...]: a call of the Proxmox API with curl.
pve() {
    local method=$1 path=$2 form=() pair
    shift 2
    for pair in "$@"; do form+=(--data-urlencode "$pair"); done
    [ "$method" != GET ] || form+=(--get)
    curl -sSkf -X "$method" -H "Authorization: PVEAPIToken=$(access pve token)" ${form[@]+"${form[@]}"} "$(access pve url)/api2/json$path"
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

lab_console() {
    local python
    need_program openssl
    python=$(need_proxmoxer)
    open_lab
    PYTHONWARNINGS=ignore "$python" "$LAB_CLIENTS/proxmoxer/console.py" access.json "127.$((60 + RANDOM % 180)).$((RANDOM % 250)).11" \
        >claims.txt 2>transcript.txt || fail "after $(wc -l <claims.txt) claims: $(tail -n 1 transcript.txt)"
    lab_still_stands
    note "$("$python" -m pip list 2>/dev/null | sed -n 's/^websocket-client */websocket-client /p'): $(wc -l <claims.txt) claims; the key on the console is the machine's"
}

# What ichor sends to Proxmox is what the library that proxmoxer stands on would send.
lab_forms() {
    local python ichor network
    ichor=$(need_verb up)
    need_program openssl
    python=$(need_proxmoxer)
    open_lab
    mkdir sent inventory
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ear.key -out ear.crt -days 1 -subj /CN=ear 2>ear.log
    "$python" -B "$LAB_CLIENTS/forms/listen.py" access.json ear.crt ear.key sent >ear.txt 2>>ear.log &
    EAR=$!
    # shellcheck disable=SC2064
    trap "kill $LAB $EAR 2>/dev/null || true" EXIT
    wait_for ear.txt '^port' "nobody listens: $(tail -n 1 ear.log)"
    network=127.$((60 + RANDOM % 180)).$((RANDOM % 250))
    cat >inventory/ichor.yaml <<TEXT
cluster: {name: forms, talos: $LAB_TALOS, kubernetes: $LAB_KUBERNETES}
proxmox:
  endpoint: https://127.0.0.1:$(sed -n 's/^port //p' ear.txt)
  token: {env: ICHOR_PVE_TOKEN}
  tls: {sha256: "$(openssl x509 -in ear.crt -noout -fingerprint -sha256 | cut -d = -f 2)"}
image: {factory: "$(access factory url)"}
network: {cidr: $network.0/24, gateway: $network.1, dns: [$network.1, $network.2]}
machines:
  cp: {role: control-plane, count: 1, address: $network.11}
  worker: {role: worker, count: 1, address: $network.21}
TEXT
    ICHOR_PVE_TOKEN=$(access pve token)
    # Who is misunderstood does not get far; what was sent until then is judged all the same.
    timeout 120 "$ichor" -f inventory up --yes >up.txt 2>&1 || touch misunderstood
    [ -e misunderstood ] || timeout 120 "$ichor" -f inventory destroy --yes >destroy.txt 2>&1 || touch misunderstood
    kill $EAR
    "$python" -B "$LAB_CLIENTS/forms/judge.py" sent >verdict.txt 2>judge.log || fail "$(tail -n 1 judge.log)"
    [ ! -e misunderstood ] || fail "ichor failed: $(grep -m 1 -hE 'error|stopped' up.txt destroy.txt)"
    lab_still_stands
    note "$("$python" -m pip list 2>/dev/null | sed -n 's/^requests  *\([0-9]\)/requests \1/p'): $(cat verdict.txt)"
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

# The provider has been asked for in every version from v0.4.0 to v0.12.0.
lab_terraform_talos() { skip "siderolabs/terraform-provider-talos cannot be had as a Go module in any version"; }

# --- Talos and Kubernetes ---

# open_cluster: makes three control planes and two workers in a new lab, on addresses of this computer, and sets
# NETWORK to the first three numbers of these. Their machine configs are in rendered/, see the inventory.
open_cluster() {
    local last url upid vmid
    need_program curl
    need_verb render >/dev/null
    open_lab
    # Another run on this computer has other addresses.
    NETWORK=127.$((60 + RANDOM % 180)).$((RANDOM % 250))
    mkdir inventory
    cat >inventory/ichor.yaml <<TEXT
cluster: {name: lab, talos: $LAB_TALOS, kubernetes: $LAB_KUBERNETES}
proxmox:
  endpoint: $(access pve url)
  token: {env: ICHOR_PVE_TOKEN}
  hosts: [pve1]
network: {cidr: $NETWORK.0/24, gateway: $NETWORK.1, dns: $NETWORK.1}
machines:
  cp: {role: control-plane, count: 3, address: $NETWORK.11}
  worker: {role: worker, count: 2, address: $NETWORK.21}
TEXT
    ichor_secrets_new inventory
    ichor_render inventory rendered
    url=https://factory.talos.dev/image/$(schematic)/$LAB_TALOS/nocloud-amd64.qcow2
    pve_task POST /nodes/pve1/storage/local/download-url url="$url" content=import filename=talos.qcow2
    for last in 11 12 13 21 22; do
        vmid=2$last
        pve_task POST /nodes/pve1/qemu vmid="$vmid" name="m$last" memory=4096 cores=2 cpu=x86-64-v2-AES \
            scsihw=virtio-scsi-single scsi0=local-lvm:0,import-from=local:import/talos.qcow2 ide2=local-lvm:cloudinit \
            net0=virtio,bridge=vmbr0 boot=order=scsi0 serial0=socket agent=1 ipconfig0="ip=$NETWORK.$last/24,gw=$NETWORK.1"
        pve PUT "/nodes/pve1/qemu/$vmid/resize" disk=scsi0 size=20G
        pve_task POST "/nodes/pve1/qemu/$vmid/status/start"
    done
}

# pve_task METHOD PATH [NAME=VALUE...]: starts a task and waits until it has ended well.
pve_task() {
    local upid tries=0
    upid=$(pve "$@" | sed 's/.*"data":"\([^"]*\)".*/\1/')
    until pve GET "/nodes/$(cut -d : -f 2 <<<"$upid")/tasks/$upid/status" >task.json && grep -q '"status":"stopped"' task.json; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "$2 takes too long"
        sleep 0.05
    done
    grep -q '"exitstatus":"OK"' task.json || fail "$2: $(cat task.json)"
}

# talos CLAIM NODE ARGUMENT...: the real talosctl speaks to a machine; everything goes to the transcript.
talos() {
    local claim=$1 node=$2 status=0
    shift 2
    printf -- '--- talosctl --nodes %s %s\n' "$NETWORK.$node" "$*" >>transcript.txt
    real_talosctl 13 --talosconfig rendered/talosconfig --nodes "$NETWORK.$node" "$@" >answer.txt 2>&1 || status=$?
    cat answer.txt >>transcript.txt
    [ $status -eq 0 ] || fail "$claim: $(tail -n 1 answer.txt)"
    echo "$claim" >>claims.txt
}

# says CLAIM PATTERN: what the last call was answered.
says() {
    grep -qE "$2" answer.txt || fail "$1: not in the answer: $2"
    echo "$1" >>claims.txt
}

# eventually CLAIM PATTERN CALL...: asks again, a hundred times at most, until the answer is as it should be.
eventually() {
    local claim=$1 pattern=$2 tries=0
    shift 2
    until (talos "$claim" "$@") && { [ -z "$pattern" ] || grep -qE "$pattern" answer.txt; }; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "$claim: $(tail -n 1 answer.txt)"
        sleep 0.1
    done
}

# bring_up: makes a cluster of the machines, with talosctl.
bring_up() {
    local machine
    eventually "a machine waits in maintenance mode" maintenance 11 get machinestatus --insecure
    for machine in cp-1=11 cp-2=12 cp-3=13 worker-1=21 worker-2=22; do
        eventually "${machine%=*} shows its disks" '\bsda\b' "${machine#*=}" get disks --insecure
        talos "${machine%=*} takes its config" "${machine#*=}" apply-config --insecure --file "rendered/machines/${machine%=*}.yaml"
    done
    eventually "etcd is bootstrapped" "" 11 bootstrap
    talos "the cluster is healthy" 11 health --wait-timeout 1m
}

lab_talosctl() {
    local talosctl status=0
    talosctl=$(need_talosctl 13)
    open_cluster
    bring_up
    talos "the client's own checks pass" 11 health --wait-timeout 1m --server=false \
        --control-plane-nodes "$NETWORK.11,$NETWORK.12,$NETWORK.13" --worker-nodes "$NETWORK.21,$NETWORK.22"
    talos "members are listed" 11 get members
    says "a worker is a member" 'worker-2 .*worker '
    talos "a machine runs" 21 get machinestatus --output yaml
    says "it is ready" 'ready: true'
    talos "services are listed" 11 service
    says "etcd runs" 'etcd +Running +OK'
    talos "a service tells its history" 11 service kubelet
    says "the kubelet is healthy" 'HEALTH +OK'
    talos "etcd has members" 12 etcd members
    [ "$(grep -c ':2380' answer.txt)" -eq 3 ] || fail "etcd has not three members"
    talos "etcd tells its status" 12 etcd status
    talos "etcd is written to a file" 11 etcd snapshot "$WORK/etcd.db"
    says "the file is sound" 'snapshot info: hash'
    talos "logs are read" 11 logs etcd
    talos "the kernel's messages are read" 11 dmesg
    says "Talos has booted" 'boot sequence: done'
    talos "a config is shown" 11 get machineconfig --output yaml
    talos "a machine makes a kubeconfig" 11 kubeconfig "$WORK/kubeconfig-of-talos"
    talos "a machine reboots" 21 reboot --timeout 1m
    says "talosctl saw it come back" 'post check passed'
    talos "a control plane is upgraded" 12 upgrade --timeout 1m --image "factory.talos.dev/nocloud-installer/$(schematic):$LAB_TALOS"
    says "talosctl saw it come back" 'post check passed'
    talos "a worker is upgraded" 22 upgrade --timeout 1m --image "factory.talos.dev/nocloud-installer/$(schematic):$LAB_TALOS"
    talos "the cluster is healthy again" 11 health --wait-timeout 1m
    talos "a worker is reset" 22 reset --timeout 1m --graceful --reboot --system-labels-to-wipe STATE --system-labels-to-wipe EPHEMERAL
    says "talosctl saw it in maintenance mode" 'post check passed'
    eventually "it waits for a config again" maintenance 22 get machinestatus --insecure
    talos "a worker is shut down" 21 shutdown --timeout 1m
    # A dashboard is a screen: it must be drawn, and go on until it is stopped.
    if command -v script >/dev/null; then
        HOME=$WORK TERM=xterm timeout 2 script -qec "stty rows 40 cols 120; '$talosctl' --talosconfig rendered/talosconfig --nodes $NETWORK.11 dashboard" dashboard.txt >/dev/null 2>&1 </dev/null || status=$?
        grep -q 'Summary' dashboard.txt || fail "the dashboard was not drawn (status $status)"
        grep -q "$NETWORK.11" dashboard.txt || fail "the dashboard does not show the machine"
        echo "the dashboard is drawn" >>claims.txt
    fi
    lab_still_stands
    note "$(real_talosctl 13 version --client --short | grep -o 'v1\.[0-9.]*' | head -n 1): $(wc -l <claims.txt) claims; apply, bootstrap, health, etcd, reboot, upgrade, reset, shutdown, dashboard"
}

# kube CLAIM ARGUMENT...: the real kubectl; everything goes to the transcript.
kube() {
    local claim=$1 status=0
    shift
    printf -- '--- kubectl %s\n' "$*" >>transcript.txt
    HOME=$WORK kubectl --kubeconfig kubeconfig "$@" >answer.txt 2>&1 || status=$?
    cat answer.txt >>transcript.txt
    [ $status -eq 0 ] || fail "$claim: $(tail -n 1 answer.txt)"
    echo "$claim" >>claims.txt
}

lab_kubectl() {
    local web=$LAB_CLIENTS/cluster/web.yaml
    need_program kubectl
    need_talosctl 13 >/dev/null
    open_cluster
    bring_up
    rm claims.txt
    ichor_kubeconfig inventory >kubeconfig
    kube "all nodes become ready" wait --for=condition=Ready nodes --all --timeout=60s
    kube "nodes are listed" get nodes --output wide
    [ "$(grep -c ' Ready ' answer.txt)" -eq 5 ] || fail "not five nodes are ready"
    says "they run the version of the inventory" "$LAB_KUBERNETES"
    kube "a namespace is made" create namespace shop
    kube "objects are applied" apply --server-side --field-manager conformance --namespace shop -f "$web"
    kube "and applied again" apply --server-side --field-manager conformance --namespace shop -f "$web"
    kube "the deployment becomes available" wait --namespace shop --for=condition=Available deployment/web --timeout=60s
    kube "its rollout ends" rollout status --namespace shop deployment/web --timeout=60s
    sed 's/replicas: 3/replicas: 4/' "$web" >more.yaml
    if HOME=$WORK kubectl --kubeconfig kubeconfig apply --server-side --field-manager stranger --namespace shop -f more.yaml >answer.txt 2>&1; then
        fail "another manager took over a field"
    fi
    says "another manager is told of the conflict" 'conflict'
    kube "fields have managers" get deployment web --namespace shop --show-managed-fields --output yaml
    says "the field manager is noted" 'manager: conformance'
    # All pods are on one worker, so that draining it must go one by one.
    kube "a worker is cordoned" cordon worker-2
    kube "pods move" delete pods --namespace shop --selector app=web --wait --timeout=60s
    kube "the deployment is available again" wait --namespace shop --for=condition=Available deployment/web --timeout=60s
    kube "the worker is uncordoned" uncordon worker-2
    kube "a worker is drained" drain worker-1 --ignore-daemonsets --delete-emptydir-data --timeout=60s
    says "pods were evicted" 'evict'
    kube "no pod of the shop is left there" get pods --namespace shop --output wide
    if grep -q 'Running.*worker-1' answer.txt; then fail "a pod stayed on the drained worker"; fi
    kube "the deployment survived" wait --namespace shop --for=condition=Available deployment/web --timeout=60s
    # With nowhere to go, the budget holds what is there.
    if HOME=$WORK kubectl --kubeconfig kubeconfig drain worker-2 --ignore-daemonsets --timeout=6s >answer.txt 2>&1; then
        fail "a drain went against the budget"
    fi
    cat answer.txt >>transcript.txt
    says "the budget stops a drain" 'disruption budget'
    kube "the workers are uncordoned" uncordon worker-1 worker-2
    kube "everything is deleted" delete --namespace shop -f "$web" --wait --timeout=60s
    kube "the namespace goes" delete namespace shop --wait --timeout=60s
    kube "the server tells its version" version
    lab_still_stands
    note "$(sed -n 's/^Client Version: /kubectl /p' answer.txt): $(wc -l <claims.txt) claims; get, apply --server-side, wait, drain with a budget, delete"
}

# --- recordings ---

lab_transcripts() {
    local folder=${ICHOR_TRANSCRIPTS:-$REPOSITORY/../shared/pve-transcripts}
    need_program cargo
    [ -d "$folder" ] || skip "no recordings beside the clone"
    cargo run -q --manifest-path "$REPOSITORY/Cargo.toml" -p xtask -- replay "$folder" --at-least 97 >replay.txt 2>replay.log ||
        fail "$(tail -n 1 replay.txt) $(tail -n 1 replay.log)"
    note "$(tail -n 1 replay.txt)"
}

# Tier 2 where a tool takes minutes to build, or a client waits for moments in the life of a machine.
row lab proxmoxer 1 lab_proxmoxer
row lab console 1 lab_console
row lab forms 1 lab_forms
row lab terraform-bpg 2 lab_terraform_bpg
row lab terraform-talos 2 lab_terraform_talos
row lab talosctl 2 lab_talosctl
row lab kubectl 2 lab_kubectl
row lab transcripts 1 lab_transcripts
