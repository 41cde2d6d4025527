//! Certificates of clients.

use std::time::Duration;

use ichor_machineconfig::pki::{
    Algorithm, Authority, Certificate, Client, Curve, KUBERNETES_ADMIN_LIFETIME, PkiError, PrivateKey,
    RsaKey, TALOS_CLIENT_LIFETIME, TalosRole, Term, kubernetes_admin, talos_client,
};
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate};

use crate::support::{Seeded, bundle, foreign, later, now};

fn term(lifetime: Duration) -> Term {
    Term { now: now(), lifetime }
}

/// Returns what a test wants to know of a certificate's extensions.
fn extensions(certificate: &X509Certificate<'_>) -> Vec<String> {
    certificate
        .extensions()
        .iter()
        .map(|extension| match extension.parsed_extension() {
            ParsedExtension::KeyUsage(usage) => {
                format!("usage {:b} critical {}", usage.flags, extension.critical)
            }
            ParsedExtension::ExtendedKeyUsage(purposes) => {
                format!(
                    "client {} server {} any {}",
                    purposes.client_auth, purposes.server_auth, purposes.any
                )
            }
            ParsedExtension::AuthorityKeyIdentifier(_) => "authority key".into(),
            other => format!("{other:?}"),
        })
        .collect()
}

fn parse(client: &Client) -> X509Certificate<'_> {
    X509Certificate::from_der(client.certificate.der()).expect("a certificate").1
}

/// Checks with the crypto library that the authority signed the client's certificate.
fn assert_signed(
    client: &Client,
    authority: &Authority,
    algorithm: &'static dyn aws_lc_rs::signature::VerificationAlgorithm,
) {
    let certificate = parse(client);
    let key = aws_lc_rs::signature::UnparsedPublicKey::new(algorithm, authority.key().public());
    let signed = certificate.tbs_certificate.as_ref();
    key.verify(signed, &certificate.signature_value.data).expect("a good signature");
    let (_, issuer) = X509Certificate::from_der(authority.certificate().der()).expect("an authority");
    assert_eq!(certificate.issuer().as_raw(), issuer.subject().as_raw());
}

#[test]
fn a_talos_client_is_its_roles_and_nothing_else() {
    let bundle = bundle(1);
    let roles = [TalosRole::Reader, TalosRole::Admin, TalosRole::EtcdBackup, TalosRole::Reader];
    let client =
        talos_client(&bundle.os, &roles, term(TALOS_CLIENT_LIFETIME), &mut Seeded::new(2)).expect("a client");
    assert_eq!(client.certificate.common_name(), None);
    let mut roles = client.certificate.organizations().to_vec();
    roles.sort();
    assert_eq!(roles, ["os:admin", "os:etcd:backup", "os:reader"]);
    assert_eq!(client.certificate.not_before(), now());
    assert_eq!(client.certificate.not_after(), now().plus(Duration::from_hours(365 * 24)));
    assert_eq!(client.key.algorithm(), Algorithm::Ed25519);
    assert_eq!(
        extensions(&parse(&client)),
        ["usage 1 critical true", "client true server false any false", "authority key"]
    );
    assert_signed(&client, &bundle.os, &aws_lc_rs::signature::ED25519);
}

#[test]
fn a_kubernetes_admin_is_a_master_for_a_day() {
    let bundle = bundle(1);
    let client = kubernetes_admin(&bundle.kubernetes, term(KUBERNETES_ADMIN_LIFETIME), &mut Seeded::new(2))
        .expect("a client");
    assert_eq!(client.certificate.common_name(), Some("admin"));
    assert_eq!(client.certificate.organizations(), ["system:masters"]);
    assert_eq!(client.certificate.not_before(), now().minus(Duration::from_secs(10)));
    assert_eq!(client.certificate.not_after(), now().plus(Duration::from_hours(24)));
    assert_eq!(client.key.algorithm(), Algorithm::Ecdsa(Curve::P256));
    assert_eq!(
        extensions(&parse(&client)),
        ["usage 101 critical true", "client true server false any false", "authority key"]
    );
    assert_signed(&client, &bundle.kubernetes, &aws_lc_rs::signature::ECDSA_P256_SHA256_ASN1);
}

#[test]
fn authorities_of_other_clusters_can_sign() {
    for (kind, algorithm) in [
        (
            "rsa",
            &aws_lc_rs::signature::RSA_PKCS1_2048_8192_SHA256
                as &'static dyn aws_lc_rs::signature::VerificationAlgorithm,
        ),
        ("p384", &aws_lc_rs::signature::ECDSA_P384_SHA384_ASN1),
    ] {
        let (certificate, key) = foreign(kind);
        let certificate = Certificate::from_pem(certificate).expect("a certificate");
        let authority =
            Authority::new(certificate, PrivateKey::from_pem(key).expect("a key")).expect("an authority");
        let term = Term { now: later(), lifetime: KUBERNETES_ADMIN_LIFETIME };
        let client = kubernetes_admin(&authority, term, &mut Seeded::new(2)).expect("a client");
        assert_eq!(client.key.algorithm(), Algorithm::Ecdsa(Curve::P256));
        assert_signed(&client, &authority, algorithm);
    }
}

#[test]
fn the_same_entropy_makes_the_same_talos_client() {
    let bundle = bundle(1);
    let make = |seed| {
        talos_client(&bundle.os, &[TalosRole::Admin], term(TALOS_CLIENT_LIFETIME), &mut Seeded::new(seed))
            .expect("a client")
    };
    assert_eq!(make(5), make(5));
    assert_ne!(make(5), make(6));
}

#[test]
fn nothing_outlives_its_authority() {
    let bundle = bundle(1);
    let end = bundle.os.certificate().not_after();
    let make = |term| talos_client(&bundle.os, &[TalosRole::Admin], term, &mut Seeded::new(5));
    let client = make(term(Duration::MAX)).expect("a client");
    assert_eq!(client.certificate.not_after(), end);
    let late = Term { now: end.plus(Duration::from_secs(1)), lifetime: TALOS_CLIENT_LIFETIME };
    assert_eq!(make(late), Err(PkiError::Expired { end }));
}

#[test]
fn useless_clients_are_not_made() {
    let bundle = bundle(1);
    let make =
        |roles: &[TalosRole], lifetime| talos_client(&bundle.os, roles, term(lifetime), &mut Seeded::new(5));
    assert_eq!(make(&[], TALOS_CLIENT_LIFETIME), Err(PkiError::NoRole));
    assert_eq!(make(&[TalosRole::Admin], Duration::from_millis(900)), Err(PkiError::NoLifetime));
}

#[test]
fn roles_read_as_people_and_certificates_write_them() {
    for role in TalosRole::ALL {
        assert_eq!(role.word().parse(), Ok(role));
        assert_eq!(role.word().trim_start_matches("os:").parse(), Ok(role));
    }
    assert!("root".parse::<TalosRole>().is_err());
}

#[test]
fn keys_are_pkcs8_for_those_who_read_nothing_else() {
    let bundle = bundle(1);
    let der = |key: &PrivateKey| key.to_pkcs8_der().expect("pkcs8");
    let ed25519 = aws_lc_rs::signature::Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der(bundle.os.key()));
    assert!(ed25519.is_ok());
    let p256 = &aws_lc_rs::signature::ECDSA_P256_SHA256_ASN1_SIGNING;
    assert!(aws_lc_rs::signature::EcdsaKeyPair::from_pkcs8(p256, &der(bundle.etcd.key())).is_ok());
    assert!(aws_lc_rs::rsa::KeyPair::from_pkcs8(&der(&bundle.service_account)).is_ok());
}

#[test]
fn an_rsa_key_is_made_as_go_makes_it() {
    let key = RsaKey::generate().expect("a key").into_key();
    assert_eq!(key.algorithm(), Algorithm::Rsa(4096));
    assert!(key.pem().expose().starts_with("-----BEGIN RSA PRIVATE KEY-----\nMIIJ"));
    assert_eq!(PrivateKey::from_pem(key.pem().expose()), Ok(key));
}

#[test]
fn only_rsa_keys_are_rsa_keys() {
    let (_, key) = foreign("p384");
    assert_eq!(RsaKey::from_pem(key).expect_err("not RSA").message, "is an ECDSA P-384 key");
}

#[test]
fn servers_have_names_and_authorities_are_told_apart() {
    use ichor_machineconfig::pki::{Server, ServerName, self_signed_server, server};
    let (own, other) = (bundle(1), bundle(2));
    let names = [ServerName::new("10.0.0.11"), ServerName::new("fd00::1"), ServerName::new("cp-1")];
    let facts = Server { common_name: Some("cp-1"), reached_by: &names };
    let term = Term { now: now(), lifetime: std::time::Duration::from_hours(24) };
    for authority in [&own.os, &own.kubernetes] {
        let made = server(authority, &facts, term, &mut Seeded::new(3)).expect("a server");
        assert!(made.certificate.is_signed_by(authority.certificate()));
        assert!(!made.certificate.is_signed_by(other.os.certificate()));
        assert!(!made.certificate.is_signed_by(other.kubernetes.certificate()), "the same name, another key");
        assert!(!made.certificate.is_for_clients_only());
        let again = Certificate::from_der(made.certificate.der()).expect("DER");
        assert_eq!(again.fingerprint(), made.certificate.fingerprint());
        for bytes in [&[10, 0, 0, 11][..], b"cp-1"] {
            assert!(made.certificate.der().windows(bytes.len()).any(|window| window == bytes));
        }
    }
    let client = talos_client(&own.os, &[TalosRole::Reader], term, &mut Seeded::new(4)).expect("a client");
    assert!(client.certificate.is_for_clients_only());
    let alone = self_signed_server(&facts, term, &mut Seeded::new(5)).expect("a server");
    assert!(!alone.certificate.is_signed_by(own.os.certificate()));
    assert_eq!(alone.certificate.common_name(), Some("cp-1"));
}
