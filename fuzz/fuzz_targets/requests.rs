//! Whatever a client sends: the lab's Proxmox answers, within bounds, and never panics.
//!
//! The first lines are methods, paths, queries and headers of requests, the rest are bodies, parted by zero bytes.

#![no_main]

use ichor_sim::{
    Door, Lab, Progress,
    profile::Profile,
    setup::{Setup, TOKEN, USER},
    wire::Request,
};
use libfuzzer_sys::fuzz_target;

/// Most requests of one input, and most turns that one may be kept waiting.
const MOST: usize = 16;

fuzz_target!(|data: &[u8]| {
    let mut lab = Setup::new(1, Profile::Instant).build();
    let secret = lab.pve.access.users[USER].tokens[TOKEN].secret.clone();
    let token = format!("PVEAPIToken={USER}!{TOKEN}={secret}");
    for part in data.split(|byte| *byte == 0).take(MOST) {
        answer(&mut lab, request(part, &token));
    }
});

/// `METHOD PATH?QUERY`, then headers, then an empty line and the body.
fn request(part: &[u8], token: &str) -> Request {
    let text = String::from_utf8_lossy(part);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let (method, target) = lines.next().unwrap_or_default().split_once(' ').unwrap_or(("GET", "/version"));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = vec![
        ("authorization".to_owned(), token.to_owned()),
        ("content-length".to_owned(), body.len().to_string()),
    ];
    let given = lines.filter_map(|line| line.split_once(": "));
    headers.extend(given.map(|(name, value)| (name.to_lowercase(), value.to_owned())));
    Request {
        method: method.into(),
        path: format!("/api2/json{path}"),
        query: query.into(),
        headers,
        body: body.as_bytes().to_vec(),
        ..Request::default()
    }
}

fn answer(lab: &mut Lab, mut request: Request) {
    request.began = lab.ground.now;
    for _ in 0..MOST {
        match lab.call(&Door::Pve, &request) {
            Progress::Done(response) => {
                assert!(
                    response.status == 0 || (200..=599).contains(&response.status),
                    "{}",
                    response.status
                );
                return;
            }
            Progress::Wait(until) => lab.advance(until),
        }
    }
}
