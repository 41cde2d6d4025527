//! The client against the lab's factory on loopback, and against answers that no factory should give.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex},
    time::Duration,
};

use ichor_factory::{Asset, Client, Error, Form, Kind, Whereabouts, missing};
use ichor_lab::{
    Hall, Target,
    listen::{self, Behind},
};
use ichor_machineconfig::schematic::Schematic;
use ichor_model::{
    TalosVersion,
    desired::{Arch, Platform},
};
use ichor_net::{Direct, Endpoint, HttpClient, Trust};
use ichor_port::{Http, Request, Response, TransportError};
use ichor_sim::{Lab, faults::FaultPlan, profile::Profile};

const ASSET: Asset =
    Asset { platform: Platform::Nocloud, arch: Arch::Amd64, secureboot: false, form: Form::Qcow2 };

async fn open() -> (Arc<Hall>, Client<HttpClient>) {
    let hall = Arc::new(Hall::new(Lab::new(1, Profile::Instant)));
    let any = (IpAddr::V4(Ipv4Addr::LOCALHOST), 0).into();
    let at = listen::open(&hall, any, Behind::Server(Target::Factory)).await.expect("a port");
    let endpoint = Endpoint { host: at.ip().to_string(), port: at.port(), tls: false };
    let http = HttpClient::new(endpoint, Trust::System, None, Arc::new(Direct)).expect("a client");
    (hall, Client::new(http))
}

fn talos() -> TalosVersion {
    "v1.13.9".parse().expect("a version")
}

fn agent() -> Schematic {
    Schematic { extensions: vec!["siderolabs/qemu-guest-agent".into()], ..Schematic::default() }
}

#[tokio::test]
async fn a_registered_schematic_has_an_image_of_some_length() {
    let (_hall, client) = open().await;
    let (yaml, id) = (agent().canonical_yaml(), agent().id());
    let unknown = client.head(&ASSET, &id, &talos()).await.expect_err("not yet");
    assert_eq!(unknown.refusal(), Some(Kind::Missing), "{unknown}");
    for _ in 0..2 {
        client.register(&yaml, &id).await.expect("the same id");
    }
    let head = client.head(&ASSET, &id, &talos()).await.expect("an image");
    assert!(head.length.is_some_and(|length| length > 0), "{head:?}");
    let here = client.whereabouts(&ASSET, &id, &talos()).await.expect("an image");
    assert_eq!(here, Whereabouts::Here(head));
}

#[tokio::test]
async fn another_id_than_ours_is_told() {
    let (_hall, client) = open().await;
    let error = client.register(&agent().canonical_yaml(), "abc").await.expect_err("another id");
    assert!(matches!(&error, Error::OtherId { ours, theirs } if ours == "abc" && *theirs == agent().id()));
    let wrong = client.register("surprise: true\n", "abc").await.expect_err("an unknown field");
    assert_eq!(wrong.refusal(), Some(Kind::Invalid), "{wrong}");
}

#[tokio::test]
async fn extensions_are_checked_before_an_image_is_asked_for() {
    let (_hall, client) = open().await;
    assert!(client.versions().await.expect("releases").contains(&talos()));
    let offered = client.extensions(&talos()).await.expect("extensions");
    let wanted = ["siderolabs/qemu-guest-agent", "siderolabs/i915-ucode", "siderolabs/no-such-thing"];
    assert_eq!(missing(&wanted.map(String::from), &offered), ["siderolabs/no-such-thing"]);
    let unknown = client.extensions(&"v1.99.0".parse().expect("a version")).await.expect_err("unknown");
    assert_eq!(unknown.refusal(), Some(Kind::Missing), "{unknown}");

    let recipe = Schematic { extensions: vec!["siderolabs/no-such-thing".into()], ..Schematic::default() };
    client.register(&recipe.canonical_yaml(), &recipe.id()).await.expect("nobody looks at extensions yet");
    let late = client.head(&ASSET, &recipe.id(), &talos()).await.expect_err("now somebody does");
    assert_eq!(late.refusal(), Some(Kind::Invalid), "{late}");
}

#[tokio::test]
async fn mishaps_are_told_apart() {
    let (hall, client) = open().await;
    let plan: FaultPlan = serde_json::from_str(
        r#"[{"server": "factory", "path": "/versions", "fault": {"close": "after"}},
            {"server": "factory", "path": "/versions", "occurrence": 2, "fault": {"cut": {"bytes": 9}}},
            {"server": "factory", "path": "/versions", "occurrence": 3,
             "fault": {"status": {"code": 503, "reason": "Service Unavailable", "when": "before"}}}]"#,
    )
    .expect("a plan");
    hall.visit(|lab| lab.ground.faults = plan);
    for what in ["closed", "cut"] {
        let lost = client.versions().await.expect_err(what);
        assert!(matches!(lost, Error::Transport(TransportError::Lost(_))), "{what}: {lost}");
    }
    let busy = client.versions().await.expect_err("busy");
    assert_eq!((busy.refusal(), busy.may_have_happened()), (Some(Kind::Busy), false), "{busy}");
    client.versions().await.expect("the plan is used up");
}

/// Answers always the same, and remembers what it was asked.
struct Canned(Response, Mutex<Vec<Request>>);

impl Http for &Canned {
    async fn send(&self, request: Request, _within: Duration) -> Result<Response, TransportError> {
        self.1.lock().expect("not poisoned").push(request);
        Ok(self.0.clone())
    }
}

fn canned(status: u16, headers: &[(&str, &str)], body: &str) -> Canned {
    let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Canned(Response { status, headers, body: body.into(), ..Response::default() }, Mutex::default())
}

#[tokio::test]
async fn a_redirect_is_told_and_not_followed() {
    let elsewhere = canned(302, &[("location", "https://cdn.example/talos.qcow2?sign=1")], "");
    let error = Client::new(&elsewhere).head(&ASSET, "abc", &talos()).await.expect_err("elsewhere");
    assert_eq!(error.refusal(), Some(Kind::Elsewhere));
    assert!(error.to_string().contains("https://cdn.example/talos.qcow2"), "{error}");
    assert_eq!(elsewhere.1.lock().expect("not poisoned").len(), 1);
}

#[tokio::test]
async fn a_strange_answer_is_no_panic() {
    for (status, body) in [(201, ""), (201, "[]"), (201, r#"{"id": 7}"#), (200, "null"), (204, "")] {
        let strange = canned(status, &[("content-length", "-5")], body);
        let client = Client::new(&strange);
        assert!(client.register("customization: {}\n", "abc").await.is_err(), "{status} {body}");
        assert!(client.versions().await.is_err() || body == "[]", "{status} {body}");
    }
    let hostile = canned(201, &[], &format!(r#"{{"id": "\u001b[2J{}"}}"#, "x".repeat(1 << 20)));
    let error = Client::new(&hostile).register("customization: {}\n", "abc").await.expect_err("not ours");
    assert!(error.to_string().len() < 3_000 && !error.to_string().contains('\u{1b}'));
    let lying = canned(200, &[("content-length", "many")], "");
    let head = Client::new(&lying).head(&ASSET, "abc", &talos()).await.expect("an image");
    assert_eq!(head.length, None);
}
