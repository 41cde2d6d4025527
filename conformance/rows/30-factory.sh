# The Image Factory's schematic package.

need_factory() { need_tool factory-judge "$HERE/factory" go.mod "" .; }

factory_vectors() {
    local factory
    factory=$(need_factory)
    "$factory" vectors "$HERE/factory/vectors.jsonl" >vectors.json || fail "$(head -n 1 vectors.json)"
    note "$(sed -E 's/.*"same":([0-9]+).*/\1 vectors/' vectors.json)"
}

factory_ichor_ids() {
    local counterpart factory
    counterpart=$(need_counterpart)
    factory=$(need_factory)
    cp "$HERE/factory/vectors.jsonl" cases.jsonl
    "$factory" random "${ICHOR_CONFORMANCE_SEED:-1}" 500 >>cases.jsonl
    "$counterpart" schematic <cases.jsonl >answers.jsonl
    compared "$factory" compare cases.jsonl answers.jsonl
}

factory_ichor_image() {
    local ichor factory inventory
    ichor=$(need_verb image id)
    factory=$(need_factory)
    inventory=$(own_copy "$REPOSITORY/examples/templates")
    "$factory" schematic <(printf 'customization:\n  systemExtensions:\n    officialExtensions: [siderolabs/qemu-guest-agent]\n') >real.json
    ichor_image_id "$inventory" >id.txt
    grep -qF "$(sed -E 's/.*"id":"([0-9a-f]+)".*/\1/' real.json)" id.txt || fail "ichor says $(cat id.txt), the factory $(cat real.json)"
}

row factory known-vectors 1 factory_vectors
row factory ichor-ids-alike 1 factory_ichor_ids
row factory ichor-image-id 1 factory_ichor_image
