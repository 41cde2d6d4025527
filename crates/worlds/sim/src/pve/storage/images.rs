//! Images from the web and from clients: `download-url`, `query-url-metadata` and `upload`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    checksum::checksum,
    shelves::{FileFacts, Volume},
    volume::{ContentType, has_iso_extension, normalize_file_name, template_format, upload_import_format},
    web::{Address, File, Page, Reached},
};
use crate::{
    clock::Time,
    ground::{Content, Ground},
    pve::{
        ApiError, Call, Datacentre, Exit, Next, Params, Refusal, Reply, Worker,
        qemu::disks::check_image_facts, request, storage, tasks,
    },
    signal::Signal,
};

/// How fast downloads are where the server does not say something else.
const BYTES_PER_SECOND: u64 = 50 << 20;

/// Answers `POST /nodes/{node}/storage/{storage}/download-url`.
pub fn download_url(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (host, storage) = (params.host(), params.text_or_empty("storage"));
    let definition = dc.storage.enabled(&storage, &host).map_err(ApiError::server)?;
    if definition.path(&storage).is_none() {
        let kind = &definition.kind;
        let text = format!("can't upload to storage type '{kind}', not a file based storage!");
        return Err(ApiError::server(text).into());
    }
    let content = params.text_or_empty("content");
    let kind = ContentType::named(&content).ok_or_else(|| ApiError::server("unknown content type"))?;
    if !definition.holds(kind) {
        let text = format!("storage '{storage}' is not configured for content-type '{content}'");
        return Err(ApiError::server(text).into());
    }
    let file = normalize_file_name(&params.text_or_empty("filename"));
    check_file_name(kind, &file)?;
    dc.storage.activate(&storage, &host).map_err(ApiError::server)?;
    let checksum = params.text("checksum").filter(|sum| !sum.is_empty());
    let work = Download {
        host: host.clone(),
        volume: format!("{storage}:{content}/{file}"),
        url: params.text_or_empty("url"),
        checksum: checksum.map(|sum| (params.text_or_empty("checksum-algorithm"), sum)),
        compression: params.text("compression").filter(|name| !name.is_empty()),
        is_import: kind == ContentType::Import,
        is_iso: kind == ContentType::Iso,
        content,
        stage: Stage::Begin,
    };
    let work = tasks::Work::Storage(storage::Work::Download(Box::new(work)));
    Ok(tasks::start(dc, ground, &host, "download", &file, &call.caller.id, work).into())
}

fn check_file_name(kind: ContentType, file: &str) -> Result<(), ApiError> {
    let wrong = |text: &str| Err(ApiError::param("filename", text));
    match kind {
        ContentType::Iso if !has_iso_extension(file) => wrong("wrong file extension"),
        ContentType::Vztmpl if template_format(file).is_none() => wrong("wrong file extension"),
        ContentType::Import if upload_import_format(file).is_none() => {
            wrong("invalid filename or wrong extension")
        }
        _ => Ok(()),
    }
}

/// The task `download`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Download {
    host: String,
    volume: String,
    url: String,
    checksum: Option<(String, String)>,
    compression: Option<String>,
    content: String,
    is_import: bool,
    is_iso: bool,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    Begin,
    Asked,
    Loading(Box<Page>),
}

impl Download {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        match self.advance(dc, ground, worker) {
            Ok(Some(next)) => next,
            Ok(None) => Next::Done(Exit::Ok),
            Err(text) => Next::Done(Exit::Failed(text)),
        }
    }

    /// The process was told to end.
    pub fn interrupt(&mut self, dc: &Datacentre, worker: &mut Worker) -> Exit {
        if matches!(self.stage, Stage::Loading(_)) {
            worker.say(format!("Saving to: '{}'", self.temporary(dc, worker, "dwnl")));
        }
        Exit::Failed("download failed: received interrupt".into())
    }

    fn temporary(&self, dc: &Datacentre, worker: &Worker, kind: &str) -> String {
        let path = dc.storage.path(&self.volume).unwrap_or_default();
        format!("{path}.tmp_{kind}.{}", pid_of(&worker.upid))
    }

    fn advance(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<Option<Next>, String> {
        if self.stage == Stage::Begin {
            if self.check_compression()? && self.is_there(dc, ground, worker)? {
                return Ok(None);
            }
            self.stage = Stage::Asked;
        }
        if self.stage == Stage::Asked {
            return self.connect(dc, ground, worker).map(Some);
        }
        let Stage::Loading(page) = std::mem::replace(&mut self.stage, Stage::Asked) else { return Ok(None) };
        self.keep(dc, ground, worker, &page)?;
        Ok(None)
    }

    fn check_compression(&self) -> Result<bool, String> {
        let Some(method) = &self.compression else { return Ok(true) };
        if !self.is_iso {
            return Err(format!("decompression not supported for {}", self.content));
        }
        if ["gz", "lzo", "zst", "bz2"].contains(&method.as_str()) {
            Ok(true)
        } else {
            Err("no decompression method found".into())
        }
    }

    /// Compares with a file that is there already: says whether it is the wanted one.
    fn is_there(&self, dc: &Datacentre, ground: &Ground, worker: &mut Worker) -> Result<bool, String> {
        let path = dc.storage.path(&self.volume)?;
        worker.say(format!("downloading {} to {path}", self.url));
        let Some(volume) = dc.storage.get(&self.host, &self.volume) else { return Ok(false) };
        let Some((algorithm, wanted)) = &self.checksum else {
            return Err(format!("refusing to override existing file '{path}'"));
        };
        let got = checksum_of(algorithm, ground.media.get(volume.content), volume.file.as_ref());
        if got.eq_ignore_ascii_case(wanted) {
            worker.say(
                "calculating checksum of existing file...OK, got correct file already, no need to download",
            );
            return Ok(true);
        }
        worker.say("calculating checksum of existing file...");
        Err(format!("checksum mismatch: got '{got}' != expect '{wanted}', aborting"))
    }

    /// Connects as `wget` does.
    fn connect(&mut self, dc: &Datacentre, ground: &mut Ground, worker: &mut Worker) -> Result<Next, String> {
        let failed = |code: u8| Err(format!("download failed: exit code {code}"));
        let stamp = timestamp(ground.now);
        let (page, url) = match ground.web.reach(&self.url) {
            Reached::AskFactory(url) => {
                ground.send(Signal::Fetch(url));
                return Ok(Next::WaitUntil(ground.now + Duration::from_millis(1)));
            }
            Reached::UnknownName(address) => {
                worker.say(format!("--{stamp}--  {}", self.url));
                let host = &address.host;
                worker.say(format!("Resolving {host} ({host})... failed: Name or service not known."));
                worker.say(format!("wget: unable to resolve host address '{host}'"));
                return failed(4);
            }
            Reached::Refused(address) => {
                worker.say(format!("--{stamp}--  {}", self.url));
                worker.say(format!(
                    "Connecting to {}:{}... failed: Connection refused.",
                    address.host, address.port
                ));
                return failed(4);
            }
            Reached::Page(page, url) => (page, url),
        };
        ground.web.fetched.remove(&url);
        self.tell_connection(ground, worker, &page, &url, &stamp);
        if page.status >= 400 {
            let reason = &page.reason;
            worker.say(format!("{stamp} ERROR {}: {reason}.", page.status));
            return failed(8);
        }
        if page.status != 200 {
            worker.say("20 redirections exceeded.");
            return failed(8);
        }
        let mime = page.mime.as_ref().map_or(String::new(), |mime| format!(" [{mime}]"));
        worker.say(format!("Length: {} ({}){mime}", page.file.size, short_size(page.file.size)));
        let _ = dc;
        let bytes = page.breaks_after.unwrap_or(page.file.size);
        let rate = page.bytes_per_second.unwrap_or(BYTES_PER_SECOND).max(1);
        self.stage = Stage::Loading(page);
        Ok(Next::After(Duration::from_millis(bytes.saturating_mul(1000) / rate)))
    }

    fn tell_connection(&self, _ground: &Ground, worker: &mut Worker, page: &Page, url: &str, stamp: &str) {
        let server = |url: &str| {
            Address::read(url).map_or(String::new(), |address| format!("{}:{}", address.host, address.port))
        };
        worker.say(format!("--{stamp}--  {}", self.url));
        worker.say(format!("Connecting to {}... connected.", server(&self.url)));
        if url != self.url {
            worker.say("HTTP request sent, awaiting response... 302 Found");
            worker.say(format!("Location: {url} [following]"));
            worker.say(format!("--{stamp}--  {url}"));
            worker.say(format!("Connecting to {}... connected.", server(url)));
        }
        worker.say(format!("HTTP request sent, awaiting response... {} {}", page.status, page.reason));
    }

    /// Checks what was loaded and gives it its final name.
    fn keep(
        &self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
        page: &Page,
    ) -> Result<(), String> {
        let temporary = self.temporary(dc, worker, "dwnl");
        let (stamp, size) = (timestamp(ground.now), page.file.size);
        worker.say(format!("Saving to: '{temporary}'"));
        if let Some(bytes) = page.breaks_after {
            worker.say(format!("{stamp} (50.0 MB/s) - Connection closed at byte {bytes}. Giving up."));
            return Err("download failed: exit code 4".into());
        }
        worker.say("     0K                                    100%  800M=0s");
        worker.say(format!("{stamp} (800 MB/s) - '{temporary}' saved [{size}/{size}]"));
        if let Some((algorithm, wanted)) = &self.checksum {
            let got = checksum_of(algorithm, &page.file.content, Some(&page.file.facts));
            if !got.eq_ignore_ascii_case(wanted) {
                worker.say("calculating checksum...");
                return Err(format!("checksum mismatch: got '{got}' != expect '{wanted}'"));
            }
            worker.say("calculating checksum...OK, checksum verified");
        }
        let file = self.unpacked(dc, worker, &page.file, &temporary)?;
        self.verify(worker, &file, &temporary)?;
        let free = dc.storage.look_up(&self.volume).ok().and_then(|found| {
            dc.storage.shelf(&found.id.storage, &self.host).map(super::shelves::Shelf::free)
        });
        if free.is_some_and(|free| free < file.size) {
            worker.say(format!("Cannot write to '{temporary}' (No space left on device)."));
            return Err("download failed: exit code 3".into());
        }
        put_file(dc, ground, &self.host, &self.volume, file)?;
        let path = dc.storage.path(&self.volume)?;
        worker.say(format!("download of '{}' to '{path}' finished", self.url));
        Ok(())
    }

    fn unpacked(
        &self,
        dc: &Datacentre,
        worker: &mut Worker,
        file: &File,
        temporary: &str,
    ) -> Result<File, String> {
        let Some(method) = &self.compression else { return Ok(file.clone()) };
        let target = self.temporary(dc, worker, "dcom");
        worker.say(format!("decompressing {temporary} to {target}"));
        if let Some((packed, inner)) = file.packed.as_ref().filter(|(packed, _)| packed == method) {
            let _ = packed;
            return Ok(inner.as_ref().clone());
        }
        let (command, complaint) = match method.as_str() {
            "gz" => ("zcat", format!("gzip: {temporary}: not in gzip format")),
            "zst" => ("zstd -q -d -c", format!("zstd: {temporary}: unsupported format")),
            "bz2" => ("bzcat", format!("bzcat: {temporary} is not a bzip2 file.")),
            _ => ("lzop -d -c", format!("lzop: {temporary}: not a lzop file")),
        };
        worker.say("");
        worker.say(complaint);
        Err(format!("command '{command} {temporary}' failed: exit code 1"))
    }

    fn verify(&self, worker: &mut Worker, file: &File, path: &str) -> Result<(), String> {
        let name = self.volume.rsplit('/').next().unwrap_or_default();
        let format = if self.is_import { upload_import_format(name).unwrap_or("raw") } else { "" };
        let checked = verify_file(format, self.is_iso, &file.facts, path);
        checked.map_err(|text| {
            if text.starts_with("qemu-img:") {
                worker.say(format!(
                    "command '/usr/bin/qemu-img info '--output=json' {path} -f {format}' failed: exit code 1"
                ));
            }
            format!("failed to verify file: {text}")
        })
    }
}

/// Checks a file as `qemu-img` and `tar` would.
fn verify_file(format: &str, is_iso: bool, facts: &FileFacts, path: &str) -> Result<(), String> {
    if is_iso {
        return match &facts.backing {
            Some(_) => Err(format!("backing file not allowed for untrusted image '{path}'!")),
            None => Ok(()),
        };
    }
    if format == "ova" {
        // An archive is not looked into: the lab's web has none.
        return Ok(());
    }
    check_image_facts(path, format, Some(facts)).map_err(|error| error.message.trim_end().to_owned())
}

/// Puts a file from outside onto a storage.
pub fn put_file(
    dc: &mut Datacentre,
    ground: &mut Ground,
    host: &str,
    volume: &str,
    file: File,
) -> Result<(), String> {
    let format = dc.storage.look_up(volume)?.name.format;
    let old = dc.storage.get(host, volume).map(|there| there.content);
    if let Some(content) = old {
        ground.media.remove(content);
    }
    let content = ground.media.add(file.content);
    ground.reached("file", volume);
    ground.usable(format!("content {}", content.0));
    let mut made = Volume::fresh(&format, file.size, file.size, ground.now.unix_seconds(), content);
    let mut facts = file.facts;
    if facts.image.is_none() || format != "qcow2" && format != "vmdk" {
        // A raw image is as large as its file.
        facts.virtual_size = Some(file.size);
    }
    made.file = Some(facts);
    dc.storage.put(host, volume, made)
}

/// Returns a checksum of a file.
fn checksum_of(algorithm: &str, content: &Content, facts: Option<&FileFacts>) -> String {
    if algorithm == "sha256"
        && let Some(sum) = facts.and_then(|facts| facts.sha256.clone())
    {
        return sum;
    }
    match content {
        Content::Bytes(bytes) => checksum(algorithm, bytes),
        // What is not kept as bytes has a checksum of its own, the same for the same content.
        other => checksum(algorithm, &serde_json::to_vec(other).unwrap_or_default()),
    }
}

/// Answers `GET /nodes/{node}/query-url-metadata`.
pub fn query_url(_dc: &mut Datacentre, ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    let url = params.text_or_empty("url");
    let refused = |text: String| ApiError::server(format!("invalid server response: '{text}'"));
    let (page, url) = match ground.web.reach(&url) {
        Reached::Page(page, url) => (page, url),
        Reached::AskFactory(url) => {
            ground.send(Signal::Fetch(url));
            return Err(Refusal::Wait(ground.now + Duration::from_millis(1)));
        }
        Reached::Refused(address) => {
            let (host, port) = (address.host, address.port);
            return Err(refused(format!("500 Can't connect to {host}:{port} (Connection refused)")).into());
        }
        Reached::UnknownName(address) => {
            let (host, port) = (address.host, address.port);
            return Err(
                refused(format!("500 Can't connect to {host}:{port} (Name or service not known)")).into()
            );
        }
    };
    if page.status != 200 {
        return Err(refused(format!("{} {}", page.status, page.reason)).into());
    }
    let mut answer = Map::new();
    let name =
        page.name.clone().or_else(|| Address::read(&url).map(|address| address.file_name().to_owned()));
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        answer.insert("filename".into(), name.into());
    }
    answer.insert("size".into(), page.file.size.into());
    if let Some(mime) = page.mime {
        answer.insert("mimetype".into(), mime.into());
    }
    Ok(Value::Object(answer).into())
}

/// Answers `POST /nodes/{node}/storage/{storage}/upload`.
pub fn upload(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (host, storage) = (params.host(), params.text_or_empty("storage"));
    let definition = dc.storage.enabled(&storage, &host).map_err(ApiError::server)?;
    if definition.path(&storage).is_none() {
        return Err(ApiError::server(format!("can't upload to storage type '{}'", definition.kind)).into());
    }
    let Some(upload) = call.upload.clone() else {
        return Err(ApiError::server("missing temporary file name").into());
    };
    let content = params.text_or_empty("content");
    let kind = ContentType::named(&content).ok_or_else(|| ApiError::server("unknown content type"))?;
    let file = normalize_file_name(&params.text("filename").unwrap_or_else(|| upload.filename.clone()));
    check_file_name(kind, &file)?;
    if !definition.holds(kind) {
        let text = format!("storage '{storage}' does not support '{content}' content");
        return Err(ApiError::server(text).into());
    }
    dc.storage.activate(&storage, &host).map_err(ApiError::server)?;
    let spool: String = (0..2).map(|_| format!("{:016x}", ground.random.bits())).collect();
    let work = Upload {
        host: host.clone(),
        volume: format!("{storage}:{content}/{file}"),
        spool: format!("/var/tmp/pveupload-{spool}"),
        file: upload,
        checksum: params
            .text("checksum-algorithm")
            .map(|algorithm| (algorithm, params.text_or_empty("checksum"))),
        is_iso: kind == ContentType::Iso,
        is_import: kind == ContentType::Import,
    };
    let work = tasks::Work::Storage(storage::Work::Upload(Box::new(work)));
    Ok(tasks::start(dc, ground, &host, "imgcopy", "", &call.caller.id, work).into())
}

/// The task `imgcopy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Upload {
    host: String,
    volume: String,
    spool: String,
    file: request::Upload,
    checksum: Option<(String, String)>,
    is_iso: bool,
    is_import: bool,
}

impl Upload {
    /// Does everything at once.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        match self.copy(dc, ground, worker) {
            Ok(()) => Next::Done(Exit::Ok),
            Err(text) => Next::Done(Exit::Failed(text)),
        }
    }

    fn copy(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Result<(), String> {
        let spool = self.spool.clone();
        worker.say(format!("starting file import from: {spool}"));
        let upload = std::mem::take(&mut self.file);
        if let Some((algorithm, wanted)) = &self.checksum {
            let got = upload.checksums.get(algorithm).cloned().unwrap_or_default();
            if !got.eq_ignore_ascii_case(wanted) {
                worker.say("calculating checksum...");
                return Err(format!("checksum mismatch: got '{got}' != expect '{wanted}'"));
            }
            worker.say("calculating checksum...OK, checksum verified");
        }
        let name = self.volume.rsplit('/').next().unwrap_or_default().to_owned();
        let format = if self.is_import { upload_import_format(&name).unwrap_or("raw") } else { "raw" };
        let file = File::uploaded(&upload);
        verify_file(format, self.is_iso, &file.facts, &spool).inspect_err(|text| {
            if text.starts_with("qemu-img:") {
                worker.say(format!(
                    "command '/usr/bin/qemu-img info '--output=json' {spool} -f {format}' failed: exit code 1"
                ));
            }
        })?;
        let path = dc.storage.path(&self.volume)?;
        worker.say(format!("target node: {}", self.host));
        worker.say(format!("target file: {path}"));
        worker.say(format!("file size is: {}", file.size));
        worker.say(format!("command: cp -- {spool} {path}"));
        put_file(dc, ground, &self.host, &self.volume, file)?;
        worker.say("finished file import successfully");
        Ok(())
    }
}

/// Returns the number of a task's process.
fn pid_of(upid: &str) -> u64 {
    upid.split(':').nth(2).and_then(|pid| u64::from_str_radix(pid, 16).ok()).unwrap_or(0)
}

/// Writes a size as `wget` does.
fn short_size(bytes: u64) -> String {
    let units = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    for (unit, name) in units {
        if bytes >= unit {
            let tenths = bytes.saturating_mul(10).div_ceil(unit);
            return if tenths < 100 {
                format!("{}.{}{name}", tenths / 10, tenths % 10)
            } else {
                format!("{}{name}", bytes.div_ceil(unit))
            };
        }
    }
    bytes.to_string()
}

/// Writes a moment as logs do: `2026-01-02 03:04:05`.
pub fn timestamp(time: Time) -> String {
    let seconds = time.unix_seconds();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date_of(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Returns the date that many days after 1970 began.
fn date_of(days: u64) -> (u64, u64, u64) {
    // Years that begin in March have their leap day at the end.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_dates() {
        assert_eq!(timestamp(Time::from_millis(1_794_774_258_000)), "2026-11-15 20:24:18");
        assert_eq!(timestamp(Time::from_millis(951_782_400_000)), "2000-02-29 00:00:00");
    }

    #[test]
    fn sizes_are_written_as_wget_writes_them() {
        assert_eq!(
            [100_000, 100_053, 196_616, 65_536, 7].map(short_size),
            ["98K", "98K", "193K", "64K", "7"]
        );
    }
}
