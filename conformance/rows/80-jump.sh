# A real OpenSSH server is the only way to the lab: lab and machines are in a network namespace of their own, and what
# this computer reaches of it is the sshd that serves each connection there. See README.md.

readonly JUMP=$HERE/jump

# need_namespace: skips the row where no network namespace can be made.
need_namespace() {
    need_program unshare
    need_program nsenter
    need_program ip
    unshare --net true 2>/dev/null || skip "no network namespace can be made here; it takes root"
}

# need_sshd: prints the path of the machine's OpenSSH server.
need_sshd() {
    local path
    for path in "$(command -v sshd || true)" /usr/sbin/sshd; do
        if [ -x "$path" ]; then
            # It wants a folder of its own, which its service makes at boot.
            mkdir -p /run/sshd || skip "sshd has no /run/sshd"
            echo "$path"
            return
        fi
    done
    skip "no \`sshd\` on this machine: apt-get install openssh-server"
}

# wait_for FILE PATTERN WHAT: until a file says something, for a minute.
wait_for() {
    local tries=0
    until grep -qs -- "$2" "$1"; do
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || fail "$3"
        sleep 0.05
    done
}

# open_gate: a lab in a namespace, an sshd in front of it, and an inventory in inventory/ that jumps over it.
open_gate() {
    local ichor sshd
    ichor=$(need_verb tunnel)
    sshd=$(need_sshd)
    need_program ssh-keygen
    need_program python3
    mkdir -p home/.ssh sshd inventory
    chmod 700 home/.ssh
    ssh-keygen -q -t ed25519 -N '' -f home/.ssh/id_ed25519
    ssh-keygen -q -t ed25519 -N '' -f sshd/host
    ssh-keygen -q -t ed25519 -N '' -f sshd/other
    cat >sshd/config <<TEXT
HostKey $WORK/sshd/host
AuthorizedKeysFile $WORK/home/.ssh/id_ed25519.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PidFile none
TEXT
    unshare --net sh -c 'ip link set lo up && exec "$0" lab serve --port 0 --factory-port 0 --proxy-port 0 -o json' "$ichor" \
        >access.json 2>lab.log &
    LAB=$!
    # shellcheck disable=SC2064
    trap "kill $LAB 2>/dev/null || true" EXIT
    wait_for access.json '^}' "the lab did not open"
    python3 "$JUMP/gate.py" "$LAB" "$WORK/sshd.log" "$sshd" -i -e -f "$WORK/sshd/config" >gate.txt 2>gate.log &
    GATE=$!
    # shellcheck disable=SC2064
    trap "kill $LAB $GATE 2>/dev/null || true" EXIT
    wait_for gate.txt '^[0-9]' "the gate did not open"
    cat >inventory/ichor.yaml <<TEXT
cluster: {name: jump, talos: $LAB_TALOS, kubernetes: $LAB_KUBERNETES}
proxmox:
  endpoint: $(access pve url)
  token: {env: ICHOR_PVE_TOKEN}
  tls: {sha256: "$(access pve sha256)"}
  jump: ssh://$(id -un)@127.0.0.1:$(head -n 1 gate.txt)
image: {factory: "$(access factory url)"}
network: {cidr: 127.88.0.0/24, gateway: 127.88.0.1, dns: 127.88.0.1}
machines:
  cp: {role: control-plane, count: 3, address: 127.88.0.11}
  worker: {role: worker, count: 2, address: 127.88.0.21}
TEXT
}

# jumping VERB...: with a home of its own, and the lab's token.
jumping() {
    local ichor
    ichor=$(need_ichor)
    # In place of the subshell, so that whoever ends that ends ichor.
    (exec env HOME="$WORK/home" SSH_AUTH_SOCK= ICHOR_PVE_TOKEN="$(access pve token)" "$ichor" -f inventory "$@")
}

jump_openssh() {
    local status=0 port up
    need_namespace
    open_gate

    # Nothing but the gate leads there.
    sed '/jump:/d' inventory/ichor.yaml >direct.yaml
    if HOME=$WORK/home ICHOR_PVE_TOKEN=$(access pve token) "$(need_ichor)" -f direct.yaml status >direct.txt 2>&1; then
        fail "the lab is reached without the jump"
    fi
    grep -q 'ICH-3101' direct.txt || fail "without the jump: $(head -n 1 direct.txt)"

    # An unknown host is refused with the line that makes it known, and no other key will do then.
    jumping status >unknown.txt 2>&1 || status=$?
    [ $status -eq 4 ] && grep -q 'ICH-3151' unknown.txt || fail "an unknown host is not refused: $(head -n 1 unknown.txt)"
    grep -qF "$(ssh-keygen -lf sshd/host.pub | cut -d ' ' -f 2)" unknown.txt || fail "its fingerprint is not that of ssh-keygen"
    grep -E '^ +echo ' unknown.txt | sh
    jumping status >status.txt 2>&1 || fail "what was said to make it known does not: $(head -n 1 status.txt)"

    # The whole of `up`, with the connection killed in the middle of it.
    jumping up --yes >up.txt 2>&1 &
    up=$!
    wait_for up.txt 'apply the machine config \.\.\.' "\`up\` does not get anywhere: $(tail -n 1 up.txt)"
    kill -USR1 "$GATE"
    wait "$up" || fail "\`up\` did not survive a dropped connection: $(grep -m 1 -E 'error|stopped' up.txt)"
    [ "$(grep -c visit gate.txt)" -ge 4 ] || fail "the connection was not dropped"
    jumping status >status.txt 2>&1
    grep -q 'etcd 3/3, nodes 5/5 ready' status.txt || fail "the cluster is not ready: $(sed -n 2p status.txt)"
    jumping plan >plan.txt 2>&1
    if grep -q ' + ' plan.txt; then fail "a second \`up\` would do something: $(grep -m 1 ' + ' plan.txt)"; fi

    # kubectl through `ichor tunnel`.
    env HOME="$WORK/home" SSH_AUTH_SOCK= "$(need_ichor)" -f inventory tunnel >tunnel.txt 2>tunnel.log &
    # shellcheck disable=SC2064
    trap "kill $LAB $GATE $! 2>/dev/null || true" EXIT
    wait_for tunnel.txt HTTPS_PROXY "the tunnel did not open: $(tail -n 1 tunnel.log)"
    port=$(sed -n 's/.*HTTPS_PROXY=.*:\([0-9]*\).$/\1/p' tunnel.txt)
    jumping kubeconfig --offline --proxy-url "socks5://127.0.0.1:$port" --out "$WORK/kubeconfig" 2>/dev/null
    if command -v kubectl >/dev/null; then
        kubectl --kubeconfig kubeconfig get nodes >nodes.txt 2>&1 || fail "kubectl through the tunnel: $(tail -n 1 nodes.txt)"
        [ "$(grep -c ' Ready ' nodes.txt)" -eq 5 ] || fail "kubectl sees other nodes"
    fi

    # Another host with the same name.
    sed -i 's|sshd/host|sshd/other|' sshd/config
    status=0
    jumping status >changed.txt 2>&1 || status=$?
    [ $status -eq 4 ] || fail "a host with another key is trusted"
    for key in host other; do
        grep -qF "$(ssh-keygen -lf "sshd/$key.pub" | cut -d ' ' -f 2)" changed.txt || fail "a changed key is not shown with both fingerprints"
    done
    lab_still_stands
    note "$(ssh -V 2>&1 | cut -d , -f 1): 3+2 up over $(grep -c visit gate.txt) logins, one torn; known, unknown and changed keys; kubectl through \`ichor tunnel\`"
}

row jump openssh 1 jump_openssh
