//! The mirror of a bucket, on the disk of whoever looks into it.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    process::Command,
    thread,
};

use super::{lab_with_secrets, whole};

/// Serves one generation as a bucket does that keeps nothing else.
fn bucket_with(generation: Vec<u8>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines =
                BufReader::new(stream.try_clone().expect("a stream")).lines().map_while(Result::ok);
            let asked = lines.next().unwrap_or_default();
            let _head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let list = format!(
                "<ListBucketResult><Name>team</Name><Prefix></Prefix><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated>\
                 <Contents><Key>prod/a/generations/00000001.json</Key><LastModified>2026-11-16T00:00:00.000Z</LastModified>\
                 <ETag>\"one\"</ETag><Size>{}</Size></Contents></ListBucketResult>",
                generation.len()
            );
            let body = if asked.contains("list-type=2") { list.into_bytes() } else { generation.clone() };
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\netag: \"one\"\r\n\
                 last-modified: Mon, 16 Nov 2026 00:00:00 GMT\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(&[head.as_bytes(), &body].concat());
        }
    });
    port
}

#[test]
fn the_mirror_of_a_bucket_is_for_its_owner_alone_whatever_the_umask() {
    let lab = lab_with_secrets(&whole("a"));
    let generation = fs::read(lab.path(".ichor/a/generations/00000001.json")).expect("a generation");
    let port = bucket_with(generation);
    let bundle = fs::read(lab.path(".ichor/a/secrets.sops.yaml")).expect("secrets");
    fs::remove_dir_all(lab.path(".ichor")).expect("the directory");
    lab.write(
        "ichor.yaml",
        format!("{}store: s3://team/prod?endpoint=http://127.0.0.1:{port}\n", whole("a")),
    );
    let script = format!("umask 000; '{}' secrets show", env!("CARGO_BIN_EXE_ichor"));
    let run = Command::new("sh")
        .args(["-c", &script])
        .current_dir(lab.path(""))
        .env("HOME", lab.home())
        .env_remove("XDG_CONFIG_HOME")
        .envs(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"].map(|name| (name, "x")))
        .output()
        .expect("the program runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let (mut looked, mut left, mut mirrored) = (0, vec![lab.path(".ichor")], false);
    while let Some(path) = left.pop() {
        let mode = fs::symlink_metadata(&path).expect("something").permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        looked += 1;
        if path.is_dir() {
            left.extend(
                fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").path()),
            );
        } else {
            mirrored |= fs::read(&path).expect("a file") == bundle;
        }
    }
    assert!(looked >= 6 && mirrored, "{looked}");
}
