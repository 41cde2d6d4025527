//! The real program against a lab that is served on loopback: real sockets, real TLS, and real kills.
//!
//! `cargo test -p ichor --test loopback -- --ignored` kills it at thirty moments.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

/// A lab that is served, and an inventory that fits it.
struct Served {
    directory: tempfile::TempDir,
    lab: Child,
    token: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.lab.kill();
        let _ = self.lab.wait();
    }
}

fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_ichor").into()
}

impl Served {
    /// `network` is the second number of the machines' addresses, so that tests can run side by side.
    fn new(network: u8, machines: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let out = fs::File::create(directory.path().join("lab.out")).expect("a file");
        let lab = Command::new(program())
            .args(["lab", "serve", "-o", "json", "--port", "0", "--factory-port", "0", "--proxy-port", "0"])
            .args([
                "--state",
                "lab.json",
                "--strangers",
                "20",
                "--host",
                "pve1=64:512",
                "--host",
                "pve2=64:512",
            ])
            .current_dir(directory.path())
            .stdout(out)
            .stderr(Stdio::null())
            .spawn()
            .expect("a lab");
        let mut served = Self { directory, lab, token: String::new() };
        let access = served.access();
        access["pve"]["token"].as_str().expect("a token").clone_into(&mut served.token);
        let inventory = format!(
            "cluster: {{name: loop, talos: v1.13.9, kubernetes: v1.36.3}}\n\
             proxmox: {{endpoint: {}, token: {{env: ICHOR_PVE_TOKEN}}, tls: {{sha256: {}}}}}\n\
             image: {{factory: {}}}\n\
             network: {{cidr: 127.{network}.0.0/24, gateway: 127.{network}.0.1, dns: 127.{network}.0.1}}\n\
             machines: {machines}\n",
            access["pve"]["url"], access["pve"]["sha256"], access["factory"]["url"],
        );
        fs::write(served.directory.path().join("ichor.yaml"), inventory).expect("an inventory");
        served
    }

    /// Waits until the lab has said how it is reached.
    fn access(&mut self) -> Value {
        for _ in 0..3_000 {
            let said = fs::read_to_string(self.path("lab.out")).expect("what it said");
            if let Ok(access) = serde_json::from_str(&said) {
                return access;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the lab does not open");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).current_dir(self.directory.path());
        command.env("ICHOR_PVE_TOKEN", &self.token).stdin(Stdio::null());
        // The key that opens the cluster's secrets is made at home, and not in that of whoever runs the tests.
        command
            .env("HOME", self.path("home"))
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("SOPS_AGE_RECIPIENTS");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("a run")
    }

    /// Runs a verb, which must succeed.
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {told}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a verb and kills it after a time; returns whether it was still at work.
    fn kill_after(&self, arguments: &[&str], time: Duration) -> bool {
        let mut run =
            self.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a run");
        thread::sleep(time);
        let at_work = run.try_wait().expect("a state").is_none();
        let _ = run.kill();
        let _ = run.wait();
        let mut told = String::new();
        let _ = run.stderr.take().expect("a pipe").read_to_string(&mut told);
        assert!(!told.contains("panicked"), "{told}");
        at_work
    }

    fn state(&self) -> Value {
        let state = self.succeed(&["lab", "state", "--state", "lab.json"]);
        serde_json::from_str(&state).expect("a state")
    }

    /// The names of all VMs that carry ichor's stamp for this cluster, by number.
    fn machines(&self) -> Vec<String> {
        let state = self.state();
        let vms = state["pve"]["vms"].as_object().expect("VMs");
        let ours = vms.iter().filter(|(_, vm)| vm.to_string().contains("cluster: loop"));
        ours.map(|(vmid, _)| vmid.clone()).collect()
    }

    fn bootstraps(&self) -> usize {
        let state = self.state();
        let calls = state["ground"]["record"]["calls"].as_array().expect("calls");
        let accepted = calls.iter().filter(|call| {
            call["path"].as_str().is_some_and(|path| path.ends_with("/Bootstrap")) && call["status"] == 0
        });
        accepted.count()
    }
}

fn bundle(directory: &Path) -> String {
    fs::read_to_string(directory.join(".ichor/loop/secrets.sops.yaml")).expect("secrets")
}

#[test]
fn a_cluster_comes_up_over_sockets_and_survives_kills() {
    let served = Served::new(61, "{cp: {role: control-plane, count: 1}, worker: {role: worker, count: 1}}");
    assert!(served.kill_after(&["up", "--yes"], Duration::from_millis(1_500)), "it was done already");
    served.kill_after(&["up", "--yes"], Duration::from_millis(2_500));
    served.succeed(&["up", "--yes"]);
    let secrets = bundle(served.directory.path());
    assert_eq!(served.machines(), ["2000", "3000"]);
    assert_eq!(served.bootstraps(), 1);
    assert!(served.run(&["plan"]).status.success(), "the plan is not empty");
    assert!(served.run(&["health"]).status.success());
    served.kill_after(&["destroy", "--yes", "--all"], Duration::from_millis(400));
    served.succeed(&["destroy", "--yes", "--all"]);
    assert!(served.machines().is_empty());
    assert_eq!(bundle(served.directory.path()), secrets);
}

#[test]
#[ignore = "takes minutes: cargo test -p ichor --test loopback -- --ignored"]
fn thirty_kills_leave_no_trace() {
    let served = Served::new(62, "{cp: {role: control-plane, count: 3}, worker: {role: worker, count: 2}}");
    let wanted = ["2000", "2001", "2002", "3000", "3001"];
    let (mut kills, mut seed) = (0, 20_261_116_u64);
    while kills < 30 {
        // A few bits of a linear congruence are random enough to choose moments.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let moment = Duration::from_millis(300 + (seed >> 33) % 6_000);
        if served.kill_after(&["up", "--yes"], moment) {
            kills += 1;
            let there = served.machines();
            assert!(there.iter().all(|vmid| wanted.contains(&vmid.as_str())), "{there:?}");
            continue;
        }
        served.succeed(&["up", "--yes"]);
        assert_eq!(served.machines(), wanted);
        assert!(served.run(&["plan"]).status.success(), "the plan is not empty");
        assert_eq!(served.bootstraps(), 1);
        served.succeed(&["destroy", "--yes"]);
        assert!(served.machines().is_empty());
        served.succeed(&["lab", "reset", "--state", "lab.json", "--record"]);
    }
}
