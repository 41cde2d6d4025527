//! Bundles: made, written, read, refused.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_machineconfig::{
    pki::{Algorithm, Authority, Certificate, Curve, Entropy, PkiError, PrivateKey, Term, kubernetes_admin},
    secrets::{Bundle, Encryption, Flaw, SecretText},
};
use proptest::prelude::*;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::support::{GOLDEN, Seeded, bundle, foreign, later, now, rsa};

fn golden() -> Bundle {
    Bundle::from_secrets_yaml(GOLDEN, now()).expect("the golden bundle")
}

/// Replaces the value of the `n`th line whose key is this.
fn with_value(key: &str, n: usize, value: &str) -> String {
    let mut seen = 0;
    let lines = GOLDEN.lines().map(|line| {
        let Some((indent, _)) =
            line.split_once(&format!("{key}: ")).filter(|(head, _)| head.trim().is_empty())
        else {
            return format!("{line}\n");
        };
        seen += 1;
        if seen == n + 1 { format!("{indent}{key}: {value}\n") } else { format!("{line}\n") }
    });
    lines.collect()
}

fn flaws(text: &str) -> Vec<Flaw> {
    Bundle::from_secrets_yaml(text, now()).expect_err("flaws").iter().cloned().collect()
}

/// Returns the only flaw as `path: message`.
fn only_flaw(text: &str) -> String {
    let flaws = flaws(text);
    assert_eq!(flaws.len(), 1, "{flaws:?}");
    assert!(!flaws[0].problem.remedy.is_empty());
    format!("{}: {}", flaws[0].path, flaws[0].problem.message)
}

fn encode(pem: &str) -> String {
    STANDARD.encode(pem)
}

#[test]
#[ignore = "writes tests/golden/secrets.yaml anew: cargo test -p ichor-machineconfig write_golden_bundle -- --ignored"]
fn write_golden_bundle() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/secrets.yaml");
    std::fs::write(path, bundle(1).to_secrets_yaml().expose()).expect("written");
}

#[test]
fn a_bundle_reads_back_and_renders_stably() {
    assert!(golden().to_secrets_yaml().expose() == GOLDEN, "the golden bundle changed on the way");
}

#[test]
fn the_same_seed_makes_the_same_bundle_but_for_ecdsa_signatures() {
    let (made, golden) = (bundle(1), golden());
    assert_eq!(made.cluster_id, golden.cluster_id);
    let secrets = |bundle: &Bundle| {
        let Encryption::Secretbox(key) = &bundle.encryption else { panic!("new clusters use secretbox") };
        [&bundle.cluster_secret, &bundle.bootstrap_token, &bundle.trustd_token, key].map(Clone::clone)
    };
    assert_eq!(secrets(&made), secrets(&golden));
    assert_eq!(made.service_account, golden.service_account);
    assert_eq!(made.os, golden.os, "Ed25519 signs the same way each time");
    for (made, golden) in [
        (&made.etcd, &golden.etcd),
        (&made.kubernetes, &golden.kubernetes),
        (&made.aggregator, &golden.aggregator),
    ] {
        assert_eq!(made.key(), golden.key());
        assert_eq!(unsigned(made), unsigned(golden));
    }
}

fn unsigned(authority: &Authority) -> Vec<u8> {
    let (_, certificate) = X509Certificate::from_der(authority.certificate().der()).expect("a certificate");
    certificate.tbs_certificate.as_ref().to_vec()
}

#[test]
fn authorities_have_the_shape_that_talos_gives_them() {
    let bundle = bundle(7);
    let p256 = Algorithm::Ecdsa(Curve::P256);
    for (authority, subject, algorithm, label) in [
        (&bundle.etcd, "O=etcd", p256, "EC"),
        (&bundle.kubernetes, "O=kubernetes", p256, "EC"),
        (&bundle.aggregator, "", p256, "EC"),
        (&bundle.os, "O=talos", Algorithm::Ed25519, "ED25519"),
    ] {
        let (_, certificate) =
            X509Certificate::from_der(authority.certificate().der()).expect("a certificate");
        assert_eq!(certificate.subject().to_string(), subject);
        assert_eq!(certificate.subject().as_raw(), certificate.issuer().as_raw());
        assert_eq!(authority.key().algorithm(), algorithm);
        assert!(
            authority.key().pem().expose().starts_with(&format!("-----BEGIN {label} PRIVATE KEY-----\n"))
        );
        let ten_years = Duration::from_hours(87_600);
        assert_eq!(authority.certificate().not_before(), now());
        assert_eq!(authority.certificate().not_after(), now().plus(ten_years));
        let extensions: Vec<(String, bool)> =
            certificate.extensions().iter().map(|e| (e.oid.to_id_string(), e.critical)).collect();
        let expected = [("2.5.29.15", true), ("2.5.29.37", false), ("2.5.29.19", true), ("2.5.29.14", false)];
        assert_eq!(extensions, expected.map(|(oid, critical)| (oid.to_owned(), critical)));
        let usage = certificate.key_usage().expect("readable").expect("present").value;
        assert_eq!(usage.flags, 0b10_0001, "digitalSignature and keyCertSign");
        let constraints = certificate.basic_constraints().expect("readable").expect("present").value;
        assert!(constraints.ca && constraints.path_len_constraint.is_none());
    }
    assert_eq!(bundle.service_account.algorithm(), Algorithm::Rsa(4096));
    assert!(bundle.service_account.pem().expose().starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
}

#[test]
fn a_broken_source_of_randomness_makes_no_bundle() {
    struct Stuck(u8);
    impl Entropy for Stuck {
        fn fill(&mut self, buffer: &mut [u8]) {
            buffer.fill(self.0);
        }
    }
    for byte in [0x00, 0xff] {
        assert_eq!(Bundle::generate(&mut Stuck(byte), now(), rsa()), Err(PkiError::Entropy), "{byte}");
    }
}

#[test]
fn both_alphabets_of_the_cluster_id_are_read() {
    for id in ["0raF93qnkMvF-FZNuvyGozXNdLiT2FOWSlyBaW4PR-w=", "0raF93qnkMvF+FZNuvyGozXNdLiT2FOWSlyBaW4PR/w="]
    {
        let text = with_value("id", 0, id);
        let bundle = Bundle::from_secrets_yaml(&text, now()).expect(id);
        assert_eq!(bundle.cluster_id, id);
        assert!(bundle.to_secrets_yaml().expose() == text, "{id}");
    }
}

#[test]
fn tokens_that_look_like_numbers_are_quoted_as_go_quotes_them() {
    for (token, written) in [
        ("123456.0123456789012345", "\"123456.0123456789012345\""),
        ("123456.01234567890123e5", "\"123456.01234567890123e5\""),
        ("123456.012345678901e999", "123456.012345678901e999"),
        ("12345e.0123456789012345", "12345e.0123456789012345"),
    ] {
        let bundle = Bundle { bootstrap_token: SecretText::new(token), ..golden() };
        let text = bundle.to_secrets_yaml();
        assert!(text.expose().contains(&format!("    bootstraptoken: {written}\n")), "{token}");
        assert_eq!(Bundle::from_secrets_yaml(text.expose(), now()).expect(token), bundle);
    }
}

#[test]
fn the_old_encryption_key_is_read_and_written() {
    let text = GOLDEN.replace("secretboxencryptionsecret", "aescbcencryptionsecret");
    let bundle = Bundle::from_secrets_yaml(&text, now()).expect("an old bundle");
    assert!(matches!(bundle.encryption, Encryption::AesCbc(_)));
    assert!(bundle.to_secrets_yaml().expose() == text, "changed on the way");
}

#[test]
fn keys_under_the_plain_label_keep_their_bytes() {
    let golden = golden();
    for (n, key) in [
        golden.etcd.key(),
        golden.kubernetes.key(),
        golden.aggregator.key(),
        &golden.service_account,
        golden.os.key(),
    ]
    .into_iter()
    .enumerate()
    {
        let der = key.to_pkcs8_der().expect("pkcs8");
        let pem =
            format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(&*der));
        let text = with_value("key", n, &encode(&pem));
        let read = Bundle::from_secrets_yaml(&text, now()).expect("a bundle");
        assert!(read.to_secrets_yaml().expose() == text, "key {n} changed on the way");
    }
}

#[test]
fn authorities_of_other_clusters_are_read() {
    for kind in ["rsa", "p384"] {
        let (certificate, key) = foreign(kind);
        let text = with_value("crt", 1, &encode(certificate));
        let text = text.replace(&encode(golden().kubernetes.key().pem().expose()), &encode(key));
        let read = Bundle::from_secrets_yaml(&text, later()).expect(kind);
        assert!(read.to_secrets_yaml().expose() == text, "{kind} changed on the way");
        assert_eq!(read.kubernetes.certificate().common_name(), Some(&*format!("ichor test only {kind}")));
    }
}

#[test]
fn an_authority_may_bring_its_chain() {
    let golden = golden();
    let chain = format!("{}{}", golden.kubernetes.certificate().pem(), golden.etcd.certificate().pem());
    let text = with_value("crt", 1, &encode(&chain));
    let read = Bundle::from_secrets_yaml(&text, now()).expect("a chain");
    assert!(read.to_secrets_yaml().expose() == text, "changed on the way");
}

#[test]
fn line_ends_inside_base64_are_passed_over_as_in_go() {
    let (head, tail) = GOLDEN.rsplit_once("        crt: ").expect("the last certificate");
    let (value, tail) = tail.split_once('\n').expect("a line");
    let (first, second) = value.split_at(64);
    let text = format!("{head}        crt: |-\n            {first}\n            {second}\n{tail}");
    assert_eq!(Bundle::from_secrets_yaml(&text, now()), Ok(golden()));
}

#[test]
fn everything_that_is_missing_is_named_at_once() {
    let paths: Vec<String> = flaws("{}").into_iter().map(|flaw| flaw.path).collect();
    let expected = [
        "cluster.id",
        "cluster.secret",
        "secrets.bootstraptoken",
        "secrets.secretboxencryptionsecret",
        "trustdinfo.token",
        "certs.etcd.crt",
        "certs.etcd.key",
        "certs.k8s.crt",
        "certs.k8s.key",
        "certs.k8saggregator.crt",
        "certs.k8saggregator.key",
        "certs.k8sserviceaccount.key",
        "certs.os.crt",
        "certs.os.key",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn single_values_are_judged() {
    for (key, n, value, flaw) in [
        ("id", 0, "''", "cluster.id: is empty"),
        ("id", 0, "[a]", "cluster.id: is a list, not text"),
        ("id", 0, "a b", "cluster.id: has spaces"),
        ("secret", 0, "'******'", "cluster.secret: is redacted"),
        ("secret", 0, "AAAA", "cluster.secret: is not standard base64 of 32 bytes"),
        (
            "secret",
            0,
            "-raF93qnkMvF-FZNuvyGozXNdLiT2FOWSlyBaW4PR-w=",
            "cluster.secret: is not standard base64",
        ),
        (
            "secretboxencryptionsecret",
            0,
            "AAAA",
            "secrets.secretboxencryptionsecret: is not standard base64 of 32",
        ),
        ("bootstraptoken", 0, "abc", "secrets.bootstraptoken: is not a bootstrap token"),
        ("token", 0, "~", "trustdinfo.token: is missing"),
        ("crt", 0, "'&&&'", "certs.etcd.crt: is not standard base64"),
        ("crt", 0, "//79", "certs.etcd.crt: is base64, but not of PEM text"),
        ("key", 0, "AAAA", "certs.etcd.key: is not PEM text"),
        ("key", 0, "'******'", "certs.etcd.key: is redacted"),
        ("key", 4, "{a: b}", "certs.os.key: is a map, not text"),
    ] {
        let found = only_flaw(&with_value(key, n, value));
        assert!(found.starts_with(flaw), "{found}");
    }
}

#[test]
fn keys_and_certificates_are_judged() {
    let golden = golden();
    let key = golden.os.key().pem().expose();
    let relabelled = |label: &str| key.replace("ED25519 PRIVATE KEY", label);
    let leaf = kubernetes_admin(
        &golden.etcd,
        Term { now: now(), lifetime: Duration::from_hours(1) },
        &mut Seeded::new(3),
    )
    .expect("a leaf");
    for (key, n, pem, flaw) in [
        ("key", 4, relabelled("DSA PRIVATE KEY"), "certs.os.key: is PEM text of `DSA PRIVATE KEY`"),
        (
            "key",
            4,
            relabelled("ENCRYPTED PRIVATE KEY"),
            "certs.os.key: is PEM text of `ENCRYPTED PRIVATE KEY`",
        ),
        ("key", 4, relabelled("EC PRIVATE KEY"), "certs.os.key: holds no key of a kind"),
        ("key", 4, relabelled("CERTIFICATE"), "certs.os.key: is PEM text of `CERTIFICATE`"),
        ("key", 4, format!("{key}{key}"), "certs.os.key: holds 2 PEM blocks"),
        ("key", 4, key.replace("MC4", "MC5"), "certs.os.key: holds no key of a kind"),
        (
            "key",
            4,
            key.replace("-----END", "-----ENDE"),
            "certs.os.key: is PEM text without its `-----END` line",
        ),
        (
            "key",
            4,
            leaf.key.pem().expose().into(),
            "certs.os.key: is an ECDSA P-256 key that does not belong",
        ),
        (
            "key",
            0,
            golden.kubernetes.key().pem().expose().into(),
            "certs.etcd.key: is an ECDSA P-256 key that does not",
        ),
        (
            "key",
            3,
            key.into(),
            "certs.k8sserviceaccount.key: is an Ed25519 key, with which Kubernetes cannot",
        ),
        ("crt", 0, key.into(), "certs.etcd.crt: holds a private key where a certificate belongs"),
        ("crt", 0, relabelled("X"), "certs.etcd.crt: is PEM text, but not of a certificate"),
        ("crt", 0, relabelled("CERTIFICATE"), "certs.etcd.crt: holds a damaged certificate"),
    ] {
        let found = only_flaw(&with_value(key, n, &encode(&pem)));
        assert!(found.starts_with(flaw), "{found}");
    }
}

#[test]
fn a_signed_certificate_is_no_authority() {
    let golden = golden();
    let term = Term { now: now(), lifetime: Duration::from_hours(1) };
    let leaf = kubernetes_admin(&golden.etcd, term, &mut Seeded::new(3)).expect("a leaf");
    let text = with_value("crt", 0, &encode(leaf.certificate.pem()));
    let text = text.replace(&encode(golden.etcd.key().pem().expose()), &encode(leaf.key.pem().expose()));
    assert!(only_flaw(&text).starts_with("certs.etcd.crt: is not the certificate of an authority"));
}

#[test]
fn authorities_outside_their_time_are_refused() {
    let paths = |now| -> Vec<String> {
        let flaws = Bundle::from_secrets_yaml(GOLDEN, now).expect_err("flaws");
        flaws.iter().map(|flaw| format!("{}: {}", flaw.path, flaw.problem.message)).collect()
    };
    let expired = paths(now().plus(Duration::from_hours(87_601)));
    assert_eq!(expired.len(), 4);
    assert_eq!(expired[0], "certs.etcd.crt: expired at 2036-11-12T23:00:00Z");
    let early = paths(now().minus(Duration::from_hours(1)));
    assert!(early[3].starts_with("certs.os.crt: is valid from 2026-11-15T23:00:00Z only"), "{early:?}");
    assert!(Bundle::from_secrets_yaml(GOLDEN, now().minus(Duration::from_mins(4))).is_ok(), "clocks differ");
}

#[test]
fn one_encryption_key_is_needed_and_only_one() {
    let both = GOLDEN.replace(
        "    secretboxencryptionsecret",
        "    aescbcencryptionsecret: AAAAAAAAAAAAAAAAAAAAAA==\n    secretboxencryptionsecret",
    );
    assert!(only_flaw(&both).contains("are both set"));
    assert!(only_flaw(&with_value("secretboxencryptionsecret", 0, "")).contains("are both missing"));
}

#[test]
fn unknown_keys_and_wrong_shapes_are_refused() {
    for (from, to, flaw) in [
        ("cluster:\n", "name: x\ncluster:\n", "name: is not a key"),
        ("    id:", "    nane: x\n    id:", "cluster.nane: is not a key"),
        (
            "    k8sserviceaccount:\n",
            "    k8sserviceaccount:\n        crt: x\n",
            "certs.k8sserviceaccount.crt: is not",
        ),
        ("    os:\n", "    oss: {}\n    os:\n", "certs.oss: is not a key"),
        ("cluster:\n", "abcdefgh01234567: x\ncluster:\n", "…: is not a key"),
    ] {
        let found = only_flaw(&GOLDEN.replacen(from, to, 1));
        assert!(found.starts_with(flaw), "{found}");
    }
    for (text, flaw) in [
        ("", ": is empty"),
        ("[]", ": is not a map"),
        ("a: [", ": is not valid YAML"),
        ("a: 1\n---\nb: 2\n", ": has several documents"),
    ] {
        assert!(only_flaw(text).starts_with(flaw), "{text}");
    }
    let sections = flaws("cluster: x\ncerts: [1]\n");
    assert_eq!(sections[0].to_string(), "`cluster` (line 1) is a single value, not a map");
    assert_eq!(sections[1].to_string(), "`certs` (line 2) is a list, not a map");
}

#[test]
fn a_file_over_the_limit_is_not_read() {
    let text = format!("{GOLDEN}{}", "#".repeat(1024 * 1024));
    assert!(only_flaw(&text).contains("at most 1048576 are read"));
}

#[test]
fn parts_can_be_joined_by_hand() {
    let (certificate, key) = foreign("rsa");
    let certificate = Certificate::from_pem(certificate).expect("a certificate");
    let key = PrivateKey::from_pem(key).expect("a key");
    assert!(Authority::new(certificate.clone(), key).is_ok());
    let (_, other) = foreign("p384");
    let other = PrivateKey::from_pem(other).expect("a key");
    assert!(Authority::new(certificate, other).expect_err("not its key").message.contains("does not belong"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bundle_reads_back_and_is_written_again_unchanged(seed in any::<u64>()) {
        let made = bundle(seed);
        let text = made.to_secrets_yaml();
        let read = Bundle::from_secrets_yaml(text.expose(), now()).expect("readable");
        prop_assert!(read == made, "seed {seed}: read differs");
        prop_assert!(read.to_secrets_yaml() == text, "seed {seed}: written differs");
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,300}") {
        let _ = Bundle::from_secrets_yaml(&text, now());
        let _ = Bundle::from_machine_config(&text, now());
        let _ = ichor_machineconfig::talosconfig::Talosconfig::parse(&text);
        let _ = PrivateKey::from_pem(&text);
        let _ = Certificate::from_pem(&text);
    }

    #[test]
    fn no_damage_makes_the_reader_panic(at in 0..GOLDEN.len(), with in any::<u8>(), cut in 0..200_usize) {
        let mut bytes = GOLDEN.as_bytes().to_vec();
        bytes[at] = with;
        bytes.drain(at..(at + cut).min(GOLDEN.len()));
        let _ = Bundle::from_secrets_yaml(&String::from_utf8_lossy(&bytes), now());
    }

    #[test]
    fn no_damaged_key_or_certificate_makes_the_reader_panic(
        which in 0..9_usize, at in any::<proptest::sample::Index>(), with in any::<u8>(), cut in 0..40_usize,
    ) {
        let golden = golden();
        let pems = [
            golden.etcd.certificate().pem(), golden.etcd.key().pem().expose(),
            golden.os.certificate().pem(), golden.os.key().pem().expose(),
            golden.service_account.pem().expose(),
            foreign("rsa").0, foreign("rsa").1, foreign("p384").0, foreign("p384").1,
        ];
        let label = pems[which].lines().next().expect("a line").trim_start_matches("-----BEGIN ").trim_end_matches("-----");
        let body: String = pems[which].lines().filter(|line| !line.starts_with("-----")).collect();
        let mut der = STANDARD.decode(body).expect("base64");
        let at = at.index(der.len());
        der[at] = with;
        let end = (at + cut).min(der.len());
        der.drain(at..end);
        let pem = format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der));
        let _ = PrivateKey::from_pem(&pem);
        let _ = Certificate::from_pem(&pem);
    }
}
