# sops and ichor open what the other one sealed.

need_sops() {
    need_tool sops "$HERE/sops" go.mod "" github.com/getsops/sops/v3/cmd/sops
}

need_age_keygen() {
    need_tool age-keygen "$HERE/sops" go.mod "" filippo.io/age/cmd/age-keygen
}

sops_documents() {
    local sops keygen sealer
    need_program python3
    need_program ssh-keygen
    sops=$(need_sops)
    keygen=$(need_age_keygen)
    sealer=$(need_example ichor-sops sealer)
    mkdir documents
    python3 "$HERE/sops/judge.py" 100 "${ICHOR_CONFORMANCE_SEED:-1}" "$sops" "$keygen" "$sealer" "$WORK/documents" >said.txt ||
        fail "$(head -n 1 said.txt)"
    note "$(cat said.txt)"
}

# The program itself: what it keeps, sops reads; what sops changed, it reads.
sops_bundle() {
    local sops keygen ichor recipient
    ichor=$(need_verb secrets encrypt)
    sops=$(need_sops)
    keygen=$(need_age_keygen)
    cp "$REPOSITORY/examples/minimal/ichor.yaml" .
    local kept=.ichor/lab/secrets.sops.yaml keys=$WORK/config/sops/age/keys.txt
    own() { env -i PATH="$PATH" HOME="$WORK" XDG_CONFIG_HOME="$WORK/config" "$@"; }
    own "$ichor" secrets new >made.txt
    kept=$(echo .ichor/*/secrets.sops.yaml)
    [ "$(stat -c %a "$keys")" = 600 ] || fail "the identity can be read by others"
    own "$ichor" secrets export >plain.yaml
    own "$sops" decrypt "$kept" >theirs.yaml || fail "sops does not open what ichor keeps"
    python3 - plain.yaml theirs.yaml <<'END' || fail "sops sees other secrets"
import sys
# The values are the same text in both, whatever the indentation.
a, b = (sorted(open(name, encoding="utf-8").read().split()) for name in sys.argv[1:])
sys.exit(a != b)
END
    "$keygen" -o other.txt 2>/dev/null
    recipient=$("$keygen" -y other.txt)
    own "$ichor" secrets add-recipient "$recipient" >said.txt
    own SOPS_AGE_KEY_FILE=other.txt XDG_CONFIG_HOME="$WORK/nowhere" "$sops" decrypt "$kept" >/dev/null || fail "a recipient that ichor added cannot open it"
    own "$sops" rotate -i "$kept"
    own "$ichor" secrets export | cmp -s - plain.yaml || fail "ichor sees other secrets after sops rotated the key"
    own "$ichor" secrets remove-recipient "$recipient" >said.txt
    if own SOPS_AGE_KEY_FILE=other.txt XDG_CONFIG_HOME="$WORK/nowhere" "$sops" decrypt "$kept" >/dev/null 2>&1; then
        fail "a recipient that ichor removed still opens it"
    fi
    own SOPS_EDITOR="sed -i 1i#edited" "$sops" edit "$kept" || fail "sops does not edit what ichor keeps"
    own "$ichor" secrets export | cmp -s - plain.yaml || fail "ichor sees other secrets after sops edited the file"
    own "$ichor" secrets encrypt ichor.yaml >said.txt
    own "$sops" decrypt ichor.yaml >/dev/null || fail "sops does not open a file that ichor encrypted"
}

row sops documents-both-ways 1 sops_documents
row sops bundle-both-ways 1 sops_bundle
