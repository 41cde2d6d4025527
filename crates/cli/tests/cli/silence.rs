//! Servers that take a connection and say nothing: whoever waits for them is told so.

use std::{net::TcpListener, thread, time::Duration};

use super::{Lab, lab_with_secrets, teams::Editing, whole};

/// Something is said after five seconds, and a loaded machine takes some to start a program.
const ENOUGH: Duration = Duration::from_secs(9);

/// What is said while Proxmox is looked at.
const LOOKING: &str = "still looking at Proxmox (";
const SECRETS: &str = ".ichor/a/secrets.sops.yaml";

/// Takes connections and answers nothing, for as long as it is there.
fn mute() -> (TcpListener, u16) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

/// Returns what a run has said when it is stopped.
fn said(lab: &Lab, words: &[&str]) -> String {
    let mut command = lab.command(words);
    command.env("AWS_ACCESS_KEY_ID", "x").env("AWS_SECRET_ACCESS_KEY", "x").env("AWS_REGION", "x");
    command.env("ICHOR_PVE_TOKEN", "ann@pam!x=12345678-1234-1234-1234-123456789012");
    let output = command.timeout(ENOUGH).output().expect("the program runs");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn nobody_waits_in_silence() {
    let (_listener, port) = mute();
    let proxmox = whole("a").replace("https://pve1.lab.example:8006", &format!("https://127.0.0.1:{port}"));
    let bucket = format!("{}store: s3://team/prod?endpoint=http://127.0.0.1:{port}\n", whole("a"));
    let endpoint = format!("127.0.0.1:{port}");
    let cases: [(&str, &[&str], &str); 11] = [
        (
            &proxmox,
            &["pve", "setup", "--yes", "--password-file", "password"],
            "still logging in at Proxmox (",
        ),
        (&proxmox, &["doctor"], "still asking Proxmox, the Image Factory and registries ("),
        (&proxmox, &["plan"], LOOKING),
        (&proxmox, &["up", "--yes"], LOOKING),
        (&proxmox, &["destroy", "--yes"], LOOKING),
        (&proxmox, &["status"], LOOKING),
        (&proxmox, &["health"], LOOKING),
        (&bucket, &["doctor"], "still asking the store ("),
        (&bucket, &["secrets", "show"], "still asking the store ("),
        (&bucket, &["lock", "show"], "still asking the store ("),
        (
            "",
            &["-f", "new.yaml", "init", "--yes", "--endpoint", &endpoint],
            "still waiting for Proxmox to show who it is (",
        ),
    ];
    thread::scope(|scope| {
        for (inventory, words, expected) in &cases {
            scope.spawn(move || {
                // Where there are secrets of some kind `up` makes none, which takes the time of a processor.
                let files = [("ichor.yaml", *inventory), ("password", "secret\n"), (SECRETS, "none\n")];
                let lab = Lab::new(&files);
                let said = said(&lab, words);
                assert!(said.contains(expected), "{words:?}: {said}");
            });
        }
        scope.spawn(|| {
            let lab = lab_with_secrets(&whole("a"));
            let editing = Editing::begin(&lab);
            let said = said(&lab, &["--lock-timeout", "1m", "secrets", "rotate-key"]);
            assert!(said.contains("still waiting for `ann@"), "{said}");
            editing.kill();
        });
    });
}
