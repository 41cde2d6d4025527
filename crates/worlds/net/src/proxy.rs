//! Proxies: asking one to lead on (SOCKS5, RFC 1928; HTTP CONNECT, RFC 9110), and being asked as one.
//!
//! Names are never resolved here: whoever leads on resolves them.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use crate::dial::{Dial, Dialled, Stream};

const SOCKS5: u8 = 5;
const NO_LOGIN: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
/// Most bytes of the head of an HTTP request or answer.
const MAX_HEAD: usize = 8 * 1024;
/// How long a proxy may take to connect to a server: longer than a direct connection, which it makes itself.
const LEAD_WITHIN: Duration = Duration::from_secs(15);

/// Connects through a SOCKS5 proxy that asks for no login.
pub struct Socks5 {
    through: Arc<dyn Dial>,
    host: String,
    port: u16,
}

/// Connects through an HTTP proxy that asks for no login.
pub struct HttpConnect {
    through: Arc<dyn Dial>,
    host: String,
    port: u16,
}

impl Socks5 {
    /// Names the proxy, and how it is reached itself.
    pub fn new(through: Arc<dyn Dial>, host: &str, port: u16) -> Self {
        Self { through, host: host.to_owned(), port }
    }
}

impl HttpConnect {
    /// Names the proxy, and how it is reached itself.
    pub fn new(through: Arc<dyn Dial>, host: &str, port: u16) -> Self {
        Self { through, host: host.to_owned(), port }
    }
}

impl fmt::Debug for Socks5 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Socks5({}:{})", self.host, self.port)
    }
}

impl fmt::Debug for HttpConnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpConnect({}:{})", self.host, self.port)
    }
}

impl Dial for Socks5 {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialled<'a> {
        let name = format!("the SOCKS5 proxy {}:{}", self.host, self.port);
        Box::pin(async move {
            let mut stream = meet(&*self.through, &self.host, self.port, &name).await?;
            within(&name, ask_socks(&mut stream, host, port)).await?;
            Ok(stream)
        })
    }
}

impl Dial for HttpConnect {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialled<'a> {
        let name = format!("the HTTP proxy {}:{}", self.host, self.port);
        Box::pin(async move {
            let mut stream = meet(&*self.through, &self.host, self.port, &name).await?;
            within(&name, ask_http(&mut stream, host, port)).await?;
            Ok(stream)
        })
    }
}

async fn meet(through: &dyn Dial, host: &str, port: u16, name: &str) -> io::Result<Box<dyn Stream>> {
    let met = through.dial(host, port).await;
    met.map_err(|error| io::Error::new(error.kind(), format!("{name} is not reached: {error}")))
}

async fn within(name: &str, asked: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let late =
        || io::Error::new(io::ErrorKind::TimedOut, format!("{name} did not answer within {LEAD_WITHIN:?}"));
    let answered = timeout(LEAD_WITHIN, asked).await.map_err(|_| late())?;
    answered.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), format!("{name} hung up")),
        kind => io::Error::new(kind, format!("{name} {error}")),
    })
}

/// Asks a SOCKS5 proxy for a connection. Errors go on with a sentence that begins with the proxy's name.
async fn ask_socks(stream: &mut (impl Stream + ?Sized), host: &str, port: u16) -> io::Result<()> {
    stream.write_all(&[SOCKS5, 1, NO_LOGIN]).await?;
    stream.flush().await?;
    let mut choice = [0; 2];
    stream.read_exact(&mut choice).await?;
    match choice {
        [SOCKS5, NO_LOGIN] => {}
        [SOCKS5, _] => return Err(io::Error::new(io::ErrorKind::PermissionDenied, "wants a login")),
        _ => return Err(nonsense("does not speak SOCKS5")),
    }
    let mut request = vec![SOCKS5, CONNECT, 0];
    push_address(&mut request, host)?;
    request.extend(port.to_be_bytes());
    stream.write_all(&request).await?;
    stream.flush().await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    if answer[0] != SOCKS5 {
        return Err(nonsense("does not speak SOCKS5"));
    }
    if answer[1] != 0 {
        return Err(socks_refusal(answer[1]));
    }
    // From where it connects is its own business, but stands before the stream.
    read_address(stream, answer[3]).await.map(drop)
}

fn push_address(request: &mut Vec<u8>, host: &str) -> io::Result<()> {
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(IPV4);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(IPV6);
            request.extend(address.octets());
        }
        Err(_) => {
            let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "takes no name of that length");
            request.push(NAME);
            request.push(u8::try_from(host.len()).map_err(too_long)?);
            request.extend(host.as_bytes());
        }
    }
    Ok(())
}

async fn read_address(stream: &mut (impl AsyncRead + Unpin + ?Sized), kind: u8) -> io::Result<(String, u16)> {
    let host = match kind {
        IPV4 => Ipv4Addr::from(stream.read_u32().await?).to_string(),
        IPV6 => Ipv6Addr::from(stream.read_u128().await?).to_string(),
        NAME => {
            let mut name = vec![0; usize::from(stream.read_u8().await?)];
            stream.read_exact(&mut name).await?;
            String::from_utf8(name).map_err(|_| nonsense("names a server in no known letters"))?
        }
        _ => return Err(nonsense("names a server in no known way")),
    };
    Ok((host, stream.read_u16().await?))
}

fn socks_refusal(code: u8) -> io::Error {
    let (kind, why) = match code {
        2 => (io::ErrorKind::PermissionDenied, "does not allow this connection"),
        3 => (io::ErrorKind::NetworkUnreachable, "does not reach that network"),
        4 => (io::ErrorKind::HostUnreachable, "does not reach that server"),
        5 => (io::ErrorKind::ConnectionRefused, "was refused by that server"),
        6 => (io::ErrorKind::TimedOut, "waited in vain for that server"),
        _ => (io::ErrorKind::Other, "could not connect"),
    };
    io::Error::new(kind, why)
}

/// Asks an HTTP proxy for a connection. Errors go on with a sentence that begins with the proxy's name.
async fn ask_http(stream: &mut (impl Stream + ?Sized), host: &str, port: u16) -> io::Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    if host.is_empty() || !host.chars().all(plain) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "takes no such name"));
    }
    let at = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    stream.write_all(format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes()).await?;
    stream.flush().await?;
    let head = read_head(stream).await?;
    let status =
        head.lines().next().and_then(|line| line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok());
    match status {
        Some(200..300) => Ok(()),
        Some(407) => Err(io::Error::new(io::ErrorKind::PermissionDenied, "wants a login")),
        Some(code @ (403 | 405)) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("does not allow this connection (it answered {code})"),
        )),
        Some(code @ 100..600) => Err(io::Error::new(
            io::ErrorKind::HostUnreachable,
            format!("could not connect (it answered {code})"),
        )),
        _ => Err(nonsense("does not speak HTTP")),
    }
}

/// Reads the head of a message, and not a byte of what comes behind it.
async fn read_head(stream: &mut (impl AsyncRead + Unpin + ?Sized)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD {
            return Err(nonsense("sends a head without an end"));
        }
        head.push(stream.read_u8().await?);
    }
    String::from_utf8(head).map_err(|_| nonsense("does not speak HTTP"))
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What a client asked us for as its proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Where it wants to be connected to.
    pub host: String,
    /// On which port.
    pub port: u16,
    language: Language,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Socks5,
    Http,
}

/// Why a client is not connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It may not go there.
    Forbidden,
    /// Nobody answers there.
    Unreachable,
}

/// Reads what a client asks for, in SOCKS5 or HTTP, whichever it speaks. The head of a request is read byte by
/// byte, so the stream should have a buffer.
pub async fn listen(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Wanted> {
    match stream.read_u8().await? {
        SOCKS5 => listen_socks(stream).await,
        first => listen_http(stream, first).await,
    }
}

async fn listen_socks(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Wanted> {
    let mut methods = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut methods).await?;
    let choice = if methods.contains(&NO_LOGIN) { NO_LOGIN } else { NO_METHOD };
    stream.write_all(&[SOCKS5, choice]).await?;
    stream.flush().await?;
    if choice == NO_METHOD {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    let (host, port) = read_address(stream, request[3]).await?;
    if request[0] != SOCKS5 || request[1] != CONNECT {
        // 7: command not supported.
        stream.write_all(&socks_answer(7)).await?;
        stream.flush().await?;
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(Wanted { host, port, language: Language::Socks5 })
}

async fn listen_http(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), first: u8) -> io::Result<Wanted> {
    // Anything else than a method's first letter is no request, and need not be read to its end.
    if first != b'C' {
        return Err(nonsense("asks for something else than CONNECT"));
    }
    let head = read_head(stream).await?;
    let (host, port) =
        parse_connect(&head).ok_or_else(|| nonsense("asks for something else than CONNECT"))?;
    Ok(Wanted { host, port, language: Language::Http })
}

/// Reads a request without its first letter.
fn parse_connect(head: &str) -> Option<(String, u16)> {
    let (authority, _) = head.lines().next()?.strip_prefix("ONNECT ")?.split_once(' ')?;
    let (host, port) = authority.rsplit_once(':')?;
    let host = host.strip_prefix('[').map_or(Some(host), |host| host.strip_suffix(']'))?;
    (!host.is_empty()).then_some(())?;
    Some((host.to_owned(), port.parse().ok()?))
}

const fn socks_answer(code: u8) -> [u8; 10] {
    [SOCKS5, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

impl Wanted {
    /// Tells the client that it is connected; what follows is the stream.
    pub async fn grant(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        match self.language {
            Language::Socks5 => stream.write_all(&socks_answer(0)).await?,
            Language::Http => stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
        }
        stream.flush().await
    }

    /// Tells the client that it is not connected.
    pub async fn refuse(&self, stream: &mut (impl AsyncWrite + Unpin), why: Refusal) -> io::Result<()> {
        let (code, status) = match why {
            // By the rules; and host unreachable.
            Refusal::Forbidden => (2, "403 Forbidden"),
            Refusal::Unreachable => (4, "502 Bad Gateway"),
        };
        match self.language {
            Language::Socks5 => stream.write_all(&socks_answer(code)).await?,
            Language::Http => {
                stream
                    .write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes())
                    .await?;
            }
        }
        stream.flush().await
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// Leads to one end of a pipe, whose other end is a proxy in the test.
    struct Once(std::sync::Mutex<Option<Box<dyn Stream>>>);

    impl Dial for Once {
        fn dial<'a>(&'a self, _: &'a str, _: u16) -> Dialled<'a> {
            let stream = self.0.lock().expect("a lock").take();
            Box::pin(async move { stream.ok_or_else(|| io::ErrorKind::ConnectionRefused.into()) })
        }
    }

    type Far = tokio::io::DuplexStream;

    fn pipe() -> (Arc<dyn Dial>, Far) {
        let (near, far) = duplex(64 * 1024);
        (Arc::new(Once(std::sync::Mutex::new(Some(Box::new(near))))), far)
    }

    fn clients(through: &Arc<dyn Dial>) -> [Box<dyn Dial>; 2] {
        [
            Box::new(Socks5::new(Arc::clone(through), "proxy", 1080)),
            Box::new(HttpConnect::new(Arc::clone(through), "proxy", 3128)),
        ]
    }

    #[tokio::test]
    async fn a_client_and_a_proxy_understand_each_other() {
        for which in 0..2 {
            for host in ["10.0.0.1", "fd00::1", "pve1.example"] {
                let (through, mut far) = pipe();
                let client = &clients(&through)[which];
                let proxy = async {
                    let wanted = listen(&mut far).await.expect("a request");
                    assert_eq!((wanted.host.as_str(), wanted.port), (host, 8006));
                    wanted.grant(&mut far).await.expect("an answer");
                    far.write_all(b"hello").await.expect("a stream");
                };
                let (stream, ()) = tokio::join!(client.dial(host, 8006), proxy);
                let mut hello = [0; 5];
                stream.expect("a stream").read_exact(&mut hello).await.expect("a word");
                assert_eq!(&hello, b"hello", "not a byte is lost");
            }
        }
    }

    #[tokio::test]
    async fn refusals_say_whether_it_is_forbidden_or_nobody_is_there() {
        for (refusal, kind) in [
            (Refusal::Forbidden, io::ErrorKind::PermissionDenied),
            (Refusal::Unreachable, io::ErrorKind::HostUnreachable),
        ] {
            for which in 0..2 {
                let (through, mut far) = pipe();
                let client = &clients(&through)[which];
                let proxy = async {
                    let wanted = listen(&mut far).await.expect("a request");
                    wanted.refuse(&mut far, refusal).await.expect("an answer");
                };
                let (stream, ()) = tokio::join!(client.dial("10.0.0.1", 22), proxy);
                let error = stream.err().expect("a refusal");
                assert_eq!(error.kind(), kind, "{error}");
                assert!(error.to_string().starts_with("the "), "{error}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hostile_proxies_end_within_limits() {
        let endless = vec![b'x'; 64 * 1024];
        let answers: [&[u8]; 8] = [
            b"",
            &endless,
            b"\x05\xff",
            b"\x05\x00\x05\x00\x00\x09",
            b"\x05\x00\x04\x00\x00\x01",
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"HTTP/1.1 200 almost",
        ];
        for answer in answers {
            for which in 0..2 {
                let (through, mut far) = pipe();
                let client = &clients(&through)[which];
                let proxy = async {
                    let _ = far.write_all(answer).await;
                    // Whoever is slow is waited for, but not for ever.
                    far
                };
                let (stream, _far) = tokio::join!(client.dial("10.0.0.1", 22), proxy);
                assert!(stream.is_err(), "{answer:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_proxy_that_wants_a_login_is_named() {
        for (which, answer) in [b"\x05\x02".as_slice(), b"HTTP/1.1 407 No\r\n\r\n"].into_iter().enumerate() {
            let (through, mut far) = pipe();
            far.write_all(answer).await.expect("a pipe");
            let error = clients(&through)[which].dial("pve1", 8006).await.err().expect("a refusal");
            assert!(
                error.to_string().contains("proxy:") && error.to_string().ends_with("wants a login"),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn clients_that_are_none_are_not_listened_to() {
        for request in [
            b"GET / HTTP/1.1\r\n\r\n".as_slice(),
            b"CONNECT nowhere HTTP/1.1\r\n\r\n",
            b"CONNECT [fd00::1:22 HTTP/1.1\r\n\r\n",
            b"CONNECT :22 HTTP/1.1\r\n\r\n",
            b"\x04\x01\x00\x16",
            b"\x05\x01\x02",
            b"\x05\x01\x00\x05\x02\x00\x01\x0a\x00\x00\x01\x00\x16",
            b"\x05\x01\x00\x05\x01\x00\x03\x02\xff\xfe\x00\x16",
        ] {
            let (mut client, mut server) = duplex(1024);
            client.write_all(request).await.expect("a pipe");
            client.shutdown().await.expect("a pipe");
            assert!(listen(&mut server).await.is_err(), "{request:?}");
        }
    }
}
