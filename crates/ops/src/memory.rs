//! A machine in memory, which can stop after any act: what a crash leaves behind is what the next run finds.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ichor_machineconfig::{pki::Timestamp, secrets::SecretText};
use ichor_net::{Dial, Endpoint, HttpClient, Trust};
use ichor_port::{Http, Request, Response, TransportError};
use zeroize::Zeroizing;

use crate::system::{
    Contents, Entry, Limits, Links, Lock, NoOutput, NotAFile, NotText, Openness, System, Unreadable,
};

/// 2026-11-15, when nothing in the tests has expired.
pub const NOW: u64 = 1_794_700_000;

/// A machine in memory.
#[derive(Default)]
pub struct Memory {
    pub files: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
    pub directories: RefCell<BTreeSet<PathBuf>>,
    pub links: RefCell<BTreeSet<PathBuf>>,
    /// Files that others can read, and directories that are open to them.
    pub open: RefCell<BTreeMap<PathBuf, Openness>>,
    /// Whether another run is everywhere.
    pub is_locked: Cell<bool>,
    pub variables: BTreeMap<String, String>,
    pub stdin: Vec<u8>,
    /// What programs print, by their words; nothing if they fail.
    pub programs: BTreeMap<String, Option<String>>,
    /// What servers answer, by method and target.
    pub web: Vec<(String, (u16, String))>,
    /// What leads to servers that are asked for real, and whom to trust there, whoever else is to be trusted.
    pub dialer: Option<(Arc<dyn Dial>, Trust)>,
    /// What they were asked.
    pub asked: RefCell<Vec<Request>>,
    pub later: Cell<u64>,
    /// How many more acts that change something succeed; none: all.
    pub acts_left: Cell<Option<usize>>,
    pub drawn: Cell<u64>,
}

impl Memory {
    pub fn with(files: &[(&str, &str)]) -> Self {
        let memory = Self::default();
        for (path, text) in files {
            memory.put(path, text.as_bytes());
        }
        memory
    }

    pub fn put(&self, path: &str, bytes: &[u8]) {
        self.files.borrow_mut().insert(path.into(), bytes.to_vec());
    }

    pub fn text(&self, path: &str) -> Option<String> {
        self.files.borrow().get(Path::new(path)).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the paths of all files.
    pub fn paths(&self) -> Vec<String> {
        self.files.borrow().keys().map(|path| path.display().to_string()).collect()
    }

    fn act(&self) -> io::Result<()> {
        match self.acts_left.get() {
            Some(0) => Err(io::Error::other("the machine has crashed")),
            Some(left) => {
                self.acts_left.set(Some(left - 1));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl System for Memory {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_seconds(NOW + self.later.get())
    }

    /// Bytes that look random enough for keys, and are the same every time.
    fn random(&self, buffer: &mut [u8]) -> io::Result<()> {
        for byte in buffer {
            let next = self
                .drawn
                .get()
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            self.drawn.set(next);
            *byte = (next >> 56) as u8;
        }
        Ok(())
    }

    fn variable(&self, name: &str) -> Result<Option<SecretText>, NotText> {
        Ok(self.variables.get(name).map(SecretText::new))
    }

    fn read_stdin(&self, limit: usize) -> Result<Zeroizing<Vec<u8>>, Unreadable> {
        match self.stdin.len() {
            len if len > limit => Err(Unreadable::TooLarge(len as u64)),
            _ => Ok(Zeroizing::new(self.stdin.clone())),
        }
    }

    fn read(&self, path: &Path, limit: usize, _: Links) -> Result<Contents, Unreadable> {
        if self.directories.borrow().contains(path) {
            return Err(Unreadable::NotAFile(NotAFile::Directory));
        }
        let files = self.files.borrow();
        let bytes = files.get(path).ok_or_else(|| Unreadable::Os(ErrorKind::NotFound.into()))?;
        if bytes.len() > limit {
            return Err(Unreadable::TooLarge(bytes.len() as u64));
        }
        let open_to_others = self.open.borrow().contains_key(path);
        Ok(Contents { bytes: Zeroizing::new(bytes.clone()), open_to_others })
    }

    fn read_given(&self, path: &Path, limit: usize) -> Result<Contents, Unreadable> {
        self.read(path, limit, Links::Follow)
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        if self.links.borrow().contains(path) {
            return Ok(Some(Entry::Link));
        }
        if self.directories.borrow().contains(path) {
            let open = self.open.borrow().get(path).copied().unwrap_or(Openness::Closed);
            return Ok(Some(Entry::Directory(open)));
        }
        Ok(self.files.borrow().contains_key(path).then_some(Entry::Other))
    }

    fn names(&self, path: &Path, limit: usize) -> io::Result<Vec<OsString>> {
        let (files, directories) = (self.files.borrow(), self.directories.borrow());
        let all = files.keys().chain(directories.iter()).filter(|other| other.parent() == Some(path));
        Ok(all.filter_map(|other| other.file_name()).map(Into::into).take(limit).collect())
    }

    fn close(&self, path: &Path) -> io::Result<()> {
        self.act()?;
        self.open.borrow_mut().remove(path);
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Lock>> {
        Ok((!self.is_locked.get()).then(|| Lock::new(())))
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        if self.exists(path)? { Ok(path.to_owned()) } else { Err(ErrorKind::NotFound.into()) }
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.act()?;
        self.directories.borrow_mut().extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.act().is_err() {
            // What a machine leaves that stops while it writes.
            self.files.borrow_mut().insert(path.to_owned(), bytes[..bytes.len() / 2].to_vec());
            return Err(io::Error::other("the machine has crashed"));
        }
        if self.exists(path)? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.files.borrow_mut().insert(path.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.act()?;
        if self.exists(to)? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let bytes = self.files.borrow().get(from).cloned().ok_or(ErrorKind::NotFound)?;
        self.files.borrow_mut().insert(to.to_owned(), bytes);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.act()?;
        let bytes = self.files.borrow_mut().remove(from).ok_or(ErrorKind::NotFound)?;
        self.files.borrow_mut().insert(to.to_owned(), bytes);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.act()?;
        self.files.borrow_mut().remove(path).map(|_| ()).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.act()?;
        if self.files.borrow().keys().any(|file| file.parent() == Some(path)) {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        self.directories.borrow_mut().remove(path).then_some(()).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn output_of(&self, words: &[String], _: &Path, limits: Limits) -> Result<Zeroizing<Vec<u8>>, NoOutput> {
        match self.programs.get(&words.join(" ")) {
            None => Err(NoOutput::NotStarted(ErrorKind::NotFound.into())),
            Some(None) => Err(NoOutput::Failed(Some(1))),
            Some(Some(output)) if output.len() > limits.bytes => Err(NoOutput::TooLarge(limits.bytes)),
            Some(Some(output)) => Ok(Zeroizing::new(output.clone().into_bytes())),
        }
    }

    fn ask(
        &self,
        server: &Endpoint,
        _: &Trust,
        request: Request,
        within: Duration,
    ) -> Result<Response, TransportError> {
        if let Some((dialer, trust)) = &self.dialer {
            return ask_over(Arc::clone(dialer), trust.clone(), server, request, within);
        }
        let call = format!("{} {}", request.method, request.target);
        let answer = self.web.iter().find(|(asked, _)| *asked == call).map(|(_, answer)| answer.clone());
        self.asked.borrow_mut().push(request);
        let (status, body) =
            answer.ok_or_else(|| TransportError::NotReached(format!("{server} is not reached: {call}")))?;
        Ok(Response { status, body: body.into_bytes(), ..Response::default() })
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        self.act()
    }
}

/// Asks a server in virtual time, on a thread of its own as the real system does.
fn ask_over(
    dialer: Arc<dyn Dial>,
    trust: Trust,
    server: &Endpoint,
    request: Request,
    within: Duration,
) -> Result<Response, TransportError> {
    let asking = || {
        let client = HttpClient::new(server.clone(), trust, None, dialer).expect("a client");
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(client.send(request, within))
    };
    std::thread::scope(|scope| scope.spawn(asking).join()).expect("no panic")
}
