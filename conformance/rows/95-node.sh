# Real Talos nodes, in namespaces of this computer. `ichor up` makes VMs in the lab's Proxmox, and each VM that runs
# there is a node here; see README.md for what this proves and where it ends. Everything is in network namespaces that
# end with the row, as do the nodes' cgroups.

readonly NODE=$HERE/node
# Outside the networks of pods and services.
readonly SITE_NETWORK=10.77.0

need_machined() {
    CGO_ENABLED=0 need_tool machined "$NODE" go.mod "" github.com/siderolabs/talos/internal/app/machined
}

# need_runtime PACKAGE: a program of containerd or a plugin of CNI.
need_runtime() {
    CGO_ENABLED=0 need_tool "${1##*/}" "$NODE/runtime" go.mod no_btrfs,no_zfs,no_devmapper "$1"
}

# need_own PROGRAM: a program of ours.
need_own() {
    local key
    key=$(cat "$NODE/programs/$1/main.go" | sha256sum | cut -c 1-12)
    CGO_ENABLED=0 need_tool "node-$1-$key" "$NODE/programs" go.mod "" "./$1"
}

# need_debian PACKAGE PATH: prints the path of a program from a Debian package, which is unpacked and not installed.
need_debian() {
    local folder
    need_program apt-get
    need_program dpkg-deb
    folder=$CACHE/debian-$1-$({ apt-cache policy "$1" | grep Candidate || true; } | sha256sum | cut -c 1-12)
    if [ ! -e "$folder/complete" ]; then
        mkdir -p "$folder"
        (cd "$folder" && apt-get download -q "$1") >"debian-$1.log" 2>&1 || skip "Debian's \`$1\` cannot be had"
        dpkg-deb -x "$folder/$1"_*.deb "$folder"
        touch "$folder/complete"
    fi
    echo "$folder/$2"
}

# need_namespaces: skips the row where a node cannot be put into namespaces.
need_namespaces() {
    need_namespace
    need_program python3
    unshare --mount --uts --ipc --pid --cgroup --fork true 2>/dev/null || skip "no namespaces of all kinds can be made here"
}

# lay_out_rootfs: what a node boots from, in rootfs/.
lay_out_rootfs() {
    local machined runtime=$WORK/runtime plugins=$WORK/plugins name path
    local containerd=github.com/containerd/containerd/v2/cmd plugin=github.com/containernetworking/plugins/plugins
    machined=$(need_machined)
    mkdir "$runtime" "$plugins"
    for name in "$containerd"/{containerd,containerd-shim-runc-v2}; do
        path=$(need_runtime "$name")
        ln -s "$path" "$runtime/${name##*/}"
    done
    for name in "$plugin"/{main/ptp,main/loopback,ipam/host-local}; do
        path=$(need_runtime "$name")
        ln -s "$path" "$plugins/${name##*/}"
    done
    BUSYBOX=$(need_debian busybox-static bin/busybox)
    "$NODE/rootfs" "$WORK/rootfs" "$(module_folder "$NODE" go.mod github.com/siderolabs/talos)" "$machined" "$runtime" \
        "$(need_debian runc usr/sbin/runc)" "$(need_own runc)" "$BUSYBOX" "$plugins"
}

# describe_images: the images that a node asks for, in images.json.
describe_images() {
    local name entries=""
    for name in kube-apiserver kube-controller-manager kube-scheduler; do
        entries+="\"$name:$KUBERNETES_RELEASE\": {\"usr/local/bin/$name\": \"$(need_kubernetes "$name")\"}, "
    done
    entries+="\"etcd:v3.6.12\": {\"usr/local/bin/etcd\": \"$(need_etcd)\"}, \"pause:3.10.1\": {\"pause\": \"$(need_own pause)\"}, "
    entries+="\"siderolabs/kubelet:$KUBERNETES_RELEASE\": {\"usr/local/bin/kubelet\": \"$(need_kubernetes kubelet)\", \"bin/busybox\": \"$BUSYBOX\", "
    for name in sh mount umount mkdir ls cat; do entries+="\"bin/$name\": \"-> busybox\", "; done
    entries+='"run/": "/", "var/run": "-> /run", "tmp/": "/", "etc/passwd": "= root:x:0:0:root:/:/bin/sh\n", "etc/group": "= root:x:0:\n"}'
    echo "{$entries}" >images.json
}

# at_site COMMAND...: where the machines are reached.
at_site() { nsenter --net="/proc/$LAB/ns/net" "$@"; }

# open_site CONTROL_PLANES [WORKERS]: a lab whose machines are real, and an inventory for it.
open_site() {
    local ichor
    ichor=$(need_verb up)
    need_namespaces
    need_program openssl
    lay_out_rootfs
    describe_images
    keep_sysctls save
    SITE="" IMAGES="" FRONT=""
    unshare --net sh -c 'ip link set lo up && exec "$0" lab serve --profile instant --port 0 --factory-port 0 --proxy-port 0 -o json' "$ichor" \
        >access.json 2>lab.log &
    LAB=$!
    trap close_site EXIT
    wait_for access.json '^}' "the lab did not open"
    mkdir -p nodes
    nsenter --net="/proc/$LAB/ns/net" python3 -B "$NODE/site.py" access.json "$WORK/rootfs" "$WORK/nodes" "$SITE_NETWORK" >site.txt 2>site.log &
    SITE=$!
    wait_for site.txt '^open' "the site did not open: $(tail -n 1 site.log)"
    nsenter --net="/proc/$LAB/ns/net" python3 -B "$NODE/images.py" "$SITE_NETWORK.1" 5000 images.json >images.txt 2>images.log &
    IMAGES=$!
    wait_for images.txt '^serving' "the images are not served: $(tail -n 1 images.log)"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout front.key -out front.crt -days 1 -subj /CN=front 2>front.log
    nsenter --net="/proc/$LAB/ns/net" python3 -B "$NODE/front.py" access.json nodes front.crt front.key >front.txt 2>>front.log &
    FRONT=$!
    wait_for front.txt '^port' "the front did not open: $(tail -n 1 front.log)"
    write_site_inventory inventory "$1" "${2:-0}"
}

# close_site: the nodes end first, because the site ends them.
close_site() {
    local pid
    for pid in $SITE $IMAGES $FRONT $LAB; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" || true
    done
    keep_sysctls restore
    # Layers and volumes are large, and were never meant to be read by people.
    rm -rf rootfs nodes/*/
}

# A kubelet sets these for the whole computer, which is not only its own here.
keep_sysctls() { # save|restore
    local file
    for file in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
        if [ "$1" = save ]; then
            mkdir -p "$WORK/sysctls/${file%/*}"
            cat "/proc/sys/$file" >"$WORK/sysctls/$file"
        elif [ -e "$WORK/sysctls/$file" ] && ! cmp -s "$WORK/sysctls/$file" "/proc/sys/$file"; then
            cat "$WORK/sysctls/$file" >"/proc/sys/$file" || echo "$file stays as the kubelet set it" >&2
        fi
    done
}

write_site_inventory() { # FOLDER CONTROL_PLANES WORKERS
    mkdir -p "$1"
    cat >"$1/ichor.yaml" <<TEXT
cluster: {name: real, talos: $LAB_TALOS, kubernetes: $KUBERNETES_RELEASE, discovery: false}
proxmox:
  endpoint: https://127.0.0.1:$(sed -n 's/^port //p' front.txt)
  token: {env: ICHOR_PVE_TOKEN}
  tls: {sha256: "$(openssl x509 -in front.crt -noout -fingerprint -sha256 | cut -d = -f 2)"}
image: {factory: "$(access factory url)"}
network: {cidr: $SITE_NETWORK.0/24, gateway: $SITE_NETWORK.1, dns: $SITE_NETWORK.1}
addons: {cni: none}
os:
  registries:
    registry.k8s.io: {mirrors: "http://$SITE_NETWORK.1:5000", skip_fallback: true}
    ghcr.io: {mirrors: "http://$SITE_NETWORK.1:5000", skip_fallback: true}
machines:
  cp: {role: control-plane, count: $2, address: $SITE_NETWORK.11}
  worker: {role: worker, count: $3, address: $SITE_NETWORK.21}
patches:
  - node.yaml
TEXT
    # There is no time server, and no room for what no judge looks at.
    cat >"$1/node.yaml" <<'TEXT'
machine:
  time: {disabled: true}
  kubelet:
    extraConfig: {failCgroupV1: false, oomScoreAdj: 0}
    extraArgs: {boot-id-file: /var/run/boot-id}
cluster:
  proxy: {disabled: true}
  coreDNS: {disabled: true}
TEXT
}

# real VERB...: ichor at the site.
real() { real_with inventory "$@"; }

# real_with INVENTORY VERB...
real_with() {
    local inventory=$1
    shift
    at_site env ICHOR_PVE_TOKEN="$(access pve token)" timeout --foreground 400 "$(need_ichor)" -f "$inventory" "$@"
}

# nodes_ready NUMBER: until kubectl sees so many, for two minutes.
nodes_ready() {
    local tries=0
    until at_site kubectl --kubeconfig kubeconfig get nodes >nodes.txt 2>&1 && [ "$(grep -c ' Ready ' nodes.txt)" -eq "$1" ]; do
        tries=$((tries + 1))
        [ $tries -lt 120 ] || fail "not $1 nodes are ready: $(tail -n 1 nodes.txt)"
        sleep 1
    done
}

# healthy: `health` finds nothing, within a minute; machines go on booting when their nodes are there.
healthy() {
    local tries=0
    until real health >health.txt 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 30 ] || fail "\`health\`: $(grep -m 1 -A 1 '^failed' health.txt)"
        sleep 2
    done
}

# keys_of INVENTORY FOLDER: who may call its machines, and whom they are known by.
keys_of() {
    local pair
    mkdir "$2"
    ichor_talosconfig "$1" >"$2/talosconfig" 2>/dev/null
    for pair in ca:authority crt:client key:key; do
        sed -n "s/^ *${pair%%:*}: *//p" "$2/talosconfig" | base64 -d | grep -v -- '-----' | base64 -d >"$2/${pair#*:}.der"
    done
}

# call WHAT ARGUMENT...: ichor's client at a machine; what holds is added to the claims.
call() {
    local caller
    caller=$(need_example ichor-talos caller)
    at_site "$caller" "$@" >>claims.txt 2>call.log || fail "$1, after $(wc -l <claims.txt) claims: $(tail -n 1 call.log)"
}

# site_task METHOD PATH [PARAMETER...]: a task of the lab's Proxmox, which is reached from the site alone.
site_task() {
    curl() { at_site curl "$@"; }
    pve_task "$@"
    unset -f curl
}

# switch_on NAME LAST: makes a VM in the lab's Proxmox, and waits for the key of the machine in it, which KEY is then.
switch_on() {
    local hosts=/nodes/pve1/qemu
    site_task POST $hosts vmid="90$2" name="$1" memory=4096 cores=2 net0=virtio,bridge=vmbr0 ide2=local-lvm:cloudinit \
        ipconfig0="ip=$SITE_NETWORK.$2/24,gw=$SITE_NETWORK.1"
    site_task POST "$hosts/90$2/status/start"
    wait_for "nodes/$1.log" 'server certificate issued' "$1 shows no key"
    KEY=$(sed -n 's/.*server certificate issued.*"fingerprint": "\([^"]*\)".*/\1/p' "nodes/$1.log" | tail -n 1)
}

# give_config NAME LAST: a machine that was just switched on gets its config from ichor's client.
give_config() {
    local config
    ichor_render inventory rendered >/dev/null 2>&1
    config=$(machine_configs rendered | grep -m 1 "$1") || fail "no config of $1 was rendered"
    call maintenance "$SITE_NETWORK.$2" "$KEY" ours "$config"
}

node_maintenance() {
    need_example ichor-talos caller >/dev/null
    open_site 1
    ichor_secrets_new inventory
    keys_of inventory ours
    switch_on cp-1 11
    give_config cp-1 11
    note "Talos $LAB_TALOS: $(wc -l <claims.txt) claims; the key it printed, another key, a config, mutual TLS"
}

# Without the front, the console shows the key of the lab's own machine. To ichor, the node is a stranger at its address.
node_wrong_key() {
    local status=0
    open_site 1
    sed -i "s|endpoint: .*|endpoint: $(access pve url)|; s|sha256: .*}|sha256: \"$(access pve sha256)\"}|" inventory/ichor.yaml
    timeout 120 nsenter --net="/proc/$LAB/ns/net" env ICHOR_PVE_TOKEN="$(access pve token)" "$(need_ichor)" -f inventory up --yes >up.txt 2>&1 || status=$?
    [ $status -ne 0 ] || fail "\`up\` gave the secrets to a machine with another key"
    wait_for nodes/cp-1.log 'server certificate issued' "the node did not come up"
    KEY=$(sed -n 's/.*server certificate issued.*"fingerprint": "\([^"]*\)".*/\1/p' nodes/cp-1.log | tail -n 1)
    grep -qF "$KEY" up.txt || fail "\`up\` does not name the key that it saw: $(grep -m 1 -iE 'error|trust' up.txt)"
    if grep -q 'received\|applying\|config.*applied' nodes/cp-1.log; then fail "the node was given a config"; fi
    note "$(grep -m 1 -oiE 'the server.s key has the fingerprint.*' up.txt | cut -c 1-120)"
}

node_cluster() { # CONTROL_PLANES
    local last
    need_program kubectl
    need_example ichor-talos caller >/dev/null
    open_site "$1"
    real up --yes >up.txt 2>&1 || fail "\`up\`: $(grep -m 1 -E 'error|stopped' up.txt)"
    [ "$(grep -c '^console' front.txt)" -ge "$1" ] || fail "\`up\` did not read the keys from the consoles"
    ichor_kubeconfig inventory >kubeconfig 2>/dev/null
    nodes_ready "$1"
    real status >status.txt 2>&1 || fail "\`status\`: $(tail -n 1 status.txt)"
    grep -q "etcd $1/$1, nodes $1/$1 ready" status.txt || fail "\`status\` sees something else: $(grep -m 1 etcd status.txt)"
    healthy
    real up --yes >again.txt 2>&1 || fail "a second \`up\`: $(grep -m 1 error again.txt)"
    if grep -q ' + ' again.txt; then fail "a second \`up\` did something: $(grep -m 1 ' + ' again.txt)"; fi

    # Another cluster at the same addresses touches nothing.
    mkdir stranger
    cp inventory/node.yaml stranger/
    sed 's/name: real/name: stranger/' inventory/ichor.yaml >stranger/ichor.yaml
    ichor_secrets_new stranger >/dev/null 2>&1
    if real_with stranger up --yes >stranger.txt 2>&1; then fail "a cluster was made at the addresses of another"; fi
    grep -q 'ICH-3109' stranger.txt && grep -q 'a machine of another cluster answers there' stranger.txt ||
        fail "another cluster's machine is not known as one: $(grep -m 1 error stranger.txt)"
    [ "$(grep -c '^began' site.txt)" -eq "$1" ] || fail "a machine was begun at the address of another"
    nodes_ready "$1"
    keys_of inventory ours
    keys_of stranger others
    # What was there when the snapshot was taken is there when it is restored.
    at_site kubectl --kubeconfig kubeconfig create configmap kept --from-literal word=kept >/dev/null
    for last in $(seq 11 $((10 + $1))); do
        call node "$SITE_NETWORK.$last" ours others "cp-$((last - 10))" "$1" "snapshot-$last"
    done
    note "Talos $LAB_TALOS, Kubernetes $KUBERNETES_RELEASE: $(grep -o 'etcd.*ready' status.txt); $(wc -l <claims.txt) claims"
}

# A run is killed in the middle, the cluster grows, and a machine loses its power.
node_grows() {
    local up vmid host
    need_program kubectl
    open_site 1
    nsenter --net="/proc/$LAB/ns/net" env ICHOR_PVE_TOKEN="$(access pve token)" "$(need_ichor)" -f inventory up --yes >killed.txt 2>&1 &
    up=$!
    wait_for killed.txt 'apply the machine config: done' "\`up\` does not get anywhere"
    kill -KILL $up
    wait $up || true
    real up --yes >up.txt 2>&1 || fail "\`up\` after a killed one: $(grep -m 1 -E 'error|stopped' up.txt)"
    [ "$(grep -c '^began' site.txt)" -eq 1 ] || fail "a second \`up\` made another machine"
    ichor_kubeconfig inventory >kubeconfig 2>/dev/null
    nodes_ready 1

    write_site_inventory inventory 3 1
    real up --yes >grown.txt 2>&1 || fail "growing: $(grep -m 1 -E 'error|stopped' grown.txt)"
    nodes_ready 4
    real status >status.txt 2>&1
    grep -q 'etcd 3/3, nodes 4/4 ready' status.txt || fail "\`status\` sees something else: $(grep -m 1 etcd status.txt)"

    read -r vmid host < <(awk '$1 == "cp-3" { print $3, $4 }' status.txt)
    site_task POST "/nodes/$host/qemu/$vmid/status/stop"
    wait_for site.txt '^ended cp-3' "the machine did not lose its power"
    if real health >lost.txt 2>&1; then fail "\`health\` misses nothing"; fi
    grep -q 'cp-3' lost.txt || fail "\`health\` does not name the machine that is off"
    # To Kubernetes the node is as ready as before, for a while; `up` must know better.
    real up --yes >back.txt 2>&1 || fail "switching it on again: $(grep -m 1 -E 'error|stopped' back.txt)"
    at_site kubectl --kubeconfig kubeconfig get node cp-3 --output 'jsonpath={.status.nodeInfo.bootID}' >boot.txt
    { [ -s boot.txt ] && grep -qF "$(cat boot.txt)" nodes/cp-3/boot_id; } || fail "\`up\` took the node of an earlier boot for that of this one"
    nodes_ready 4
    healthy
    [ "$(grep -c '^began' site.txt)" -eq 5 ] || fail "other machines were made than four, and one twice"
    note "Talos $LAB_TALOS: killed and resumed, 1 to 3+1 machines, power lost and back: $(grep -o 'etcd.*ready' status.txt)"
}

# lose NAME: deletes the VM of a machine behind ichor's back.
lose() {
    local vmid host
    read -r vmid host < <(awk -v name="$1" '$1 == name { print $3, $4 }' status.txt)
    site_task POST "/nodes/$host/qemu/$vmid/status/stop"
    site_task DELETE "/nodes/$host/qemu/$vmid"
    wait_for site.txt "^deleted $1" "the machine does not end"
}

# replace_control_plane NAME OTHER LAST: a control plane is lost with its VM. While OTHER does not answer either, its vote
# must not go; then `up` takes it out of etcd and makes another machine.
replace_control_plane() {
    local began
    began=$(grep -c '^began' site.txt)
    lose "$1"
    at_site ip route add unreachable "$SITE_NETWORK.$3"
    if real up --yes --only "$1" >refused.txt 2>&1; then fail "\`up\` went on though etcd could not do without the vote"; fi
    at_site ip route del unreachable "$SITE_NETWORK.$3"
    grep -q 'ICH-3125' refused.txt && grep -q "1 of the 2 voters that would be left answer, and 2 are needed; silent, or not in the inventory: .$2" refused.txt ||
        fail "the quorum is not why \`up\` refuses: $(grep -m 1 error refused.txt)"
    [ "$(grep -c '^began' site.txt)" -eq "$began" ] || fail "a machine was begun"
    real status >lost.txt 2>&1 || true
    grep -q "stale member of etcd: $1" lost.txt || fail "the vote of $1 is gone: $(grep -m 1 etcd lost.txt)"
    real up --yes >replaced.txt 2>&1 || fail "replacing $1: $(grep -m 1 -E 'error|stopped' replaced.txt)"
    grep -q 'take the vote of the lost machine out of etcd.*: done' replaced.txt || fail "the old vote of $1 was not taken out by \`up\`"
    [ "$(grep -c '^began' site.txt)" -eq $((began + 1)) ] || fail "not one machine was begun"
    nodes_ready 3
    real status >status.txt 2>&1
    grep -q 'etcd 3/3, nodes 3/3 ready' status.txt || fail "\`status\` sees something else: $(grep -m 1 etcd status.txt)"
    healthy
}

# After the loss of a control plane, and then of everything but the secrets and a snapshot.
node_restore() {
    node_cluster 3
    replace_control_plane cp-3 cp-2 12
    call remove "$SITE_NETWORK.11" ours cp-3
    real destroy --yes >destroy.txt 2>&1 || fail "\`destroy\`: $(grep -m 1 error destroy.txt)"
    wait_for site.txt '^deleted cp-1' "the nodes did not end"
    switch_on cp-1 11
    give_config cp-1 11
    call recover "$SITE_NETWORK.11" ours snapshot-11
    wait_for_word kept
    note "Talos $LAB_TALOS: 3 control planes, one lost and replaced, a member removed, all destroyed, etcd restored on a new machine; $(wc -l <claims.txt) claims"
}

# wait_for_word WORD: until the config map that was made before is seen, for two minutes.
wait_for_word() {
    local tries=0
    until at_site kubectl --kubeconfig kubeconfig get configmap kept --output 'jsonpath={.data.word}' >word.txt 2>&1 && grep -q "^$1$" word.txt; do
        tries=$((tries + 1))
        [ $tries -lt 120 ] || fail "what was in the snapshot is not there: $(tail -n 1 word.txt)"
        sleep 1
    done
}

row node maintenance-mode 2 node_maintenance
row node wrong-key 2 node_wrong_key
row node one-control-plane 2 node_cluster 1
row node grows-and-loses-power 2 node_grows
row node three-control-planes-and-restore 2 node_restore
