//! Servers that break the rules: the client must not hang, bloat or be fooled.

use std::{sync::Arc, time::Duration};

use ichor_net::{Direct, Endpoint, HttpClient, Trust};
use ichor_port::{Http, HttpStream, Method, Pieces, Request, Response, TransportError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

fn get() -> Request {
    Request {
        method: Method::Get,
        target: "/api2/json/version".into(),
        headers: Vec::new(),
        authorization: None,
        body: Vec::new(),
    }
}

/// Starts a server that reads a request's head and then does as it likes, for every connection.
async fn server<F>(behave: impl Fn(TcpStream) -> F + Send + 'static) -> HttpClient
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let port = listener.local_addr().expect("address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            if stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                tokio::spawn(behave(stream));
            }
        }
    });
    let endpoint = Endpoint { host: "127.0.0.1".into(), port, tls: false };
    HttpClient::new(endpoint, Trust::Anybody, None, Arc::new(Direct)).expect("client")
}

async fn answer(bytes: &'static [u8]) -> Result<Response, TransportError> {
    let client = server(move |mut stream| async move {
        let _ = stream.write_all(bytes).await;
    })
    .await;
    client.send(get(), Duration::from_secs(5)).await
}

#[tokio::test]
async fn the_reason_phrase_is_read() {
    let response =
        answer(b"HTTP/1.1 595 No route to host\r\ncontent-length: 0\r\n\r\n").await.expect("answer");
    assert_eq!((response.status, response.reason.as_str()), (595, "No route to host"));
}

#[tokio::test]
async fn a_connection_closed_without_an_answer_is_lost() {
    assert!(matches!(answer(b"").await, Err(TransportError::Lost(_))));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_lost() {
    let cut = answer(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"data\"").await;
    assert!(matches!(cut, Err(TransportError::Lost(_))), "{cut:?}");
}

#[tokio::test]
async fn what_is_no_http_is_unreadable() {
    let garbage = answer(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").await;
    assert!(matches!(garbage, Err(TransportError::Unreadable(_))), "{garbage:?}");
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let redirect =
        answer(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(redirect.expect("answer").status, 302);
}

#[tokio::test]
async fn a_body_without_end_is_given_up() {
    let client = server(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await;
        let block = vec![b'x'; 1 << 20];
        while stream.write_all(&block).await.is_ok() {}
    })
    .await;
    let endless = client.send(get(), Duration::from_mins(1)).await;
    assert!(matches!(endless, Err(TransportError::Unreadable(_))), "{endless:?}");
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let client = server(|stream| async move {
        let _kept_open = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let silent = client.send(get(), Duration::from_millis(200)).await;
    assert!(matches!(silent, Err(TransportError::Lost(_))), "{silent:?}");
}

#[tokio::test]
async fn nobody_there_is_told_apart_from_a_lost_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let port = listener.local_addr().expect("address").port();
    drop(listener);
    let endpoint = Endpoint { host: "127.0.0.1".into(), port, tls: false };
    let client = HttpClient::new(endpoint, Trust::Anybody, None, Arc::new(Direct)).expect("client");
    let refused = client.send(get(), Duration::from_secs(5)).await;
    assert!(matches!(refused, Err(TransportError::NotReached(_))), "{refused:?}");
}

#[tokio::test]
async fn connections_are_used_again() {
    let (count, mut counted) = tokio::sync::mpsc::unbounded_channel();
    let client = server(move |mut stream| {
        let count = count.clone();
        async move {
            let _ = count.send(());
            let mut head = vec![0; 4096];
            loop {
                let answered = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
                if answered.is_err() || stream.read(&mut head).await.is_ok_and(|read| read == 0) {
                    return;
                }
            }
        }
    })
    .await;
    for _ in 0..3 {
        client.send(get(), Duration::from_secs(5)).await.expect("answer");
    }
    counted.recv().await.expect("one connection");
    assert!(counted.try_recv().is_err(), "three requests went over one connection");
}

#[tokio::test]
async fn a_body_without_end_comes_piece_by_piece() {
    let client = server(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nfirst").await;
        std::future::pending::<()>().await;
    })
    .await;
    let (head, mut pieces) = client.open(get(), Duration::from_secs(5)).await.expect("a head");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(pieces.next(Duration::from_secs(5)).await.expect("a piece"), Some(b"first".to_vec()));
    let silent = pieces.next(Duration::from_millis(50)).await;
    assert!(matches!(silent, Err(TransportError::Lost(_))), "{silent:?}");
}

#[tokio::test]
async fn pieces_end_or_break_off() {
    let pieces = async |bytes: &'static [u8]| {
        let client = server(move |mut stream| async move {
            let _ = stream.write_all(bytes).await;
        })
        .await;
        let (_, mut pieces) = client.open(get(), Duration::from_secs(5)).await.expect("a head");
        let mut last = pieces.next(Duration::from_secs(5)).await;
        while let Ok(Some(_)) = last {
            last = pieces.next(Duration::from_secs(5)).await;
        }
        last
    };
    let ended = pieces(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").await;
    assert_eq!(ended, Ok(None));
    let broken = pieces(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n").await;
    assert!(matches!(broken, Err(TransportError::Lost(_))), "{broken:?}");
}
