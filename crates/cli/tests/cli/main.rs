//! The program as its users see it: stdout, stderr and exit code.

mod access;
mod canary;
mod discovery;
mod doctor;
mod findings;
mod hostile;
mod hostile_servers;
mod keeping;
mod lab_events;
#[cfg(unix)]
mod mirror;
mod rendering;
mod restore;
mod sealed;
mod secrets;
mod setup;
#[cfg(unix)]
mod silence;
#[cfg(unix)]
mod teams;
mod verbs;

use std::{fs, path::PathBuf, sync::OnceLock, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

/// Long enough for a loaded machine, short enough to notice a program that waits for ever.
const DEADLINE: Duration = Duration::from_mins(1);

/// Variables of the user's shell that change the output, or where it goes.
const FOREIGN_VARIABLES: [&str; 6] =
    ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "KUBECONFIG", "TALOSCONFIG"];

/// A directory of its own, in which the program runs.
struct Lab {
    root: TempDir,
}

/// What a run gave back.
#[derive(Debug)]
struct Outcome {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Lab {
    /// Writes files and makes the directories they need.
    fn new(files: &[(&str, &str)]) -> Self {
        let lab = Self { root: tempfile::tempdir().expect("directory") };
        // One level down, so that `../defaults.yaml` is ours too.
        fs::create_dir(lab.path("")).expect("directory");
        for (name, text) in files {
            lab.write(name, text);
        }
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("work").join(name)
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The key that opens what is encrypted here.
    fn key(&self) -> PathBuf {
        self.home().join(".config/sops/age/keys.txt")
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        fs::write(path, bytes).expect("file");
    }

    #[expect(clippy::disallowed_methods, reason = "the environment is kept from the program")]
    fn command(&self, arguments: &[&str]) -> assert_cmd::Command {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_ichor"));
        command.current_dir(self.path("")).args(arguments).timeout(DEADLINE);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let is_foreign = ["ICHOR_", "SOPS_", "XDG_"].iter().any(|prefix| name.starts_with(prefix));
            if is_foreign || FOREIGN_VARIABLES.contains(&name.as_str()) {
                command.env_remove(name);
            }
        }
        // Keys are made at home, and never in that of whoever runs the tests.
        command.env("HOME", self.home());
        command
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(&mut self.command(arguments))
    }

    /// Checks and returns the report for programs.
    fn check(&self, arguments: &[&str]) -> Value {
        let all: Vec<&str> = ["check", "-o", "json"].iter().chain(arguments).copied().collect();
        let outcome = self.run(&all);
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
    }
}

impl Outcome {
    fn of(command: &mut assert_cmd::Command) -> Self {
        let output = command.output().expect("the program runs");
        Self {
            code: output.status.code().expect("no signal"),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

/// Returns the codes of a report's errors.
fn errors(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("findings");
    let errors = findings.iter().filter(|finding| finding["severity"] == "error");
    errors.map(|finding| finding["code"].as_str().expect("code")).collect()
}

/// Returns the names of a report's clusters.
fn clusters(report: &Value) -> Vec<&str> {
    let clusters = report["clusters"].as_array().expect("clusters");
    clusters.iter().map(|cluster| cluster["name"].as_str().unwrap_or("?")).collect()
}

/// The secrets of a cluster, made once for all tests by the program itself.
fn bundle() -> &'static str {
    static BUNDLE: OnceLock<String> = OnceLock::new();
    BUNDLE.get_or_init(|| {
        let lab = Lab::new(&[("ichor.yaml", &whole("a"))]);
        let made = lab.run(&["secrets", "new"]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        lab.run(&["secrets", "export"]).stdout
    })
}

/// A lab with a cluster that has secrets.
fn lab_with_secrets(inventory: &str) -> Lab {
    let lab = Lab::new(&[("ichor.yaml", inventory), ("given/secrets.yaml", bundle())]);
    let imported = lab.run(&["secrets", "import", "given/secrets.yaml"]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    lab
}

/// What clusters of one site share.
const SHARED: &str = "\
proxmox:
  endpoint: https://pve1.lab.example:8006
  token: {env: ICHOR_PVE_TOKEN}
  tls: {sha256: 'AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA'}
  hosts: {pve1: {cpu: 32, memory: 128GiB}, pve2: {cpu: 32, memory: 128GiB}, pve3: {cpu: 32, memory: 128GiB}}
  storage: {disks: local-lvm, images: local}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: [9.9.9.9], bridge: vmbr0}
";

/// A cluster of its own on a site; `number` keeps VMIDs and addresses of several apart.
fn own(name: &str, number: u32) -> String {
    format!("{}{}", head(name, number), machines(number))
}

fn head(name: &str, number: u32) -> String {
    format!(
        "schema: 1\ncluster: {{name: {name}, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {{vip: 10.0.0.{}}}}}\n",
        200 + number
    )
}

fn machines(number: u32) -> String {
    format!(
        "machines:\n  cp: {{role: control-plane, count: 3, cpu: 4, memory: 8GiB, disk: 40GiB, vmid: {}, address: +{}}}\n",
        2000 + 10 * number,
        10 + 10 * number
    )
}

/// A whole inventory.
fn whole(name: &str) -> String {
    format!("{}{SHARED}", own(name, 0))
}
