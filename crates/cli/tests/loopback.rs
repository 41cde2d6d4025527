//! The real program against a lab that is served on loopback: real sockets, real TLS, and real kills.
//!
//! `cargo test -p ichor --test loopback -- --ignored` kills it at thirty moments.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
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
    assert!(served.run(&["health", "--wait", "1m"]).status.success());
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

// ---- canaries

const IN_VAULT: &str = "canary-in-vault";
const OF_VAULT: &str = "canary-of-the-vault-token";
const IN_SOPS: &str = "canary-in-sops";
const OF_COMMAND: &str = "canary-of-a-command";
const PASSWORD: &str = "canary-of-a-password";
const PATCH: &str = "canary-in-a-patch";

/// Everything in an inventory that can name a secret names one.
const NAMES: &str = "\
os:
  extension_services: {vpn: {environment: {A: {sops: 'values.sops.yaml#vpn.key'}, B: {command: [./give]}, C: {vault: 'secret/lab#key'}}}}
  registries: {registry.lab.example: {username: me, password: {file: password}}}
patches: [patch.yaml]
";

/// A child says what it was told: its words, its environment, and the words of whoever called it.
const GIVE: &str = "#!/bin/sh\n(echo \"$@\"; env; tr '\\0' ' ' < /proc/$PPID/cmdline) >> child\n";

/// Serves a Vault that keeps one secret, for as long as the process lives. Returns its address.
fn vault() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
            let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let body = if head.first().is_some_and(|line| line.contains("/mounts/")) {
                r#"{"data": {"path": "secret/", "options": {"version": "2"}}}"#.to_owned()
            } else {
                format!(r#"{{"data": {{"data": {{"key": "{IN_VAULT}"}}}}}}"#)
            };
            assert!(head.iter().any(|line| line.ends_with(OF_VAULT)), "nobody is logged in");
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    address
}

impl Served {
    fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
    }

    /// Puts a secret into every place that can hold one, and names it in the inventory.
    fn hide(&self) {
        let inventory = fs::read_to_string(self.path("ichor.yaml")).expect("an inventory");
        let inventory = inventory.replace("{env: ICHOR_PVE_TOKEN}", "{file: token}") + NAMES;
        self.write("ichor.yaml", &inventory, 0o644);
        self.write("token", &self.token, 0o600);
        self.write("password", PASSWORD, 0o600);
        self.write("home/.vault-token", OF_VAULT, 0o600);
        self.write("patch.yaml", &format!("machine:\n  env:\n    TOKEN: {PATCH}\n"), 0o600);
        self.write("values.sops.yaml", &format!("vpn: {{key: {IN_SOPS}}}\n"), 0o600);
        self.write("give", &format!("{GIVE}echo {OF_COMMAND}\n"), 0o700);
        self.write("edit", &format!("{GIVE}echo '# more' >> \"$1\"\n"), 0o700);
    }

    /// Runs a verb with open doors: whatever it writes, others can read, unless it sees to that itself.
    fn run_open(&self, vault: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(program()).args(arguments);
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("HOME", self.path("home")).env("VAULT_ADDR", vault).env("EDITOR", self.path("edit"));
        command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full");
        for name in
            ["XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "SOPS_AGE_RECIPIENTS", "VAULT_TOKEN", "ICHOR_PVE_TOKEN"]
        {
            command.env_remove(name);
        }
        command.output().expect("a run")
    }

    fn spoil(&self, plan: &Value) {
        self.write("faults.json", &plan.to_string(), 0o600);
        self.succeed(&["lab", "faults", "--state", "lab.json", "faults.json"]);
    }

    fn files(&self) -> Vec<PathBuf> {
        let (mut found, mut left) = (Vec::new(), vec![self.directory.path().to_owned()]);
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).expect("a directory").flatten() {
                let kind = entry.file_type().expect("a kind");
                if kind.is_dir() {
                    left.push(entry.path());
                }
                found.push(entry.path());
            }
        }
        found
    }
}

/// What is searched for: the canaries, the token, the key of the user, and the keys of the cluster.
struct Canaries(Vec<String>);

impl Canaries {
    fn of(served: &Served, exported: &str) -> Self {
        let mut all: Vec<String> =
            [IN_VAULT, OF_VAULT, IN_SOPS, OF_COMMAND, PASSWORD, PATCH].map(str::to_owned).into();
        all.push(served.token.split('=').nth(1).expect("a secret").to_owned());
        let keys = fs::read_to_string(served.path("home/.config/sops/age/keys.txt")).expect("a key");
        all.push(keys.lines().find(|line| line.starts_with("AGE-SECRET-KEY-")).expect("a key").to_owned());
        let values = exported.lines().filter_map(|line| line.trim().split_once(": "));
        let secret = values.filter(|(key, value)| !matches!(*key, "crt" | "id") && value.len() > 12);
        // The first characters of each are the same for all keys of a kind.
        all.extend(
            secret.map(|(_, value)| if value.len() > 100 { &value[60..100] } else { value }.to_owned()),
        );
        assert!(all.len() > 14, "{}", all.len());
        Self(all)
    }

    fn search(&self, place: &str, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        for canary in &self.0 {
            assert!(!text.contains(canary.as_str()), "{place} tells {canary}:\n{text}");
        }
    }
}

/// Files that are given, that the lab keeps, or that somebody asked for who wants to have the secrets.
fn may_hold_secrets(path: &str) -> bool {
    const KNOWN: [&str; 12] = [
        "token",
        "password",
        "patch.yaml",
        "give",
        "edit",
        "home/.vault-token",
        "home/.config/sops/age/keys.txt",
        "lab.json",
        "lab.out",
        "k",
        "t",
        ".ichor/loop/kubeconfig",
    ];
    KNOWN.contains(&path) || path == ".ichor/loop/talosconfig" || path.starts_with("rendered/")
}

/// What a Proxmox may do that is not well.
fn bad_days() -> [Value; 6] {
    [
        serde_json::json!({ "status": { "code": 401, "reason": "authentication failure", "when": "before" } }),
        serde_json::json!({ "status": { "code": 500, "reason": "sick", "when": "before" } }),
        serde_json::json!({ "hostile": "escapes" }),
        serde_json::json!({ "payload": "{\"data\": [1" }),
        serde_json::json!({ "close": "before" }),
        serde_json::json!("permission_lost"),
    ]
}

/// Every verb over real sockets, with secrets that can be recognised in all places, in good days and bad ones.
#[test]
fn no_secret_gets_out_of_the_program() {
    let served = Served::new(63, "{cp: {role: control-plane, count: 1}}");
    let vault = vault();
    served.hide();
    let run = |arguments: &[&str]| served.run_open(&vault, arguments);
    let succeed = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    };
    succeed(&["secrets", "encrypt", "values.sops.yaml"]);
    succeed(&["secrets", "new"]);
    let exported = String::from_utf8(succeed(&["secrets", "export"]).stdout).expect("text");
    let canaries = Canaries::of(&served, &exported);
    let search = |arguments: &[&str]| {
        let output = run(arguments);
        let place = format!("{arguments:?}");
        canaries.search(&place, &output.stdout);
        canaries.search(&place, &output.stderr);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{place}");
        output.status.code()
    };
    let looks: [&[&str]; 9] = [
        &["plan"],
        &["plan", "-o", "json"],
        &["status"],
        &["status", "-o", "json"],
        &["health", "-o", "json"],
        &["doctor"],
        &["doctor", "-o", "json"],
        &["up", "--dry-run"],
        &["destroy", "--dry-run"],
    ];
    for fault in bad_days() {
        served.spoil(&serde_json::json!([{ "server": "pve", "path": "*", "occurrence": 0, "fault": fault }]));
        for arguments in looks {
            search(arguments);
        }
        assert_ne!(search(&["up", "--yes"]), Some(0));
        assert_ne!(search(&["up", "--yes", "--json"]), Some(0));
    }
    // A run that begins, and fails at what is told with the config of a machine.
    let refused = serde_json::json!([{ "server": "talos", "path": "*/ApplyConfiguration", "occurrence": 0,
        "fault": { "status": { "code": 3, "reason": "invalid", "when": "before" } } }]);
    served.spoil(&refused);
    assert_ne!(search(&["up", "--yes", "--json"]), Some(0));
    served.spoil(&serde_json::json!([]));
    assert_eq!(search(&["plan", "--out", "plan.json"]), Some(2));
    assert_eq!(search(&["up", "plan.json"]), Some(0));
    served.write("admin", "ichor-lab\n", 0o600);
    for arguments in [
        &["kubeconfig", "--out", "k"][..],
        &["talosconfig", "--out", "t"],
        &["pve", "setup", "--yes", "--password-file", "admin", "--user", "ichor-loop@pve"],
        &["secrets", "restore", "-o", "json"],
        &["secrets", "restore", "--list"],
    ] {
        assert_eq!(search(arguments), Some(0), "{arguments:?}");
    }
    assert!(served.path("tokens.sops.yaml").exists() && served.path("k").exists());
    for arguments in looks.into_iter().chain([
        &["check"][..],
        &["render"],
        &["pve", "role"],
        &["lock", "show"],
        &["log", "show"],
        &["log", "verify", "-o", "json"],
        &["secrets", "show"],
        &["secrets", "identity"],
        &["secrets", "edit", "values.sops.yaml"],
        &["secrets", "rotate-key"],
        &["destroy", "--yes", "--all", "--json"],
    ]) {
        search(arguments);
    }
    // Children heard nothing but what they were to hear: the editor the name of its file.
    let child = fs::read(served.path("child")).expect("what children were told");
    assert!(child.windows(4).any(|four| four == b"HOME"), "nobody was called");
    canaries.search("a child", &child);
    let given =
        ["ichor.yaml", "child", "lab.out", "faults.json", "give", "edit", "lab.json", "lab.json.sock"];
    let mut looked = 0;
    for path in served.files() {
        let shown = path.strip_prefix(served.directory.path()).expect("below").display().to_string();
        let mode = fs::symlink_metadata(&path).expect("something").permissions().mode() & 0o777;
        let open = if shown == "home" || shown == "home/.config" { 0o022 } else { 0o077 };
        assert!(given.contains(&&*shown) || mode & open == 0, "{shown}: {mode:o}");
        if path.is_file() && !may_hold_secrets(&shown) {
            canaries.search(&shown, &fs::read(&path).expect("a file"));
            looked += 1;
        }
    }
    assert!(looked > 12, "{looked}");
    // They were where they belong, so the search could have found them.
    let config = fs::read(served.path("rendered/machines/cp-1.yaml")).expect("a config");
    let config = String::from_utf8_lossy(&config);
    for canary in [IN_VAULT, IN_SOPS, OF_COMMAND, PASSWORD, PATCH] {
        assert!(config.contains(canary), "{canary}");
    }
}
