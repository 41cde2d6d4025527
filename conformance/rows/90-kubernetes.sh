# A real control plane of Kubernetes that lives on the secrets of a cluster of ichor. Each row opens one of its own,
# on an address of this computer that nobody else has, and closes it; what its parts said is in the row's folder.

readonly KUBERNETES=$HERE/kubernetes
readonly KUBERNETES_RELEASE=v1.36.4

# need_kubernetes PROGRAM: one of kube-apiserver, kube-controller-manager, kube-scheduler and kubelet.
need_kubernetes() {
    local version=k8s.io/component-base/version
    CGO_ENABLED=0 need_tool "$1" "$KUBERNETES" go.mod "" "k8s.io/kubernetes/cmd/$1" \
        "-X $version.gitVersion=$KUBERNETES_RELEASE -X $version.gitMajor=1 -X $version.gitMinor=36"
}

need_etcd() {
    CGO_ENABLED=0 need_tool etcd "$KUBERNETES/etcd" go.mod "" go.etcd.io/etcd/server/v3
}

# part NAME COMMAND...: starts a part of the control plane, which ends with the row.
part() {
    local name=$1
    shift
    "$@" >"$name.log" 2>&1 &
    PARTS+=($!)
    trap end_parts EXIT
}

# end_parts: at once. An API server that is asked waits for minutes, if its etcd has gone before it.
end_parts() {
    kill -KILL "${PARTS[@]}" 2>/dev/null || true
    wait "${PARTS[@]}" 2>/dev/null || true
}

# answers PROGRAM ARGUMENT...: asks for a minute until there is an answer; the last part started must live.
answers() {
    local tries=0
    until "$@" >answer.txt 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] && kill -0 "${PARTS[-1]}" || return 1
        sleep 0.2
    done
}

# secret PATH...: a value of secrets.yaml by its keys.
secret() {
    python3 -c '
import sys
path, found = sys.argv[1:], []
for line in open("secrets.yaml", encoding="utf-8"):
    key, _, value = line.strip().partition(": ")
    level = (len(line) - len(line.lstrip())) // 4
    found[level:] = [key.rstrip(":")]
    if found == path:
        print(value.strip())
        break
else:
    sys.exit("no such secret: " + " ".join(path))' "$@"
}

# authorities: lays out the secrets of the inventory as the parts of a control plane read them.
authorities() {
    local name
    ichor_secrets_export inventory >secrets.yaml
    mkdir -p pki
    for name in etcd k8s k8saggregator; do
        secret certs $name crt | base64 -d >pki/$name.crt
        secret certs $name key | base64 -d >pki/$name.key
    done
    secret certs k8sserviceaccount key | base64 -d >pki/account.key
}

# issue NAME AUTHORITY SUBJECT USAGE [NAMES]: a certificate by one of ichor's authorities. On a node Talos makes these.
issue() {
    openssl ecparam -name prime256v1 -genkey -noout -out "pki/$1.key"
    openssl req -new -key "pki/$1.key" -subj "$3" -out "pki/$1.csr"
    {
        echo "basicConstraints = critical, CA:false"
        echo "keyUsage = critical, digitalSignature"
        echo "extendedKeyUsage = $4"
        [ -z "${5:-}" ] || echo "subjectAltName = $5"
    } >"pki/$1.ext"
    openssl x509 -req -in "pki/$1.csr" -CA "pki/$2.crt" -CAkey "pki/$2.key" -days 1 -extfile "pki/$1.ext" -out "pki/$1.crt" 2>"pki/$1.log" ||
        fail "openssl issues nothing with the authority $2: $(tail -n 1 "pki/$1.log")"
}

# kubeconfig_of NAME: what a part of the control plane knows the API server by.
kubeconfig_of() {
    cat >"$1.kubeconfig" <<TEXT
apiVersion: v1
kind: Config
clusters: [{name: judged, cluster: {server: "https://$ADDRESS:6443", certificate-authority: $WORK/pki/k8s.crt}}]
users: [{name: part, user: {client-certificate: $WORK/pki/$1.crt, client-key: $WORK/pki/$1.key}}]
contexts: [{name: part, context: {cluster: judged, user: part}}]
current-context: part
TEXT
}

# open_plane: a control plane on ADDRESS with the secrets of inventory/; `kubeconfig` is ichor's.
open_plane() {
    local etcd apiserver controllers scheduler url
    need_program openssl
    need_program python3
    need_verb kubeconfig >/dev/null
    etcd=$(need_etcd)
    apiserver=$(need_kubernetes kube-apiserver)
    controllers=$(need_kubernetes kube-controller-manager)
    scheduler=$(need_kubernetes kube-scheduler)
    PARTS=()
    # Another run on this computer has another address, and so the ports are free.
    ADDRESS=127.$((60 + RANDOM % 180)).$((RANDOM % 250)).11
    mkdir inventory
    cat >inventory/ichor.yaml <<TEXT
cluster: {name: judged, talos: $LAB_TALOS, kubernetes: $KUBERNETES_RELEASE}
proxmox:
  endpoint: https://pve1.lab.example:8006
  token: {env: ICHOR_PVE_TOKEN}
  hosts: [pve1]
network: {cidr: ${ADDRESS%.11}.0/24, gateway: ${ADDRESS%.11}.1, dns: ${ADDRESS%.11}.1}
machines:
  cp: {role: control-plane, count: 1, address: $ADDRESS}
TEXT
    ichor_secrets_new inventory
    authorities
    ichor_kubeconfig inventory >kubeconfig
    issue etcd-server etcd /CN=etcd serverAuth,clientAuth "IP:$ADDRESS"
    issue etcd-client etcd /CN=apiserver clientAuth
    issue apiserver k8s /CN=kube-apiserver serverAuth "IP:$ADDRESS,DNS:kubernetes"
    issue front-proxy k8saggregator /CN=front-proxy-client clientAuth
    issue controllers k8s /CN=system:kube-controller-manager clientAuth
    issue scheduler k8s /CN=system:kube-scheduler clientAuth
    kubeconfig_of controllers
    kubeconfig_of scheduler
    cat >encryption.yaml <<TEXT
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [secrets]
    providers:
      - secretbox: {keys: [{name: key2, secret: "$(secret secrets secretboxencryptionsecret)"}]}
      - identity: {}
TEXT
    url=https://$ADDRESS
    part etcd "$etcd" --data-dir etcd-data --name judged --listen-client-urls "$url:2379" --advertise-client-urls "$url:2379" \
        --listen-peer-urls "$url:2380" --initial-advertise-peer-urls "$url:2380" --initial-cluster "judged=$url:2380" \
        --client-cert-auth --trusted-ca-file pki/etcd.crt --cert-file pki/etcd-server.crt --key-file pki/etcd-server.key \
        --peer-client-cert-auth --peer-trusted-ca-file pki/etcd.crt --peer-cert-file pki/etcd-server.crt --peer-key-file pki/etcd-server.key
    # The lease of a node that nobody renews is noticed in seconds; the endpoints of a loopback address are refused.
    part apiserver "$apiserver" --bind-address "$ADDRESS" --advertise-address 192.0.2.1 --endpoint-reconciler-type none \
        --etcd-servers "$url:2379" --etcd-cafile pki/etcd.crt --etcd-certfile pki/etcd-client.crt --etcd-keyfile pki/etcd-client.key \
        --client-ca-file pki/k8s.crt --tls-cert-file pki/apiserver.crt --tls-private-key-file pki/apiserver.key \
        --requestheader-client-ca-file pki/k8saggregator.crt --requestheader-allowed-names front-proxy-client \
        --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
        --requestheader-extra-headers-prefix X-Remote-Extra- \
        --service-account-issuer "$url:6443" --service-account-key-file pki/account.key --service-account-signing-key-file pki/account.key \
        --authorization-mode Node,RBAC --anonymous-auth=false --encryption-provider-config encryption.yaml \
        --service-cluster-ip-range 10.96.0.0/12 --enable-admission-plugins NodeRestriction
    answers curl -sSf --cacert pki/k8s.crt --cert pki/controllers.crt --key pki/controllers.key "$url:6443/readyz" ||
        fail "the API server is not ready: $(tail -n 1 apiserver.log)"
    part controllers "$controllers" --kubeconfig controllers.kubeconfig --bind-address "$ADDRESS" --leader-elect=false \
        --use-service-account-credentials --service-account-private-key-file pki/account.key --root-ca-file pki/k8s.crt \
        --cluster-signing-cert-file pki/k8s.crt --cluster-signing-key-file pki/k8s.key \
        --node-monitor-period 1s --node-monitor-grace-period 6s
    part scheduler "$scheduler" --kubeconfig scheduler.kubeconfig --bind-address "$ADDRESS" --leader-elect=false
}

# all_parts_live: whoever visits, nothing ends.
all_parts_live() {
    local pid
    for pid in "${PARTS[@]}"; do kill -0 "$pid" || fail "a part of the control plane ended"; done
}

kubernetes_kubectl() {
    local token
    need_program kubectl
    need_program curl
    open_plane
    touch transcript.txt claims.txt
    kube "our administrator is known" auth whoami
    says "and is in the group that may do everything" 'system:masters'
    kube "and may do everything" auth can-i '*' '*' --all-namespaces
    kube "the server tells its version" version
    says "it is the release that was built" "Server Version: $KUBERNETES_RELEASE"

    # The authority of another cluster leads nowhere, in either direction.
    mkdir stranger
    sed 's/name: judged/name: stranger/' inventory/ichor.yaml >stranger/ichor.yaml
    ichor_secrets_new stranger
    ichor_kubeconfig stranger >stranger.kubeconfig
    if HOME=$WORK kubectl --kubeconfig stranger.kubeconfig version >answer.txt 2>&1; then fail "kubectl trusts a server of another cluster"; fi
    says "the server of another cluster is not trusted" 'certificate signed by unknown authority'
    if HOME=$WORK kubectl --kubeconfig stranger.kubeconfig --insecure-skip-tls-verify get namespaces >answer.txt 2>&1; then
        fail "the server trusts an administrator of another cluster"
    fi
    says "and its administrator is nobody here" 'Unauthorized|provide credentials'

    # The key of the service accounts signs, and the same key checks.
    kube "namespaces get an account" wait --for=create serviceaccount/default --timeout=60s
    kube "an account gets its token" create token default --duration 10m
    token=$(cat answer.txt)
    curl -sS --cacert pki/k8s.crt -H "Authorization: Bearer $token" "https://$ADDRESS:6443/api/v1/nodes" >answer.txt 2>&1
    says "and is known by it" 'system:serviceaccount:default:default'

    # Whoever the aggregator vouches for is that somebody.
    curl -sS --cacert pki/k8s.crt --cert pki/front-proxy.crt --key pki/front-proxy.key -H 'X-Remote-User: jane' \
        "https://$ADDRESS:6443/api/v1/nodes" >answer.txt 2>&1
    says "the aggregator's authority is trusted to name users" 'User \\"jane\\"'

    # What is secret is not readable in etcd.
    kube "a secret is kept" create secret generic hidden --from-literal word=ichor-was-here
    curl -sSf --cacert pki/etcd.crt --cert pki/etcd-client.crt --key pki/etcd-client.key \
        -d "{\"key\": \"$(printf /registry/secrets/default/hidden | base64)\"}" "https://$ADDRESS:2379/v3/kv/range" |
        python3 -c 'import base64, json, sys; sys.stdout.buffer.write(base64.b64decode(json.load(sys.stdin)["kvs"][0]["value"]))' >kept.bin
    grep -qa 'k8s:enc:secretbox:v1:key2' kept.bin || fail "the secret is not encrypted"
    if grep -qa ichor-was-here kept.bin; then fail "the secret can be read in etcd"; fi
    echo "and cannot be read in etcd" >>claims.txt
    kube "but can by who may" get secret hidden --output 'jsonpath={.data.word}'
    says "as it was" "$(printf ichor-was-here | base64)"
    all_parts_live
    note "$KUBERNETES_RELEASE, $(sed -n 's/^Client Version: /kubectl /p' transcript.txt | head -n 1): $(wc -l <claims.txt) claims; kubeconfig, all four authorities and keys"
}

# part_of_kubeconfig KEY: what is in it under a key, as PEM.
part_of_kubeconfig() { sed -n "s/^ *$1: *//p" kubeconfig | base64 -d; }

kubernetes_client() {
    local visitor
    visitor=$(need_example ichor-kube visitor)
    open_plane
    openssl ecparam -name prime256v1 -genkey -noout -out asker.key
    openssl req -new -key asker.key -subj /CN=asker | base64 -w 0 >asker.csr
    part_of_kubeconfig certificate-authority-data | openssl x509 -outform der -out authority.der
    part_of_kubeconfig client-certificate-data | openssl x509 -outform der -out client.der
    part_of_kubeconfig client-key-data | openssl pkcs8 -topk8 -nocrypt -outform der -out key.der
    "$visitor" "$ADDRESS" "$WORK" >claims.txt 2>visit.log || fail "after $(wc -l <claims.txt) claims: $(tail -n 1 visit.log)"
    all_parts_live
    note "$KUBERNETES_RELEASE: $(wc -l <claims.txt) claims; apply with conflicts, definitions, pages, watch, leases, cordon, eviction with a budget, signing"
}

row kubernetes kubectl-with-our-keys 1 kubernetes_kubectl
row kubernetes our-client 1 kubernetes_client
