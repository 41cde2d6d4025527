//! `ichor init`, driven at a real pseudo-terminal and without one, against a lab that is served on loopback.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "somebody at a terminal waits in real time")]

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A lab that is served, and a directory of its own beside it.
struct Served {
    directory: tempfile::TempDir,
    lab: Child,
    access: Value,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.lab.kill();
        let _ = self.lab.wait();
    }
}

impl Served {
    fn new() -> Self {
        Self::with(["pve1=64:512", "pve2=64:512"])
    }

    /// A lab with hosts of some size: threads and GiB of memory.
    fn with(hosts: [&str; 2]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let out = directory.path().join("lab.out");
        let lab = program()
            .args(["lab", "serve", "-o", "json", "--port", "0", "--factory-port", "0", "--proxy-port", "0"])
            .args(["--host", hosts[0], "--host", hosts[1]])
            .stdout(File::create(&out).expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("a lab");
        let mut served = Self { directory, lab, access: Value::Null };
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let said = fs::read_to_string(&out).expect("what it said");
            if let Ok(access) = serde_json::from_str(&said) {
                served.access = access;
                return served;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the lab does not open");
    }

    fn told(&self, server: &str, what: &str) -> &str {
        self.access[server][what].as_str().expect("a text")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `init` with what makes it find this lab; addresses on loopback are asked for signs of life.
    fn init(&self, more: &[&str]) -> Command {
        let mut command = program();
        command.current_dir(self.directory.path()).env("HOME", self.path("home")).arg("init");
        command
            .args(["--endpoint", self.told("pve", "url"), "--factory", self.told("factory", "url")])
            .args(more);
        command
    }

    fn without_terminal(&self, more: &[&str]) -> Output {
        let mut command = self.init(more);
        command.env("ICHOR_PVE_TOKEN", self.told("pve", "token")).stdin(Stdio::null());
        command.output().expect("it runs")
    }
}

fn program() -> Command {
    // Whatever is written others can read, unless the program sees to that itself.
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ichor")]);
    command.env_remove("ICHOR_PVE_TOKEN").env("NO_COLOR", "1");
    // Keys are made at home, and never in that of whoever runs the tests.
    command.env_remove("XDG_CONFIG_HOME").env_remove("SOPS_AGE_KEY").env_remove("SOPS_AGE_KEY_FILE");
    command
}

/// Somebody at a terminal who reads what it shows and types.
struct Person {
    master: File,
    shown: String,
    news: Receiver<String>,
    child: Child,
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Person {
    fn sits_at(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("access to it");
        let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("text");
        let end = OpenOptions::new().read(true).write(true).open(name).expect("its other end");
        let copy = || Stdio::from(end.try_clone().expect("a copy"));
        let child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("it starts");
        drop((command, end));
        let master = File::from(master);
        let (sender, news) = mpsc::channel();
        let mut reader = master.try_clone().expect("a copy");
        thread::spawn(move || {
            let mut piece = [0; 4096];
            // A terminal that nobody has open any more gives an error.
            while let Ok(length) = reader.read(&mut piece)
                && length > 0
                && sender.send(String::from_utf8_lossy(&piece[..length]).into_owned()).is_ok()
            {}
        });
        Self { master, shown: String::new(), news, child }
    }

    /// Waits until something is shown, and forgets what was shown before it.
    fn sees(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown.find(text) {
                self.shown.drain(..at + text.len());
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.news.recv_timeout(left) {
                Ok(more) => self.shown += &more,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("`{text}` is not shown, but:\n{}", self.shown)
                }
            }
        }
    }

    fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("typed");
    }

    fn answers(&mut self, question: &str, answer: &str) {
        self.sees(question);
        self.types(&format!("{answer}\n"));
    }

    /// Returns the exit code and what was shown last.
    fn leaves(mut self) -> (Option<i32>, String) {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().expect("a state") {
                Some(status) => break status,
                None => assert!(Instant::now() < until, "it does not end:\n{}", self.shown),
            }
            thread::sleep(Duration::from_millis(10));
        };
        while let Ok(more) = self.news.recv_timeout(Duration::from_secs(2)) {
            self.shown += &more;
        }
        (status.code(), std::mem::take(&mut self.shown))
    }
}

fn inventory(path: &Path) -> String {
    fs::read_to_string(path).expect("an inventory")
}

#[test]
fn somebody_answers_every_question() {
    let lab = Served::new();
    let mut person = Person::sits_at(lab.init(&[]));
    person.answers("Name of the cluster [homelab]: ", "Bad Name");
    person.answers("Name of the cluster [homelab]: ", "prod");
    person.sees(lab.told("pve", "sha256"));
    person.answers("Is it the right one [no]: ", "yes");
    person.sees("API token (user@realm!name=secret): ");
    person.types(&format!("{}\r", lab.told("pve", "token")));
    person.answers("Keep it, encrypted, in `tokens.sops.yaml` beside the inventory [yes]: ", "");
    person.sees("Proxmox 9.2");
    person.answers("Hosts to use [pve1, pve2]: ", "pve9");
    person.sees("there is no host `pve9`; there are pve1, pve2");
    person.answers("Hosts to use [pve1, pve2]: ", "");
    person.sees("Storage for disks");
    person.answers("Which one [local-lvm]: ", "3");
    person.sees("type a number from 1 to 2, or a name");
    person.answers("Which one [local-lvm]: ", "2");
    person.sees("Storage for Talos images");
    person.answers("Which one [local]: ", "");
    person.sees("Bridge");
    person.answers("Network of the machines [192.0.2.0/24]: ", "127.80.0.0/24");
    person.answers("Gateway [127.80.0.1]: ", "");
    person.answers("Name server [127.80.0.1]: ", "127.80.0.53");
    person.answers("Control planes [1]: ", "2");
    person.answers("Control planes [1]: ", "1");
    person.answers("Workers [2]: ", "1");
    // On loopback every address answers, with a refusal: nothing can be suggested.
    person.answers("Address of the first control plane: ", "10.0.0.1");
    person.answers("Address of the first control plane: ", "127.80.0.10");
    person.answers("Address of the first worker: ", "127.80.0.20");
    person.sees("Talos [v1.");
    person.types("v1.13.9\n");
    person.answers("Kubernetes [v1.36.3]: ", "");
    person.sees("role: control-plane, count: 1, address: 127.80.0.10");
    person.answers("Write it to `ichor.yaml` [yes]: ", "");
    let (code, shown) = person.leaves();
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("export ICHOR_PVE_TOKEN=") && shown.contains("ichor doctor"), "{shown}");
    let secret = lab.told("pve", "token").split('=').nth(1).expect("a secret");
    let text = inventory(&lab.path("ichor.yaml"));
    assert!(!shown.contains(secret) && !text.contains(secret));
    assert!(text.contains("token: {sops: \"tokens.sops.yaml#prod.proxmox\"}"), "{text}");
    let sealed = fs::read_to_string(lab.path("tokens.sops.yaml")).expect("tokens");
    assert!(sealed.contains("ENC[") && !sealed.contains(secret), "{sealed}");
    // What it wrote is good for the next step, and the whole way.
    let run = |arguments: &[&str]| {
        let mut command = program();
        command.args(arguments).current_dir(lab.directory.path()).stdin(Stdio::null());
        command.env("HOME", lab.path("home")).output().expect("it runs")
    };
    for arguments in [&["check"][..], &["up", "--yes"], &["up", "--yes"]] {
        let output = run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mode = |name: &str| fs::metadata(lab.path(name)).expect(name).permissions().mode() & 0o777;
    for secret in ["tokens.sops.yaml", "home/.config/sops/age/keys.txt"] {
        assert_eq!(mode(secret), 0o600, "{secret}");
    }
    for secret in ["secrets.sops.yaml", "kubeconfig", "talosconfig", "generations/00000001.json"] {
        assert_eq!(mode(&format!(".ichor/prod/{secret}")), 0o600, "{secret}");
    }
    for directory in [".ichor", ".ichor/prod", ".ichor/prod/generations", "home/.config/sops/age"] {
        assert_eq!(mode(directory), 0o700, "{directory}");
    }
    assert_eq!(mode("ichor.yaml") & 0o022, 0, "an inventory says which commands are run");
}

#[test]
fn whoever_leaves_leaves_nothing_behind() {
    let lab = Served::new();
    let mut person = Person::sits_at(lab.init(&["--name", "prod"]));
    person.answers("Is it the right one [no]: ", "");
    let (code, shown) = person.leaves();
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("Nothing was written."), "{shown}");
    let mut person = Person::sits_at(lab.init(&["--name", "prod"]));
    person.sees("Is it the right one [no]: ");
    // Ctrl-D.
    person.types("\u{4}");
    assert_eq!(person.leaves().0, Some(130));
    assert!(!lab.path("ichor.yaml").exists());
    assert!(!lab.path(".ichor").exists());
}

#[test]
fn without_a_terminal_flags_answer_and_what_is_missing_is_named() {
    let lab = Served::new();
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let unknown = lab.without_terminal(&[]);
    assert_eq!(unknown.status.code(), Some(4), "{}", said(&unknown));
    let pin = lab.told("pve", "sha256");
    assert!(said(&unknown).contains(&format!("--fingerprint {pin}")), "{}", said(&unknown));
    let sure = ["--fingerprint", pin, "--talos", "v1.13.9"];
    let with = |more: &[&str]| lab.without_terminal(&[&sure[..], more].concat());
    let loopback = ["--cidr", "127.81.0.0/24"];
    for (more, code, words) in [
        (&["--hosts", "pve9"][..], 3, "there are pve1, pve2"),
        (&["--disks", "local"], 3, "these may: local-lvm"),
        (&loopback, 3, "`--address` is missing"),
        (&["--control-planes", "1", "--address", "10.0.0.1"], 3, "10.0.0.1"),
    ] {
        let output = with(more);
        assert_eq!(output.status.code(), Some(code), "{more:?}: {}", said(&output));
        assert!(said(&output).contains(words), "{more:?}: {}", said(&output));
        assert!(!lab.path("ichor.yaml").exists(), "{more:?}");
    }
    let done = with(&["--control-planes", "1", "--workers", "0", "--address", "192.0.2.60"]);
    assert!(done.status.success(), "{}", said(&done));
    let first = inventory(&lab.path("ichor.yaml"));
    assert!(first.contains("hosts: [pve1, pve2]") && first.contains("cidr: 192.0.2.0/24"), "{first}");
    let again = with(&[]);
    assert_eq!(again.status.code(), Some(3));
    assert!(said(&again).contains("never replaced"), "{}", said(&again));
    assert_eq!(inventory(&lab.path("ichor.yaml")), first);
    let mut bare = lab.init(&["--fingerprint", pin]);
    let bare = bare
        .current_dir(lab.path(".."))
        .args(["-f", "no-such-place/ichor.yaml"])
        .stdin(Stdio::null())
        .output();
    let bare = bare.expect("it runs");
    assert_eq!(bare.status.code(), Some(3), "{}", said(&bare));
    assert!(said(&bare).contains("export ICHOR_PVE_TOKEN="), "{}", said(&bare));
}

#[test]
fn what_does_not_fit_is_made_to_fit_or_told_plainly() {
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let lab = Served::with(["pve1=2:7", "pve2=2:7"]);
    let sure = ["--fingerprint", lab.told("pve", "sha256"), "--talos", "v1.13.9", "--control-planes", "1"];
    let places = ["--address", "192.0.2.60", "--worker-address", "192.0.2.70"];
    let done = lab.without_terminal(&[&sure[..], &places].concat());
    assert!(done.status.success(), "{}", said(&done));
    assert!(
        said(&done).contains("the machines do not fit") && said(&done).contains("`pve1`: "),
        "{}",
        said(&done)
    );
    let text = inventory(&lab.path("ichor.yaml"));
    assert!(text.contains("placement: {overcommit: {cpu: ") && text.contains(", memory: 2GiB}"), "{text}");
    // Whoever is asked may say no.
    fs::remove_file(lab.path("ichor.yaml")).expect("it goes");
    let said_before = ["--name", "prod", "--hosts", "pve1,pve2", "--disks", "local-lvm", "--images", "local"];
    let network =
        ["--bridge", "vmbr0", "--cidr", "192.0.2.0/24", "--gateway", "192.0.2.1", "--dns", "192.0.2.1"];
    let rest = ["--workers", "2", "--kubernetes", "v1.36.3"];
    let mut asked = lab.init(&[&sure[..], &places, &said_before, &network, &rest].concat());
    asked.env("ICHOR_PVE_TOKEN", lab.told("pve", "token"));
    let mut person = Person::sits_at(asked);
    person.sees("the machines do not fit");
    person.sees("processors count ");
    person.answers("Do that [yes]: ", "no");
    let (code, shown) = person.leaves();
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("--workers") && !lab.path("ichor.yaml").exists(), "{shown}");
    let none = lab.without_terminal(&[&sure[..], &places, &["--workers", "60"]].concat());
    assert_eq!(none.status.code(), Some(3), "{}", said(&none));
    assert!(said(&none).contains("ICH-1701") && said(&none).contains("`--workers`"), "{}", said(&none));
    assert!(!said(&none).contains("ichor.yaml:"), "no such file: {}", said(&none));
}
