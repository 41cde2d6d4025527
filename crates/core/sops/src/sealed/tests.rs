use super::*;

const PLAIN: &str = "\
# about all of it
name: lab # behind
number: 010
ratio: 1.50
yes: true
when: 2024-01-01
empty: \"\"
nothing: null
nested:
    # before the list
    list:
        # in the list
        - one
        - {a: b}
        - []
    text: |
        two
        lines
open_unencrypted:
    said: 1.50
    # said too
    day: 2024-01-01
# at the end
";

fn counting(seed: u8) -> impl FnMut(&mut [u8]) {
    let mut next = u64::from(seed);
    move |buffer| {
        for byte in buffer {
            next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (next >> 56) as u8;
        }
    }
}

fn identity(seed: u8) -> Identity {
    Identity::generate(&mut counting(seed)).expect("an identity")
}

fn tree(text: &str) -> Tree {
    Tree::parse(text.as_bytes(), Format::Yaml).expect("a tree")
}

fn policy(seeds: &[u8]) -> Policy {
    let recipients = seeds.iter().map(|seed| identity(*seed).recipient().clone()).collect();
    Policy { recipients, ..Policy::default() }
}

fn sealed(plain: &str) -> Sealed {
    seal(&tree(plain), Format::Yaml, &policy(&[1]), "2026-11-16T00:00:00Z", &mut counting(9)).expect("sealed")
}

fn read(text: &str) -> Sealed {
    Sealed::parse(text.as_bytes(), Format::Yaml).unwrap_or_else(|flaw| panic!("{flaw:?}\n{text}"))
}

fn flaw(text: &str) -> FlawKind {
    let opened = Sealed::parse(text.as_bytes(), Format::Yaml).and_then(|sealed| sealed.open(&[identity(1)]));
    opened.map(|opened| panic!("opened {opened:?}:\n{text}")).unwrap_err().kind
}

#[test]
fn what_was_sealed_is_opened() {
    let text = sealed(PLAIN).to_text();
    for secret in ["lab", "two", "one", "about all", "before the", "in the list"] {
        assert!(!text.contains(secret), "{secret}:\n{text}");
    }
    assert!(text.contains("said: 1.5\n") && text.contains("# said too"), "{text}");
    let opened = read(&text).open(&[identity(1)]).expect("opened");
    let plain = opened.plain().to_text(Format::Yaml);
    assert_eq!(tree(&plain).documents.len(), 1);
    for line in [
        "# about all of it",
        "name: lab # behind",
        "number: 8",
        "ratio: 1.5",
        "# in the list",
        "# at the end",
    ] {
        assert!(plain.contains(line), "{line}:\n{}", plain.as_str());
    }
    assert!(opened.plain().to_text(Format::Yaml) == tree(PLAIN).to_text(Format::Yaml));
    assert!(!format!("{opened:?} {:?}", opened.plain()).contains("lab"));
}

#[test]
fn comments_belong_where_they_stand() {
    let text = "\
a:
    b_unencrypted: |
        two
        lines
# after lines
c:
    - 1 # behind
    # last of the list
# before d
d:
    - # inside
      e: 1
    # above
    - f: 2
# end
";
    let written = tree(text).to_text(Format::Yaml);
    let lines: Vec<&str> = written.lines().collect();
    for line in
        ["# after lines", "    - 1 # behind", "    # last of the list", "# before d", "    # above", "# end"]
    {
        assert!(lines.contains(&line), "{line}:\n{}", written.as_str());
    }
    let opened = read(&sealed(text).to_text()).open(&[identity(1)]).expect("opened");
    // In an encrypted list comments are items, and stand above what they stood behind, as with sops.
    let moved = written.replace("    - 1 # behind", "    # behind\n    - 1");
    assert_eq!(opened.plain().to_text(Format::Yaml).as_str(), moved);
}

#[test]
fn only_those_it_is_for_open_it() {
    let sealed = sealed(PLAIN);
    let kind = sealed.open(&[identity(2)]).expect_err("not for two").kind;
    assert_eq!(kind, FlawKind::NoKey);
    assert_eq!(sealed.open(&[]).expect_err("nobody").kind, FlawKind::NoKey);
    let opened = sealed.open(&[identity(1)]).expect("opened");
    let both = opened.add(&[identity(2).recipient().clone()], &mut counting(3)).expect("added");
    let again = opened.add(&[identity(1).recipient().clone()], &mut counting(3)).expect("added");
    assert_eq!(again.recipients().len(), 1);
    let both = read(&both.to_text());
    let two = both.open(&[identity(2)]).expect("opened by two");
    assert!(two.plain() == opened.plain());
    let one = [identity(2).recipient().clone()];
    let rotated = two.rotate(&one, "2026-11-17T00:00:00Z", &mut counting(4)).expect("rotated");
    let rotated = read(&rotated.to_text());
    assert!(rotated.open(&[identity(1)]).is_err());
    assert!(rotated.open(&[identity(2)]).expect("opened").plain() == opened.plain());
    assert!(two.rotate(&[], "now", &mut counting(4)).is_err());
}

#[test]
fn what_does_not_change_keeps_its_text() {
    let opened = sealed(PLAIN).open(&[identity(1)]).expect("opened");
    let other = tree(&PLAIN.replace("name: lab", "name: other"));
    let resealed = opened.reseal(&other, "2026-11-17T00:00:00Z", &mut counting(5)).expect("resealed");
    let (before, after) = (opened.sealed().to_text(), resealed.to_text());
    let changed = before.lines().zip(after.lines()).filter(|(a, b)| a != b).count();
    assert_eq!(changed, 3, "the value, the time and the checksum:\n{before}\n{after}");
    assert!(read(&after).open(&[identity(1)]).expect("opened").plain() == &other);
}

#[test]
fn nothing_can_be_changed_moved_or_left_out() {
    let plain = "a: one\nb: two\nlist: [x, y]\nc_unencrypted: 5\nd: {a: one}\n";
    let text = sealed(plain).to_text();
    let lines: Vec<&str> = text.lines().collect();
    let value = |at: usize| lines[at].split_once(": ").expect("a value").1;
    assert_eq!(flaw(&text.replace("c_unencrypted: 5", "c_unencrypted: 6")), FlawKind::Tampered);
    assert_eq!(flaw(&text.replace(value(0), value(1))), FlawKind::Tampered);
    assert_eq!(flaw(&text.replace(value(0), "plain")), FlawKind::Tampered);
    assert_eq!(flaw(&text.replace(value(0), "null")), FlawKind::Tampered);
    assert_eq!(flaw(&text.replace(value(0), "5")), FlawKind::Tampered);
    assert_eq!(flaw(&text.replace(value(0), "\"\"")), FlawKind::Tampered);
    assert_eq!(flaw(&text.replace("\nb: ", "\nb2: ")), FlawKind::Tampered);
    let swapped = text.replace(lines[3], "@").replace(lines[4], lines[3]).replace('@', lines[4]);
    assert_eq!(flaw(&swapped), FlawKind::Tampered);
    assert_eq!(flaw(&text.replace("2026-11-16", "2026-11-17")), FlawKind::Tampered);
    let suffix = "unencrypted_suffix: _unencrypted";
    assert_eq!(flaw(&text.replace(suffix, "unencrypted_regex: .*")), FlawKind::Tampered);
    assert_eq!(
        flaw(&text.replace(suffix, &format!("{suffix}\n    mac_only_encrypted: true"))),
        FlawKind::Tampered
    );
    assert_eq!(flaw(&text.replace("    mac: ", "    cam: ")), FlawKind::Tampered);
    assert_eq!(flaw(text.split("sops:").next().expect("text")), FlawKind::Tampered);
    assert_eq!(flaw(&text.replace("\nsops:", "\nother:")), FlawKind::Tampered);
    assert_eq!(flaw(plain), FlawKind::NotSealed);
    // Without any of its lines there is no plain text, but for comments and what sops has no use for.
    for (i, line) in lines.iter().enumerate() {
        let rest: Vec<&str> =
            lines.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, line)| *line).collect();
        let opened =
            Sealed::parse(rest.join("\n").as_bytes(), Format::Yaml).and_then(|it| it.open(&[identity(1)]));
        let harmless = ["version:", "recipient:", "unencrypted_suffix:"].iter().any(|it| line.contains(it));
        assert!(opened.is_err() || harmless, "{line}");
    }
}

#[test]
fn rules_and_checksums_of_sops_work_together() {
    for rule in [
        Rule::EncryptedSuffix("_secret".into()),
        Rule::EncryptedRegex("^(token|nested)$".into()),
        Rule::UnencryptedRegex("^open".into()),
        Rule::UnencryptedSuffix("_plain".into()),
    ] {
        for mac_only_encrypted in [false, true] {
            let policy = Policy { rule: rule.clone(), mac_only_encrypted, ..policy(&[1, 2]) };
            let plain = tree("open: 1\ntoken: a\nx_secret: {y: b}\nnested: {z_plain: c}\n");
            let sealed = seal(&plain, Format::Yaml, &policy, "now", &mut counting(1)).expect("sealed");
            let text = sealed.to_text();
            assert!(read(&text).open(&[identity(2)]).expect("opened").plain() == &plain);
            let changed = text.replace("\nopen: 1", "\nopen: 2").replacen("open: 1", "open: 2", 1);
            if changed != text {
                let opened = read(&changed).open(&[identity(2)]);
                assert_eq!(opened.is_ok(), mac_only_encrypted, "{rule:?}");
            }
        }
    }
}

#[test]
fn hostile_files_are_refused_with_their_line() {
    let deep = format!("a: {}{}", "[".repeat(100), "]".repeat(100));
    let deep_json = format!("{{\"a\": {}{}}}", "[".repeat(100), "]".repeat(100));
    let many = format!("a: [{}]", "1,".repeat(300_000));
    let large = " ".repeat(5 * 1024 * 1024);
    for (text, kind) in [
        (deep.as_str(), FlawKind::Limit),
        (&many, FlawKind::Limit),
        (&large, FlawKind::Limit),
        ("a: &x 1\nb: *x\n", FlawKind::Unsupported),
        ("a: !!binary aGk=\n", FlawKind::Unsupported),
        ("1: a\n", FlawKind::Unsupported),
        ("a: 1\na: 2\n", FlawKind::Syntax),
        ("- a\n", FlawKind::Syntax),
        ("a: [\n", FlawKind::Syntax),
        ("a: 9223372036854775808\n", FlawKind::Unsupported),
        ("sops: {}\n", FlawKind::Tampered),
        ("sops: 5\na: 1\n", FlawKind::NotSealed),
    ] {
        let flaw = Sealed::parse(text.as_bytes(), Format::Yaml).expect_err(&text[..text.len().min(40)]);
        assert_eq!(flaw.kind, kind, "{flaw:?}");
    }
    assert!(Tree::parse(deep_json.as_bytes(), Format::Json).is_err());
    for text in ["{\"a\": 1, \"a\": 2}", "[1]", "{", "{} {}", "\u{0}"] {
        assert!(Tree::parse(text.as_bytes(), Format::Json).is_err(), "{text}");
    }
    assert!(Tree::parse(b"a: \xff", Format::Yaml).is_err());
}

#[test]
fn several_documents_and_json_come_back() {
    let plain = tree("a: 1\n---\n# second\nb: 2\n");
    let sealed = seal(&plain, Format::Yaml, &policy(&[1]), "now", &mut counting(1)).expect("sealed");
    assert!(read(&sealed.to_text()).open(&[identity(1)]).expect("opened").plain() == &plain);
    let json = r#"{"z": [1, 2.5, true, null, {"k": "v\n\"é\u0001"}], "a": {}, "big": 9007199254740993, "b_unencrypted": "x"}"#;
    let plain = Tree::parse(json.as_bytes(), Format::Json).expect("json");
    let sealed = seal(&plain, Format::Json, &policy(&[1]), "now", &mut counting(1)).expect("sealed");
    let again = Sealed::parse(sealed.to_text().as_bytes(), Format::Json).expect("read");
    let opened = again.open(&[identity(1)]).expect("opened");
    assert!(opened.plain() == &plain);
    assert_eq!(opened.plain().find(&["z", "4", "k"]).expect("found").as_str(), "v\n\"é\u{1}");
    assert_eq!(opened.plain().find(&["big"]).expect("found").as_str(), "9007199254740993");
    assert!(opened.plain().find(&["z"]).is_none() && opened.plain().find(&["z", "9"]).is_none());
}

mod random {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[ -~]{0,12}",
            "\\PC{0,6}",
            "[\n \t#:a-]{0,8}",
            prop::sample::select(vec![
                "yes",
                "~",
                "010",
                "1e3",
                "2024-01-01",
                "ENC[x]",
                "-",
                "a: b",
                "a #b",
                "\u{1}\u{85}\u{2028}\u{feff}"
            ])
            .prop_map(str::to_owned),
        ]
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            4 => text().prop_map(Value::text),
            1 => any::<i64>().prop_map(|it| Value::Scalar(Scalar::Int(it))),
            1 => (-1e9..1e9).prop_map(|it: f64| Value::Scalar(Scalar::Float(it))),
            1 => any::<bool>().prop_map(|it| Value::Scalar(Scalar::Bool(it))),
            1 => Just(Value::Null),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4)
                    .prop_map(|items| Value::List(items.into_iter().map(Item::Value).collect())),
                map(inner).prop_map(Value::Map),
            ]
        })
    }

    fn map(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map> {
        prop::collection::btree_map(text().prop_filter("reserved", |key| key != "sops"), value, 0..5)
            .prop_map(|map| map.into_iter().map(|(key, value)| Entry::Pair(key, value)).collect())
    }

    /// A line that may well be YAML.
    fn line() -> impl Strategy<Value = String> {
        let indent = prop::sample::select(vec!["", "  ", "    ", "      "]);
        let head = prop::sample::select(vec![
            "a:",
            "b:",
            "- ",
            "- c:",
            "d: 1",
            "- x",
            "e: |",
            "text",
            "",
            "---",
            "- - y",
            "f: {g: [1]}",
        ]);
        let tail = prop::sample::select(vec!["", " # behind", "# no comment"]);
        let comment =
            prop::sample::select(vec!["# own", "#", "  # own", "    # own"]).prop_map(str::to_owned);
        prop_oneof![3 => (indent, head, tail).prop_map(|(a, b, c)| format!("{a}{b}{c}")), 1 => comment]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_tree_is_written_and_read_the_same(document in map(value()), format in prop::bool::ANY) {
            let format = if format { Format::Json } else { Format::Yaml };
            let tree = Tree { documents: vec![document] };
            let text = tree.to_text(format);
            let again = Tree::parse(text.as_bytes(), format);
            prop_assert!(again.as_ref().is_ok_and(|again| *again == tree), "{:?}\n{}", again, text.as_str());
            let sealed = seal(&tree, format, &policy(&[1]), "now", &mut counting(1)).expect("sealed");
            let again = Sealed::parse(sealed.to_text().as_bytes(), format).expect("read");
            prop_assert!(again.open(&[identity(1)]).expect("opened").plain() == &tree);
        }

        #[test]
        fn what_is_read_is_written_and_read_the_same(lines in prop::collection::vec(line(), 0..12)) {
            let text = lines.join("\n");
            if let Ok(tree) = Tree::parse(text.as_bytes(), Format::Yaml) {
                let written = tree.to_text(Format::Yaml);
                let again = Tree::parse(written.as_bytes(), Format::Yaml);
                let again = again.map(|again| again.to_text(Format::Yaml));
                prop_assert!(again.as_ref().is_ok_and(|again| *again == written), "{text}\n=>\n{}\n=>\n{again:?}", written.as_str());
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-z:#\\[\\]{}|> \n\"'&*!,-]{0,60}") {
            let _ = Sealed::parse(text.as_bytes(), Format::Yaml);
            let _ = Sealed::parse(text.as_bytes(), Format::Json);
        }
    }
}
