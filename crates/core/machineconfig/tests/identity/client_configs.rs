//! talosconfig and kubeconfig.

use std::net::IpAddr;

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_machineconfig::{
    kubeconfig,
    pki::{Client, KUBERNETES_ADMIN_LIFETIME, TALOS_CLIENT_LIFETIME, Term, kubernetes_admin, talos_client},
    secrets::{Bundle, SecretText},
    talosconfig::{self, Role, Talosconfig, VipAsEndpoint},
};
use ichor_model::ClusterName;

use crate::support::{Seeded, bundle, now};

fn cluster(name: &str) -> ClusterName {
    name.parse().expect("a cluster name")
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().expect("an address")).collect()
}

fn admin(bundle: &Bundle) -> Client {
    let term = Term { now: now(), lifetime: TALOS_CLIENT_LIFETIME };
    talos_client(&bundle.os, &[Role::Admin], term, &mut Seeded::new(9)).expect("a client")
}

/// Renders a talosconfig for seed 1.
fn render(name: &str, endpoints: &[&str], nodes: &[&str], vips: &[&str]) -> Result<String, VipAsEndpoint> {
    let bundle = bundle(1);
    let access = talosconfig::Access {
        cluster: &cluster(name),
        endpoints: &addresses(endpoints),
        nodes: &addresses(nodes),
        vips: &addresses(vips),
        authority: bundle.os.certificate(),
        client: &admin(&bundle),
    };
    talosconfig::render(&access).map(|text| text.expose().to_owned())
}

/// Shows the layout, without what makes it a secret.
fn without_data(text: &str) -> String {
    text.lines()
        .map(|line| match line.split_once(": LS0t") {
            Some((key, _)) => format!("{key}: …\n"),
            None => format!("{line}\n"),
        })
        .collect()
}

#[test]
fn a_talosconfig_is_laid_out_as_talosctl_does() {
    let text =
        render("homelab", &["10.0.0.11", "fd00::11"], &["10.0.0.11"], &["10.0.0.20"]).expect("rendered");
    assert_eq!(
        without_data(&text),
        "context: homelab\ncontexts:\n    homelab:\n        endpoints:\n            - 10.0.0.11\n            - fd00::11\n        \
         nodes:\n            - 10.0.0.11\n        ca: …\n        crt: …\n        key: …\n"
    );
    let text = render("123", &[], &[], &[]).expect("rendered");
    assert!(
        text.starts_with("context: \"123\"\ncontexts:\n    \"123\":\n        endpoints: []\n        ca: ")
    );
}

#[test]
fn a_talosconfig_reads_back() {
    let bundle = bundle(1);
    let text = render("homelab", &["10.0.0.11"], &["10.0.0.12"], &[]).expect("rendered");
    let read = Talosconfig::parse(&text).expect("a talosconfig");
    let context = read.context(None).expect("the context in use");
    assert_eq!(context.name, "homelab");
    assert_eq!(
        (&context.endpoints[..], &context.nodes[..]),
        (&["10.0.0.11".into()][..], &["10.0.0.12".into()][..])
    );
    let credentials = context.credentials.as_ref().expect("credentials");
    assert_eq!(&credentials.authority, bundle.os.certificate());
    assert_eq!(credentials.client, admin(&bundle));
    assert_eq!(read.context(Some("other")), None);
}

#[test]
fn the_vip_is_no_endpoint() {
    let vip: IpAddr = "10.0.0.20".parse().expect("an address");
    let refused = Err(VipAsEndpoint { address: vip });
    assert_eq!(render("a", &["10.0.0.11", "10.0.0.20"], &[], &["10.0.0.20"]), refused);
    assert_eq!(render("a", &["10.0.0.11"], &["10.0.0.20"], &["fd00::1", "10.0.0.20"]), refused);
    assert!(
        render("a", &["::ffff:10.0.0.20"], &[], &["10.0.0.20"]).is_err(),
        "the same address in other clothes"
    );
}

#[test]
fn contexts_without_certificates_are_read() {
    let text = "context: ''\ncontexts:\n  omni:\n    endpoints: [https://x.omni.example]\n    auth: {siderov1: {identity: me}}\n";
    let read = Talosconfig::parse(text).expect("a talosconfig");
    assert_eq!(read.current, None);
    assert_eq!(read.contexts[0].credentials, None);
    assert_eq!(read.contexts[0].endpoints, ["https://x.omni.example"]);
}

#[test]
fn everything_wrong_with_a_talosconfig_is_named_at_once() {
    let text = render("a", &["10.0.0.11"], &[], &[]).expect("rendered");
    let other = STANDARD.encode(bundle(2).os.key().pem().expose());
    let (head, _) = text.split_once("        key: ").expect("a key");
    let foreign = format!("{head}        key: {other}\n");
    for (text, flaws) in [
        ("a: 1".to_owned(), &["contexts"][..]),
        (
            "contexts: {a: {endpoints: x, nodes: [[1]], ca: '&', crt: AAAA}}".into(),
            &[
                "contexts.a.endpoints",
                "contexts.a.nodes",
                "contexts.a.ca",
                "contexts.a.key",
                "contexts.a.crt",
            ],
        ),
        (foreign, &["contexts.a.key"]),
        ("a: 1\n---\nb: 1".into(), &[""]),
    ] {
        let found = Talosconfig::parse(&text).expect_err("flaws");
        let paths: Vec<&str> = found.iter().map(|flaw| flaw.path.as_str()).collect();
        assert_eq!(paths, flaws, "{found}");
    }
}

fn kubeconfig(name: &str, server: &str) -> Result<String, ichor_model::Problem> {
    let bundle = bundle(1);
    let term = Term { now: now(), lifetime: KUBERNETES_ADMIN_LIFETIME };
    let client = kubernetes_admin(&bundle.kubernetes, term, &mut Seeded::new(9)).expect("a client");
    let access = kubeconfig::Access {
        cluster: &cluster(name),
        server,
        authority: bundle.kubernetes.certificate(),
        client: &client,
    };
    kubeconfig::render(&access).map(|text| text.expose().to_owned())
}

#[test]
fn both_lead_through_a_proxy_if_one_is_named() {
    let proxy = "socks5://127.0.0.1:1080";
    let text = SecretText::new(kubeconfig("homelab", "https://10.0.0.20:6443").expect("rendered"));
    let led = kubeconfig::through(&text, proxy).expect("a proxy");
    let lines = "    proxy-url: socks5://127.0.0.1:1080\n    server: https://10.0.0.20:6443\n";
    assert!(led.expose().contains(lines), "{}", without_data(led.expose()));
    assert_eq!(led.expose().replace("    proxy-url: socks5://127.0.0.1:1080\n", ""), text.expose());
    let text = SecretText::new(render("homelab", &["10.0.0.11"], &[], &[]).expect("rendered"));
    let led = talosconfig::through(&text, proxy).expect("a proxy");
    assert_eq!(led.expose(), format!("{}        proxy-url: {proxy}\n", text.expose()));
    Talosconfig::parse(led.expose()).expect("a talosconfig");
    for wrong in [
        "",
        "proxy",
        "ftp://proxy:1",
        "http://",
        "http://:1",
        "http://a:b@proxy:1",
        "http://a b",
        "http://a\nb",
    ] {
        assert!(
            kubeconfig::through(&text, wrong).is_err() && talosconfig::through(&text, wrong).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn a_kubeconfig_is_laid_out_as_kubectl_does() {
    let text = kubeconfig("homelab", "https://10.0.0.20:6443").expect("rendered");
    assert_eq!(
        without_data(&text),
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: …\n    server: https://10.0.0.20:6443\n  \
         name: homelab\ncontexts:\n- context:\n    cluster: homelab\n    namespace: default\n    user: admin@homelab\n  \
         name: admin@homelab\ncurrent-context: admin@homelab\nkind: Config\nusers:\n- name: admin@homelab\n  user:\n    \
         client-certificate-data: …\n    client-key-data: …\n"
    );
    let text = kubeconfig("true", "https://[fd00::1]:6443").expect("rendered");
    assert!(text.contains("  name: \"true\"\n") && text.contains("server: https://[fd00::1]:6443\n"));
}

#[test]
fn a_kubeconfig_needs_a_secure_server() {
    for server in
        ["", "10.0.0.20", "http://10.0.0.20:6443", "https://", "https:///x", "https://a b", "https://a\nb"]
    {
        assert!(kubeconfig("a", server).is_err(), "{server}");
    }
}
