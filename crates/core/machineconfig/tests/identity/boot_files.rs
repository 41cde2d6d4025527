//! META, cidata volumes and reservations.

use std::io::Read;

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_machineconfig::{cidata, meta, reservations, schematic::Schematic, secrets::SecretText};
use ichor_model::desired::{Hostnames, Machine, Nic, Route};

use crate::machine::{leased, machine, nic};

fn plain() -> Machine {
    let nic = Nic {
        gateways: vec!["10.0.0.1".parse().expect("gateway")],
        dns: vec!["1.1.1.1".parse().expect("dns")],
        ..nic(0, "bc:24:11:00:00:11", &["10.0.0.11/24"])
    };
    machine("cp-1", vec![nic])
}

fn dual_stack() -> Machine {
    let first = Nic {
        gateways: vec!["10.0.0.1".parse().expect("gateway"), "fd00::1".parse().expect("gateway")],
        dns: vec!["1.1.1.1".parse().expect("dns"), "2606:4700:4700::1111".parse().expect("dns")],
        mtu: Some(9000),
        ..nic(0, "bc:24:11:00:00:11", &["10.0.0.11/24", "fd00::11/64"])
    };
    let storage = Nic {
        dns: vec!["1.1.1.1".parse().expect("dns")],
        mtu: Some(1),
        routes: vec![Route {
            to: "10.8.0.0/16".parse().expect("net"),
            via: "10.9.0.1".parse().expect("via"),
            metric: Some(50),
        }],
        ..nic(1, "bc:24:11:00:00:12", &["10.9.0.11/24"])
    };
    machine("cp-1", vec![first, storage, leased(2, "bc:24:11:00:00:13")])
}

#[test]
fn meta_is_one_line_of_json() {
    let value = meta::network(&plain(), Hostnames::Inventory, &["pool.ntp.org".into()]).expect("a value");
    assert_eq!(
        value,
        concat!(
            r#"{"addresses":[{"address":"10.0.0.11/24","linkName":"eth0","family":"inet4","scope":"global","#,
            r#""flags":"permanent","layer":"platform"}],"#,
            r#""links":[{"name":"eth0","up":true,"layer":"platform"}],"#,
            r#""routes":[{"family":"inet4","dst":"","gateway":"10.0.0.1","outLinkName":"eth0","table":"main","#,
            r#""priority":1024,"scope":"global","type":"unicast","protocol":"static","layer":"platform"}],"#,
            r#""hostnames":[{"hostname":"cp-1","domainname":"","layer":"platform"}],"#,
            r#""resolvers":[{"dnsServers":["1.1.1.1"],"layer":"platform"}],"#,
            r#""timeServers":[{"timeServers":["pool.ntp.org"],"layer":"platform"}]}"#,
        )
    );
    assert!(Schematic::default().with_meta(meta::NETWORK_KEY, &value).canonical_yaml().contains("value: '{"));
}

#[test]
fn meta_leaves_leased_links_and_dhcp_names_alone() {
    let value = meta::network(&dual_stack(), Hostnames::Dhcp, &[]).expect("a value");
    let value: serde_json::Value = serde_json::from_str(&value).expect("json");
    assert_eq!(value.get("hostnames"), None);
    assert_eq!(value.get("timeServers"), None);
    let links: Vec<_> = value["links"].as_array().expect("links").iter().map(|link| &link["name"]).collect();
    assert_eq!(links, ["eth0", "eth1"]);
    assert_eq!(value["links"][0]["mtu"], 9000);
    assert_eq!(value["links"][1].get("mtu"), None, "1 is the bridge's own");
    let priorities: Vec<_> =
        value["routes"].as_array().expect("routes").iter().map(|route| &route["priority"]).collect();
    assert_eq!(priorities, [1024, 2048, 50]);
    let servers = value["resolvers"][0]["dnsServers"].as_array().expect("servers");
    assert_eq!(servers.len(), 2, "each once");
}

#[test]
fn a_meta_value_ends_at_a_semicolon_and_so_has_none() {
    assert!(meta::network(&plain(), Hostnames::Inventory, &["a;b".into()]).is_err());
    assert!(meta::encode(&[(12, "a;b")]).is_err());
}

#[test]
fn short_meta_is_plain_and_long_meta_compressed() {
    assert_eq!(meta::encode(&[(10, "foo")]).as_deref(), Ok("MHhhPWZvbw=="));
    assert_eq!(
        meta::kernel_argument(&[(10, "foo"), (12, "bar")]).as_deref(),
        Ok("talos.environment=INSTALLER_META_BASE64=MHhhPWZvbzsweGM9YmFy")
    );
    for (length, compressed) in [(252, false), (253, true)] {
        let value = "x".repeat(length);
        let encoded = meta::encode(&[(10, &value)]).expect("encoded");
        let bytes = STANDARD.decode(encoded).expect("base64");
        assert_eq!(bytes.starts_with(&[0x1f, 0x8b]), compressed, "{length}");
        let mut text = String::new();
        if compressed {
            flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("gzip");
        } else {
            text = String::from_utf8(bytes).expect("text");
        }
        assert_eq!(text, format!("0xa={value}"));
    }
}

#[test]
fn cidata_names_the_machine_and_its_network() {
    let files =
        cidata::render(&dual_stack(), Hostnames::Inventory, Some(SecretText::new("version: v1alpha1\n")));
    assert_eq!(files.user_data.expose(), "version: v1alpha1\n");
    assert_eq!(files.meta_data, "instance-id: 42031b72-c15d-8c0e-bd95-92b795bb558c\nlocal-hostname: cp-1\n");
    assert_eq!(files.network_config, include_str!("../golden/network-config.yaml"));
}

#[test]
fn cidata_without_a_config_leaves_the_machine_in_maintenance_mode() {
    let files = cidata::render(&plain(), Hostnames::Dhcp, None);
    assert!(files.user_data.expose().starts_with("#cloud-config\n"));
    assert!(!files.meta_data.contains("hostname"));
}

#[test]
fn names_that_look_like_something_else_are_quoted() {
    let files = cidata::render(&machine("1e3", Vec::new()), Hostnames::Inventory, None);
    assert!(files.meta_data.contains("local-hostname: \"1e3\"\n"), "{}", files.meta_data);
}

#[test]
fn reservations_have_one_line_for_each_known_card() {
    let other = machine("worker-1", vec![leased(0, "bc:24:11:00:00:21")]);
    assert_eq!(
        reservations::dnsmasq([&dual_stack(), &other]),
        "dhcp-host=bc:24:11:00:00:11,10.0.0.11,[fd00::11],cp-1\ndhcp-host=bc:24:11:00:00:12,10.9.0.11\n"
    );
}
