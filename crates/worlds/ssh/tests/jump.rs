//! Logins and streams through SSH servers on loopback: good ones, changing ones and hostile ones.

#[path = "jump/server.rs"]
mod server;

use std::{io::ErrorKind, sync::Arc, time::Duration};

use ichor_net::{Dial, Direct};
use ichor_ssh::{NotConnected, Passphrase, Tunnel};
use russh::keys::{PrivateKey, key::safe_rng};
use server::{Computer, IDENTITY, KNOWN_HOSTS, Manners, Server, echo, key, public, text_of};
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    time::{Instant, timeout},
};

/// Nothing here may take longer: all servers are on this computer.
const SOON: Duration = Duration::from_secs(30);

fn tunnel(server: &Server, computer: &Computer) -> Tunnel {
    Tunnel::new(server.route(computer), Arc::new(Direct))
}

async fn connect(tunnel: &Tunnel) -> Result<(), NotConnected> {
    timeout(SOON, tunnel.connect()).await.expect("it ends")
}

#[tokio::test]
async fn streams_share_one_login() {
    let (server, computer) = Server::usual().await;
    let tunnel = tunnel(&server, &computer);
    let streams = (0..20).map(|number| {
        let tunnel = &tunnel;
        async move {
            let mut stream = tunnel.dial("echo", number).await.expect("a stream");
            let words = format!("{number} ").repeat(5_000);
            assert_eq!(echo(&mut *stream, &words).await.expect("an echo"), words);
        }
    });
    for stream in streams.collect::<Vec<_>>() {
        stream.await;
    }
    let all: Vec<_> = (0..20).map(|_| tunnel.dial("echo", 1)).collect();
    let mut open = Vec::new();
    for dialled in all {
        open.push(dialled.await.expect("a stream"));
    }
    for stream in &mut open {
        assert_eq!(echo(&mut **stream, "hello").await.expect("an echo"), "hello");
    }
    assert_eq!(server.logins(), 1);
}

#[tokio::test]
async fn what_is_not_reached_is_told_apart_from_what_is_forbidden() {
    let (server, computer) = Server::usual().await;
    let tunnel = tunnel(&server, &computer);
    let closed = tunnel.dial("closed", 8006).await.err().expect("refused");
    assert_eq!(closed.kind(), ErrorKind::ConnectionRefused);
    assert!(closed.to_string().contains("does not reach closed:8006"), "{closed}");
    let wall = tunnel.dial("wall", 8006).await.err().expect("refused");
    assert_eq!(wall.kind(), ErrorKind::PermissionDenied);
    assert!(wall.to_string().contains("AllowTcpForwarding"), "{wall}");
}

#[tokio::test]
async fn a_torn_connection_is_made_again_once_for_all() {
    let (server, computer) = Server::usual().await;
    let tunnel = Arc::new(tunnel(&server, &computer));
    let mut stream = tunnel.dial("echo", 1).await.expect("a stream");
    assert_eq!(echo(&mut *stream, "before").await.expect("an echo"), "before");
    server.hang_up();
    assert!(
        timeout(SOON, echo(&mut *stream, "after")).await.expect("it ends").is_err(),
        "the stream is gone"
    );
    let dials = (0..10).map(|_| {
        let tunnel = Arc::clone(&tunnel);
        tokio::spawn(async move {
            let mut stream = tunnel.dial("echo", 1).await?;
            echo(&mut *stream, "again").await
        })
    });
    for dial in dials.collect::<Vec<_>>() {
        assert_eq!(dial.await.expect("a task").expect("an echo"), "again");
    }
    assert_eq!(server.logins(), 2, "one before, and one for all ten");
}

#[tokio::test]
async fn a_key_that_changes_between_two_logins_is_refused_for_good() {
    let (server, computer) = Server::usual().await;
    let tunnel = tunnel(&server, &computer);
    connect(&tunnel).await.expect("a login");
    let old = server.manners.lock().expect("a lock").host_key.clone();
    server.change(|manners| manners.host_key = key());
    server.hang_up();
    let error = loop {
        // Until the client has noticed that the line is dead, it may still ask for streams.
        match timeout(SOON, tunnel.dial("echo", 1)).await.expect("it ends") {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => break error,
            _ => tokio::task::yield_now().await,
        }
    };
    assert!(error.to_string().contains("not one of those it is known by"), "{error}");
    assert_eq!(server.logins(), 1);
    // The right key does not help any more: nobody knows who was there meanwhile. A new run asks anew.
    server.change(|manners| manners.host_key = old);
    let error = tunnel.dial("echo", 1).await.err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    connect(&tunnel).await.expect("asked for in words, it is tried again");
}

#[tokio::test]
async fn an_unknown_host_is_shown_and_may_be_trusted() {
    let (server, computer) = Server::usual().await;
    let tunnel = tunnel(&server, &computer.with(KNOWN_HOSTS, ""));
    let host = server.manners.lock().expect("a lock").host_key.clone();
    let Err(NotConnected::UnknownKey(shown)) = connect(&tunnel).await else { panic!("it is unknown") };
    assert_eq!(shown.line("name"), format!("name {}", public(&host).trim()));
    assert_eq!(server.logins(), 0);
    tunnel.trust(&shown);
    connect(&tunnel).await.expect("a login");
}

#[tokio::test]
async fn changed_revoked_and_vouched_for_hosts_are_refused() {
    let (server, computer) = Server::usual().await;
    let host = server.manners.lock().expect("a lock").host_key.clone();
    let other = key();
    let name = server.name();
    let with = |text: String| connect_with(&server, computer.clone().with(KNOWN_HOSTS, &text));

    let changed = with(format!("{name} {}\n", public(&other))).await;
    let Err(NotConnected::ChangedKey { shown, known }) = changed else { panic!("{changed:?}") };
    assert_ne!(shown.fingerprint(), known[0].fingerprint);
    assert_eq!((known[0].line, known[0].file.to_str()), (1, Some(KNOWN_HOSTS)));

    let revoked = with(format!("{name} {0}\n@revoked * {0}\n", public(&host))).await;
    assert!(matches!(revoked, Err(NotConnected::RevokedKey { .. })), "{revoked:?}");
    let vouched = with(format!("@cert-authority * {}\n", public(&other))).await;
    assert!(matches!(vouched, Err(NotConnected::OnlyAuthority { .. })), "{vouched:?}");
    assert_eq!(server.logins(), 0);
}

async fn connect_with(server: &Server, computer: Computer) -> Result<(), NotConnected> {
    connect(&tunnel(server, &computer)).await
}

#[tokio::test]
async fn whoever_is_not_let_in_learns_what_was_tried() {
    let (server, computer) = Server::usual().await;
    let Err(NotConnected::Refused(refused)) =
        connect_with(&server, computer.clone().with(IDENTITY, &text_of(&key()))).await
    else {
        panic!("it is not known")
    };
    assert_eq!(refused.offered, [IDENTITY]);
    assert!(refused.locked.is_empty() && !refused.hung_up);

    let config = "IdentityFile ~/none\nIdentitiesOnly yes\n";
    let Err(NotConnected::Refused(refused)) =
        connect_with(&server, computer.with("/home/ann/.ssh/config", config)).await
    else {
        panic!("it has no key")
    };
    assert!(refused.offered.is_empty() && refused.unusable[0].contains("no such file"), "{refused:?}");
    assert!(refused.methods.contains(&"publickey".to_owned()), "{refused:?}");
}

#[tokio::test]
async fn a_locked_key_waits_for_its_passphrase() {
    let (server, computer) = Server::usual().await;
    let client = key();
    server.change(|manners| manners.admits = vec![client.public_key().clone()]);
    let locked: PrivateKey = client.encrypt(&mut safe_rng(), "open sesame").expect("a locked key");
    let tunnel = tunnel(&server, &computer.with(IDENTITY, &text_of(&locked)));
    let Err(NotConnected::Refused(refused)) = connect(&tunnel).await else { panic!("it is locked") };
    assert_eq!(refused.locked, [std::path::PathBuf::from(IDENTITY)]);
    let try_with = |words: &str| tunnel.unlock(IDENTITY.as_ref(), &Passphrase::new(words.to_owned()));
    assert!(try_with("wrong").is_err());
    try_with("open sesame").expect("the passphrase");
    assert!(try_with("open sesame").is_err(), "it is open already");
    connect(&tunnel).await.expect("a login");
    server.hang_up();
    let mut stream = timeout(SOON, async {
        loop {
            if let Ok(mut stream) = tunnel.dial("echo", 1).await
                && echo(&mut *stream, "x").await.is_ok()
            {
                break stream;
            }
        }
    })
    .await
    .expect("it logs in again without asking");
    assert_eq!(echo(&mut *stream, "open").await.expect("an echo"), "open");
}

#[tokio::test]
async fn an_agent_signs_and_a_dead_one_is_done_without() {
    let (server, computer) = Server::usual().await;
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("agent");
    let listener = tokio::net::UnixListener::bind(&socket).expect("a socket");
    let incoming = futures_util::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    tokio::spawn(russh::keys::agent::server::serve(Box::pin(incoming), ()));
    let client = key();
    server.change(|manners| manners.admits = vec![client.public_key().clone()]);
    let mut agent = russh::keys::agent::client::AgentClient::connect_uds(&socket).await.expect("an agent");
    agent.add_identity(&client, &[]).await.expect("a key");

    let mut computer = computer.with(IDENTITY, &text_of(&key()));
    computer.agent = Some(socket);
    connect_with(&server, computer.clone()).await.expect("a login");
    let only = computer
        .clone()
        .with("/home/ann/.ssh/config", "IdentitiesOnly yes\nIdentityFile ~/.ssh/id_ed25519\n");
    assert!(
        matches!(connect_with(&server, only).await, Err(NotConnected::Refused(_))),
        "the agent's is not named"
    );

    computer.agent = Some(directory.path().join("gone"));
    let Err(NotConnected::Refused(refused)) = connect_with(&server, computer).await else {
        panic!("no agent")
    };
    assert!(refused.unusable[0].starts_with("the agent at "), "{refused:?}");
    assert_eq!(refused.offered, [IDENTITY], "the file is still tried");
}

#[tokio::test]
async fn hosts_are_reached_over_one_another() {
    let (near, computer) = Server::usual().await;
    let (far, _) = Server::usual().await;
    let (near_host, far_host) = (
        public(&near.manners.lock().expect("a lock").host_key),
        public(&far.manners.lock().expect("a lock").host_key),
    );
    let admitted = near.manners.lock().expect("a lock").admits.clone();
    far.change(|manners| manners.admits = admitted);
    let known = format!("{} {near_host}\n{} {far_host}\n", near.name(), far.name());
    let computer = computer.with(KNOWN_HOSTS, &known);
    let first = Arc::new(tunnel(&near, &computer));
    let second = Tunnel::new(far.route(&computer), first);
    let mut stream = second.dial("echo", 1).await.expect("a stream");
    assert_eq!(echo(&mut *stream, "over two").await.expect("an echo"), "over two");
    near.hang_up();
    let again = async {
        loop {
            if let Ok(mut stream) = second.dial("echo", 1).await
                && let Ok(heard) = echo(&mut *stream, "again").await
            {
                break heard;
            }
        }
    };
    assert_eq!(timeout(SOON, again).await.expect("both are made again"), "again");
    assert_eq!((near.logins(), far.logins()), (2, 2));
}

#[tokio::test]
async fn a_full_host_is_asked_again_until_there_is_room() {
    let (server, computer) = Server::usual().await;
    server.change(|manners| manners.room = 1);
    let tunnel = tunnel(&server, &computer);
    let first = tunnel.dial("echo", 1).await.expect("a stream");
    let second = tunnel.dial("echo", 2);
    let leave = async {
        while server.manners.lock().expect("a lock").turned_away == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(first);
    };
    let (second, ()) = tokio::join!(second, leave);
    assert_eq!(echo(&mut *second.expect("a stream"), "room").await.expect("an echo"), "room");
}

#[tokio::test]
async fn servers_that_do_not_answer_keep_nobody_else_waiting() {
    let (server, computer) = Server::usual().await;
    let tunnel = Arc::new(tunnel(&server, &computer));
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let tunnel = Arc::clone(&tunnel);
            tokio::spawn(async move {
                timeout(Duration::from_secs(1), tunnel.dial("silent", 50000)).await.is_err()
            })
        })
        .collect();
    let begun = Instant::now();
    let mut stream = timeout(SOON, tunnel.dial("echo", 1)).await.expect("it ends").expect("a stream");
    assert_eq!(echo(&mut *stream, "me first").await.expect("an echo"), "me first");
    assert!(begun.elapsed() < Duration::from_secs(10));
    for dial in waiting {
        assert!(dial.await.expect("a task"), "silence is no stream");
    }
}

/// Answers every connection with the same bytes, again and again, and reads nothing.
async fn hostile(bytes: &'static [u8], endless: bool) -> Server {
    let (server, _) = Server::usual().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                while stream.write_all(bytes).await.is_ok() && endless {}
                tokio::time::sleep(Duration::from_hours(1)).await;
            });
        }
    });
    Server { address, ..server }
}

#[tokio::test]
async fn what_is_no_ssh_server_is_left_soon() {
    for bytes in [
        b"HTTP/1.1 400 Bad Request\r\n".as_slice(),
        b"x",
        b"SSH-2.0-x\r\n\xff\xff\xff\xff",
        b"SSH-1.5-old\r\n",
    ] {
        let server = hostile(bytes, true).await;
        let error = connect_with(&server, Computer::default()).await.expect_err("no server");
        assert!(matches!(error, NotConnected::NotUnderstood(_) | NotConnected::NotReached(_)), "{error:?}");
        assert!(error.to_string().len() < 1_000, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_left_in_time() {
    for bytes in [b"".as_slice(), b"SSH-2.0-slow\r\n"] {
        let server = hostile(bytes, false).await;
        let begun = Instant::now();
        let error = tunnel(&server, &Computer::default()).connect().await.expect_err("nothing happens");
        assert!(matches!(error, NotConnected::NotReached(_)), "{error:?}");
        assert!(begun.elapsed() <= Duration::from_secs(25), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_host_that_is_not_there_is_not_asked_too_often() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (server, computer) = Server::usual().await;
    let gone = Server { address: listener.local_addr().expect("an address"), ..server };
    drop(listener);
    let tunnel = tunnel(&gone, &computer);
    let begun = Instant::now();
    for _ in 0..200 {
        let error = tunnel.dial("echo", 1).await.err().expect("nobody is there");
        assert_eq!(error.kind(), ErrorKind::NotConnected, "so that it is tried again later: {error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "a known failure is told at once");
}

#[tokio::test]
async fn a_long_banner_is_passed_over() {
    let (server, computer) = Server::usual().await;
    server.change(|manners| manners.banner = "\u{1b}]52;c;AAAA\u{7} be warned\n".repeat(1_000));
    connect_with(&server, computer).await.expect("a login");
}

#[tokio::test]
async fn a_server_that_hangs_up_after_some_keys_is_told_of() {
    let (server, computer) = Server::usual().await;
    let mut config = String::from("IdentitiesOnly yes\n");
    let mut computer = computer;
    for number in 0..10 {
        computer = computer.with(&format!("/home/ann/k{number}"), &text_of(&key()));
        config += &format!("IdentityFile ~/k{number}\n");
    }
    let computer = computer.with("/home/ann/.ssh/config", &config);
    let Err(NotConnected::Refused(refused)) = connect_with(&server, computer).await else {
        panic!("no key fits")
    };
    assert!(refused.hung_up && refused.offered.len() < 10, "{refused:?}");
}

#[test]
fn nothing_secret_is_shown() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let manners =
            Manners { host_key: key(), admits: Vec::new(), room: 0, turned_away: 0, banner: String::new() };
        let server = Server::start(manners).await;
        let client = key();
        let computer = Computer::default().with(IDENTITY, &text_of(&client));
        let route = server.route(&computer);
        let shown = format!("{route:?} {:?}", tunnel(&server, &computer));
        let secret = text_of(&client);
        for line in secret.lines().filter(|line| !line.starts_with('-')) {
            assert!(!shown.contains(line), "{shown}");
        }
    });
}
