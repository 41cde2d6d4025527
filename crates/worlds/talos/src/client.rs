//! Sending calls to one machine.

use std::{future::poll_fn, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use h2::SendStream;
use ichor_net::{
    Dial, Identity, Trust,
    tls::{NotTrusted, Protocol, Secure},
};
use ichor_talos_proto::{Message, common};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, timeout_at},
};

use crate::{
    Address, Call, Code, Error, Refusal, StreamCall, api,
    call::{Head, Read, Unread},
    connection::{Answered, Begun, Channel, Open, was_not_processed},
    error::clean,
    grpc::{self, Ending, Unframer},
    resource::{Kind, Resource, Single},
};

/// Most bytes of a message, as Talos itself has it; and of all messages that are gathered.
const MAX_MESSAGE: usize = 32 << 20;
/// Most messages that are gathered.
const MAX_ENTRIES: usize = 10_000;
/// How much of a snapshot is sent in one message.
const PIECE: usize = 64 << 10;
/// A boot id is a uuid.
const MAX_BOOT_ID: usize = 128;
/// So much may be around the content of a file: frames, and fields that are not read.
const MAX_WRAPPING: usize = 64 << 10;

/// A client of one machine.
#[derive(Debug)]
pub struct Talos {
    channel: Channel,
}

impl Talos {
    /// Makes a client of a machine in maintenance mode, which knows nobody yet: whoever is trusted is trusted by the
    /// certificate that it made itself.
    pub fn maintenance(at: Address, trust: Trust, dialer: Arc<dyn Dial>) -> Result<Self, NotTrusted> {
        let secure = Secure::new(trust, None, Protocol::Http2)?;
        Ok(Self { channel: Channel::new(at, secure, Vec::new(), false, dialer) })
    }

    /// Makes a client of a configured machine, for whom one of these CAs (DER) vouches, and who knows us by our
    /// certificate.
    pub fn secure(
        at: Address,
        authorities: Vec<Vec<u8>>,
        identity: &Identity,
        dialer: Arc<dyn Dial>,
    ) -> Result<Self, NotTrusted> {
        let secure = Secure::new(Trust::Authorities(authorities.clone()), Some(identity), Protocol::Http2)?;
        Ok(Self { channel: Channel::new(at, secure, authorities, true, dialer) })
    }

    /// Returns where the machine is.
    pub const fn address(&self) -> &Address {
        &self.channel.at
    }

    /// Sends a call.
    pub async fn send<T>(&self, call: &Call<T>) -> Result<T, Error> {
        self.stream(&call.head, call.read).await?.only().await
    }

    /// Sends a call that many messages answer, and returns them as they come.
    pub async fn open<T>(&self, call: &StreamCall<T>) -> Result<Streaming<T>, Error> {
        self.stream(&call.head, call.read).await
    }

    /// Sends a call that many messages answer, and returns them all.
    pub async fn gather<T>(&self, call: &StreamCall<T>) -> Result<Vec<T>, Error> {
        let mut answer = self.open(call).await?;
        let mut all = Vec::new();
        while let Some(value) = answer.next().await? {
            all.push(value);
            if all.len() > MAX_ENTRIES || answer.received > MAX_MESSAGE {
                return Err(answer.nonsense("it has no end"));
            }
        }
        Ok(all)
    }

    /// Gets the one resource of a kind; nothing: there is none.
    pub async fn find<K: Single>(&self) -> Result<Option<Resource<K>>, Error> {
        self.find_id(K::ID).await
    }

    /// Gets a resource; nothing: there is none.
    pub async fn find_id<K: Kind>(&self, id: &str) -> Result<Option<Resource<K>>, Error> {
        match self.send(&api::get(id)).await {
            Ok(resource) => Ok(Some(resource)),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists the resources of a kind.
    pub async fn list<K: Kind>(&self) -> Result<Vec<Resource<K>>, Error> {
        self.gather(&api::list()).await
    }

    /// Reads what names this boot of the machine: it is another after every reboot.
    pub async fn boot_id(&self) -> Result<String, Error> {
        let id = self.read_file("/proc/sys/kernel/random/boot_id", MAX_BOOT_ID).await?;
        Ok(clean(&String::from_utf8_lossy(&id)))
    }

    /// Reads a file of the machine that has no more than so many bytes.
    pub async fn read_file(&self, path: &str, limit: usize) -> Result<Vec<u8>, Error> {
        let mut answer = self.open(&api::read_file(path)).await?;
        let mut content = Vec::new();
        while let Some(piece) = answer.next().await? {
            // Messages without content would go on for ever.
            if content.len() + piece.len() > limit || answer.received > limit + MAX_WRAPPING {
                return Err(answer.nonsense(&format!("the file has more than {limit} bytes")));
            }
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }

    /// Takes a snapshot of etcd, and returns how many bytes it has.
    pub async fn etcd_snapshot(&self, to: &mut (impl AsyncWrite + Unpin)) -> Result<u64, Error> {
        let mut answer = self.open(&api::etcd_snapshot()).await?;
        let (mut length, mut empty): (u64, usize) = (0, 0);
        while let Some(piece) = answer.next().await? {
            empty += usize::from(piece.is_empty());
            if empty > MAX_ENTRIES {
                return Err(answer.nonsense("it has no end"));
            }
            to.write_all(&piece).await.map_err(|error| answer.local(&error))?;
            length += piece.len() as u64;
        }
        to.flush().await.map_err(|error| answer.local(&error))?;
        if length == 0 { Err(answer.nonsense("the snapshot is empty")) } else { Ok(length) }
    }

    /// Uploads a snapshot of etcd, for a bootstrap that begins with it.
    pub async fn etcd_recover(&self, from: &mut (impl AsyncRead + Unpin)) -> Result<(), Error> {
        let Call { head, read } = api::recover_answer();
        let deadline = Instant::now() + head.within;
        let Begun { mut response, mut body, open, .. } = self.channel.begin(&head, deadline).await?;
        let uploaded = async {
            // A machine that refuses does so before it has everything.
            tokio::select! {
                biased;
                response = &mut response => Ok(response),
                sent = upload(from, &mut body) => match sent {
                    Err(Stopped::Here(error)) => Err(error),
                    // The machine's answer says why it did not take the rest.
                    Ok(()) | Err(Stopped::There) => Ok(response.await),
                },
            }
        };
        let response = match timeout_at(deadline, uploaded).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err(error))) if was_not_processed(&error) => {
                return Err(self.channel.not_reached(clean(&error.to_string())));
            }
            Ok(Ok(Err(error))) => return Err(self.channel.lost(&head, &error.to_string())),
            Ok(Err(error)) => return Err(local(head.name(), &error)),
            Err(_) => {
                return Err(self.channel.lost(&head, &format!("there was none within {:?}", head.within)));
            }
        };
        self.read(&head, read, deadline, Answered { response, body, open })?.only().await
    }

    async fn stream<T>(&self, head: &Head, read: Read<T>) -> Result<Streaming<T>, Error> {
        let deadline = Instant::now() + head.within;
        let answered = self.channel.ask(head, deadline).await?;
        self.read(head, read, deadline, answered)
    }

    /// Begins to read an answer. One that is a refusal has a status among its headers, and nothing else.
    fn read<T>(
        &self,
        head: &Head,
        read: Read<T>,
        deadline: Instant,
        answered: Answered,
    ) -> Result<Streaming<T>, Error> {
        let (parts, body) = answered.response.into_parts();
        let mut streaming = Streaming {
            at: self.channel.at.clone(),
            call: head.name().to_owned(),
            read,
            deadline,
            body,
            unframer: Unframer::new(MAX_MESSAGE),
            ended: false,
            received: 0,
            _request: answered.body,
            _open: answered.open,
        };
        match grpc::ending(&parts.headers) {
            Some(Ending::Refused(code, text)) => Err(streaming.refused(code, text)),
            Some(Ending::Well) => {
                streaming.ended = true;
                Ok(streaming)
            }
            None => match grpc::beginning(parts.status, &parts.headers) {
                Ok(()) => Ok(streaming),
                Err(why) => Err(streaming.nonsense(&why)),
            },
        }
    }
}

/// Why an upload stopped.
enum Stopped {
    /// What was to be sent cannot be read.
    Here(std::io::Error),
    /// The machine does not take more.
    There,
}

async fn upload(from: &mut (impl AsyncRead + Unpin), body: &mut SendStream<Bytes>) -> Result<(), Stopped> {
    let mut piece = BytesMut::with_capacity(PIECE);
    loop {
        piece.clear();
        piece.reserve(PIECE);
        let length = from.read_buf(&mut piece).await.map_err(Stopped::Here)?;
        if length == 0 {
            return body.send_data(Bytes::new(), true).map_err(|_| Stopped::There);
        }
        let data = common::Data { metadata: None, bytes: piece.to_vec() };
        push(body, grpc::frame(&data.encode_to_vec())).await?;
    }
}

/// Sends bytes as fast as the machine takes them, and no faster.
async fn push(body: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), Stopped> {
    while bytes.has_remaining() {
        body.reserve_capacity(bytes.len());
        let Some(Ok(room)) = poll_fn(|context| body.poll_capacity(context)).await else {
            return Err(Stopped::There);
        };
        let now = bytes.split_to(room.min(bytes.len()));
        body.send_data(now, false).map_err(|_| Stopped::There)?;
    }
    Ok(())
}

fn local(call: &str, error: &std::io::Error) -> Error {
    Error::Local { call: call.to_owned(), why: clean(&error.to_string()) }
}

/// An answer of many messages. Dropping it tells the machine that no more are wanted.
pub struct Streaming<T> {
    at: Address,
    call: String,
    read: Read<T>,
    deadline: Instant,
    body: h2::RecvStream,
    unframer: Unframer,
    ended: bool,
    received: usize,
    /// Dropping it would cancel the call.
    _request: SendStream<Bytes>,
    _open: Open,
}

impl<T> std::fmt::Debug for Streaming<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streaming").field("at", &self.at).field("call", &self.call).finish_non_exhaustive()
    }
}

impl<T> Streaming<T> {
    /// Returns the next message; nothing: that was the last. Giving up in the middle loses nothing: the next call goes
    /// on where this one was.
    pub async fn next(&mut self) -> Result<Option<T>, Error> {
        loop {
            if let Some(message) = self.unframer.next().map_err(|why| self.fail(&why))? {
                // Reading takes time too, and messages that have come already are not waited for.
                if Instant::now() > self.deadline {
                    return Err(self.lost("it was not complete in time"));
                }
                return match (self.read)(message) {
                    Ok(value) => Ok(Some(value)),
                    Err(Unread::Nonsense(why)) => Err(self.fail(&why)),
                    Err(Unread::Refused(code, text)) => Err(self.refused(code, text)),
                };
            }
            if self.ended {
                return Ok(None);
            }
            match timeout_at(self.deadline, self.body.data()).await {
                Ok(Some(Ok(piece))) => {
                    self.received = self.received.saturating_add(piece.len());
                    self.unframer.push(&piece);
                    // It fails only for what was never received.
                    let _ = self.body.flow_control().release_capacity(piece.len());
                }
                Ok(Some(Err(error))) => return Err(self.lost(&error.to_string())),
                Ok(None) => self.end().await?,
                Err(_) => return Err(self.lost("it was not complete in time")),
            }
        }
    }

    /// Returns the only message, once the call has ended well.
    async fn only(mut self) -> Result<T, Error> {
        let Some(value) = self.next().await? else { return Err(self.nonsense("it has no message")) };
        match self.next().await? {
            None => Ok(value),
            Some(_) => Err(self.nonsense("it has more than one message")),
        }
    }

    async fn end(&mut self) -> Result<(), Error> {
        let trailers = match timeout_at(self.deadline, self.body.trailers()).await {
            Ok(Ok(trailers)) => trailers.unwrap_or_default(),
            Ok(Err(error)) => return Err(self.lost(&error.to_string())),
            Err(_) => return Err(self.lost("it was not complete in time")),
        };
        self.ended = true;
        match grpc::ending(&trailers) {
            Some(Ending::Well) if self.unframer.is_empty() => Ok(()),
            Some(Ending::Well) => Err(self.fail("its last message is cut off")),
            Some(Ending::Refused(code, text)) => Err(self.refused(code, text)),
            None => Err(self.fail("it ends without a status")),
        }
    }

    fn refused(&self, code: Code, text: String) -> Error {
        Error::Refused(Refusal { at: self.at.clone(), call: self.call.clone(), code, text })
    }

    fn nonsense(&self, why: &str) -> Error {
        Error::Nonsense { at: self.at.clone(), call: self.call.clone(), why: why.to_owned() }
    }

    /// After nonsense nothing more is read.
    fn fail(&mut self, why: &str) -> Error {
        self.ended = true;
        self.unframer = Unframer::new(MAX_MESSAGE);
        self.nonsense(why)
    }

    fn lost(&mut self, why: &str) -> Error {
        self.ended = true;
        Error::Lost { at: self.at.clone(), call: self.call.clone(), why: clean(why) }
    }

    fn local(&self, error: &std::io::Error) -> Error {
        local(&self.call, error)
    }
}
