//! The real program and a lab whose machines have addresses that only its proxy leads to.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts something that prints a JSON document as soon as it is ready, and returns both.
fn start(command: &mut Command) -> (Running, Value) {
    let mut child = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a process"));
    let mut said = String::new();
    for line in BufReader::new(child.0.stdout.take().expect("a pipe")).lines() {
        said += &line.expect("a line");
        if let Ok(document) = serde_json::from_str(&said) {
            return (child, document);
        }
    }
    panic!("it ended early: {said}");
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ichor"));
    command.stdin(Stdio::null());
    command
}

#[test]
fn a_cluster_comes_up_through_proxies() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "0", "--factory-port", "0", "--proxy-port", "0"];
    let (_lab, access) =
        start(program().args(["lab", "serve", "-o", "json"]).args(ports).current_dir(&directory));
    let text = |pointer: &str| access.pointer(pointer).and_then(Value::as_str).expect("a text").to_owned();
    // The names are known on the far side alone.
    let inventory = |jump: &str| {
        format!(
            "cluster: {{name: far, talos: v1.13.9, kubernetes: v1.36.3}}\n\
             proxmox:\n  endpoint: https://pve1:8006\n  token: {{env: ICHOR_PVE_TOKEN}}\n  tls: {{sha256: {}}}\n  jump: {jump}\n\
             image: {{factory: {}}}\n\
             network: {{cidr: 10.50.0.0/24, gateway: 10.50.0.1, dns: 10.50.0.1}}\n\
             machines: {{cp: {{role: control-plane}}, worker: {{role: worker, count: 2}}}}\n",
            text("/pve/sha256"),
            text("/factory/url"),
        )
    };
    let token = text("/pve/token");
    let run = |arguments: &[&str]| {
        let mut command = program();
        command.args(arguments).current_dir(&directory).env("ICHOR_PVE_TOKEN", &token);
        let output = command.output().expect("a run");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {told}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let write =
        |jump: &str| fs::write(directory.path().join("ichor.yaml"), inventory(jump)).expect("an inventory");

    write(&text("/proxy/socks5"));
    run(&["up", "--yes"]);
    write(&text("/proxy/http"));
    let status = run(&["status"]);
    assert!(status.contains("nodes 3/3 ready"), "{status}");

    // A tunnel over the proxy is a proxy as well, and what it leads through may be named twice.
    let (_tunnel, opened) = start(program().args(["tunnel", "-o", "json"]).current_dir(&directory));
    let tunnel = opened["proxy"]["socks5"].as_str().expect("a URL");
    write(tunnel);
    let status = run(&["status"]);
    assert!(status.contains("nodes 3/3 ready"), "{status}");
}

#[test]
fn a_tunnel_needs_a_way() {
    let directory = tempfile::tempdir().expect("a directory");
    let inventory = "cluster: {name: near, talos: v1.13.9, kubernetes: v1.36.3}\nproxmox: {endpoint: \"https://pve1:8006\"}\n\
                     network: {cidr: 10.50.0.0/24, gateway: 10.50.0.1, dns: 10.50.0.1}\nmachines: {cp: {role: control-plane}}\n";
    fs::write(directory.path().join("ichor.yaml"), inventory).expect("an inventory");
    let output = program().arg("tunnel").current_dir(&directory).output().expect("a run");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("ICH-3121") && told.contains("reached directly"), "{told}");
}
