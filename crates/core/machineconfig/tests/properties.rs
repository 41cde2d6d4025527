//! What holds for any config and any patch.

use ichor_machineconfig::{
    Config, Patch, apply, emit,
    schema::{self, Struct, Type},
};
use ichor_model::{Minor, SourceId};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z0-9.:/ -]{0,12}",
        "[ -~\\n\\t]{0,24}",
        "\\PC{0,8}",
        prop::sample::select(vec![
            "yes",
            "0644",
            "~",
            "null",
            "1_0",
            "2001-01-01",
            "- a",
            "a: b",
            "#x",
            "\u{2028}"
        ])
        .prop_map(str::to_owned),
    ]
}

fn free() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn free_map() -> BoxedStrategy<Value> {
    prop::collection::btree_map(text(), free(), 0..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
        .boxed()
}

fn words(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    prop::sample::select(words).prop_map(Value::from).boxed()
}

/// Any value that a type takes.
fn value(kind: Type) -> BoxedStrategy<Value> {
    match kind {
        Type::Text | Type::Manifest | Type::Expression => text().prop_map(Value::from).boxed(),
        Type::Argument => prop_oneof![
            text().prop_map(Value::from),
            prop::collection::vec(text(), 0..3).prop_map(Value::from)
        ]
        .boxed(),
        Type::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Type::Int(low, high) => {
            let high = i64::try_from(high).unwrap_or(i64::MAX);
            prop_oneof![Just(0_i64), low..=high].prop_map(Value::from).boxed()
        }
        Type::Octal => (0..0o7777_u32).prop_map(Value::from).boxed(),
        Type::Duration => words(&["0s", "90s", "1h", "1.5ms"]),
        Type::Url(_) => words(&["", "https://a:1", "http://b/c?d#e", "tcp://u:p@h:1/"]),
        Type::Enum(choice) => words(choice.words),
        Type::Table => words(&["main", "10", "unspec"]),
        Type::Address => words(&["10.0.0.1", "fd00::1", "fe80::1%eth0"]),
        Type::Prefix => words(&["10.0.0.0/8", "fd00::/64"]),
        Type::AddressPort => words(&["10.0.0.1:1", "[fd00::1]:2"]),
        Type::Mac => words(&["", "aa:bb", "AABBCC"]),
        Type::ByteSize => words(&["1GB", "2GiB", "-3MB"]),
        Type::Size => words(&["1GB", "20%"]),
        Type::DiskSize => words(&["1GB", "1", "1GiB"]),
        Type::SizeMatcher => words(&[">= 1GB", "2TB"]),
        Type::Base64 => words(&["", "YQ==", "Yg=="]),
        Type::PortRange => prop_oneof![any::<u16>().prop_map(Value::from), words(&["1-2"])].boxed(),
        Type::Free => free_map(),
        Type::List(item) => prop::collection::vec(value(*item), 0..3).prop_map(Value::from).boxed(),
        Type::Map(item) => prop::collection::btree_map(text(), value(*item), 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed(),
        Type::Struct(body) | Type::Pem(body) => fields(body, 3),
    }
}

/// A few of the fields of a map.
fn fields(body: &Struct, most: usize) -> BoxedStrategy<Value> {
    let all: Vec<_> = body.fields.iter().collect();
    if all.is_empty() {
        return Just(json!({})).boxed();
    }
    let most = most.min(all.len());
    prop::sample::subsequence(all, 0..=most)
        .prop_flat_map(|some| {
            let pairs: Vec<_> =
                some.iter().map(|field| value(field.kind).prop_map(|v| (field.name.to_owned(), v))).collect();
            pairs.prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>()))
        })
        .boxed()
}

/// A document of any kind.
fn document() -> BoxedStrategy<Value> {
    let kinds: Vec<_> = schema::kinds().collect();
    prop::sample::select(kinds)
        .prop_flat_map(|kind| {
            fields(&kind.body, 6).prop_map(move |body| {
                let mut document = if kind.is_legacy() {
                    json!({"machine": {}})
                } else {
                    json!({"apiVersion": "v1alpha1", "kind": kind.name})
                };
                if let (Value::Object(document), Value::Object(body)) = (&mut document, body) {
                    document.extend(body);
                    if kind.named {
                        document.insert("name".to_owned(), json!("one"));
                    }
                }
                document
            })
        })
        .boxed()
}

fn config() -> impl Strategy<Value = Config> {
    document().prop_map(|document| Config::from_json(&[document]).unwrap_or_else(|f| panic!("{f:#?}")))
}

/// Keeps maps and single values alone: lists are appended, so patching with them twice is not once.
fn without_lists(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_array());
            Value::Object(kept.map(|(key, value)| (key, without_lists(value))).collect())
        }
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn writing_and_reading_is_a_fixed_point(config in config()) {
        let written = emit(&config);
        let again = Config::parse(SourceId(0), written.as_bytes()).map_err(|f| TestCaseError::fail(format!("{f:#?}\n{written}")))?;
        prop_assert_eq!(emit(&again), written);
    }

    #[test]
    fn an_empty_patch_changes_nothing(config in config(), minor in 8..=14_u64) {
        for empty in ["", "---\n", "# nothing\n", "[]", "version:\n"] {
            let Ok(patch) = Patch::parse("empty", SourceId(1), empty.as_bytes()) else { continue };
            let same = apply(&config, &[patch], Minor::new(1, minor));
            prop_assert_eq!(same.as_ref().ok(), Some(&config));
        }
    }

    #[test]
    fn patching_with_maps_and_scalars_twice_is_patching_once(
        config in config(), patch in document().prop_map(without_lists), minor in 12..=14_u64,
    ) {
        let Ok(patch) = Patch::from_json("twice", None, &patch) else { return Ok(()) };
        let once = apply(&config, std::slice::from_ref(&patch), Minor::new(1, minor));
        // Two users in URLs and size matchers cannot be merged at all.
        let Ok(once) = once else { return Ok(()) };
        if let Ok(twice) = apply(&once, &[patch], Minor::new(1, minor)) {
            prop_assert_eq!(emit(&twice), emit(&once));
        }
    }

    #[test]
    fn lists_are_appended_in_order(lists in prop::collection::vec(prop::collection::vec("[a-z]{1,3}", 0..4), 1..5)) {
        let base = Config::parse(SourceId(0), b"machine: {}").expect("reads");
        let patches: Vec<_> = lists.iter().map(|list| {
            Patch::from_json("list", None, &json!({"machine": {"certSANs": list}})).expect("reads")
        }).collect();
        let config = apply(&base, &patches, Minor::new(1, 13)).expect("applies");
        let sans = config.legacy_value("machine.certSANs").and_then(|node| node.as_list()).unwrap_or_default();
        let sans: Vec<_> = sans.iter().filter_map(|node| node.as_text()).collect();
        prop_assert_eq!(sans, lists.concat());
    }

    #[test]
    fn deleting_what_a_patch_added_gives_it_back(label in "[a-z]{1,8}") {
        let base = Config::parse(SourceId(0), b"machine: {nodeLabels: {UPPER: x}}").expect("reads");
        let add = Patch::from_json("add", None, &json!({"machine": {"nodeLabels": {label.clone(): "y"}}})).expect("reads");
        let delete = json!({"machine": {"nodeLabels": {label: {"$patch": "delete"}}}});
        let delete = Patch::from_json("delete", None, &delete).expect("reads");
        let config = apply(&base, &[add, delete], Minor::new(1, 13)).expect("applies");
        prop_assert_eq!(config, base);
    }

    #[test]
    fn any_patch_applies_or_is_refused_with_remedies(a in document(), b in document(), minor in 8..=14_u64) {
        let Ok(config) = Config::from_json(&[a]) else { return Ok(()) };
        let Ok(patch) = Patch::from_json("any", None, &b) else { return Ok(()) };
        if let Err(findings) = apply(&config, &[patch], Minor::new(1, minor)) {
            prop_assert!(findings.iter().all(|finding| finding.remedy.is_some()));
        }
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), yaml in "[-:{}\\[\\]&*!|>'\"%@`#,? \\na-z0-9$~]{0,80}") {
        for bytes in [bytes.as_slice(), yaml.as_bytes()] {
            let (config, _) = Config::read(SourceId(0), bytes);
            let written = emit(&config);
            prop_assert!(written.is_empty() || written.ends_with('\n'));
            if let Ok(patch) = Patch::parse("hostile", SourceId(1), bytes) {
                let _ = apply(&config, &[patch], Minor::new(1, 13));
            }
        }
    }
}
