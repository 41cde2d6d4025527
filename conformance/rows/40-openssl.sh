# openssl looks at certificates without knowing Talos.

# look_at SECRETS: every CA signs itself, is a CA, and belongs to its key.
look_at() {
    local judge name
    judge=$(need_judge 13)
    "$judge" pem "$1" pem
    for name in etcd k8s k8saggregator os; do
        openssl verify -check_ss_sig -CAfile pem/$name.crt pem/$name.crt >verify.txt 2>&1 || fail "$name: $(tail -n 1 verify.txt)"
        openssl x509 -in pem/$name.crt -noout -purpose | grep -qx 'SSL server CA : Yes' || fail "$name is no CA for servers"
        openssl x509 -in pem/$name.crt -noout -checkend $((9 * 365 * 86400)) >/dev/null || fail "$name ends in less than nine years"
        openssl x509 -in pem/$name.crt -noout -pubkey >certified.pub
        # openssl does not know Talos' label for Ed25519 keys; the content is plain PKCS#8.
        sed 's/ED25519 PRIVATE KEY/PRIVATE KEY/' pem/$name.key | openssl pkey -pubout >own.pub 2>/dev/null || fail "$name: the key cannot be read"
        cmp -s certified.pub own.pub || fail "$name: the key does not belong to the certificate"
    done
    openssl pkey -in pem/k8sserviceaccount.key -check -noout >/dev/null 2>&1 || fail "the service account key is not sound"
    openssl pkey -in pem/k8sserviceaccount.key -noout -text | grep -q '4096 bit' || fail "the service account key is not RSA 4096"
}

openssl_real_bundle() {
    need_program openssl
    look_at "$(real_secrets 13)"
}

openssl_ichor_bundle() {
    local inventory
    need_program openssl
    need_verb secrets new >/dev/null
    inventory=$(own_copy "$REPOSITORY/examples/minimal")
    ichor_secrets_new "$inventory"
    ichor_secrets_export "$inventory" >secrets.yaml
    look_at secrets.yaml
}

row openssl real-bundle-verifies 1 openssl_real_bundle
row openssl ichor-bundle-verifies 1 openssl_ichor_bundle
