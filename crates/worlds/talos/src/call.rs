//! A call before it is sent, and how its answer is read.

use std::{fmt, time::Duration};

use bytes::Bytes;
use ichor_talos_proto::{Message, code, common};

use crate::error::{Code, clean};

/// Why an answer that arrived gives nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It makes no sense.
    Nonsense(String),
    /// Its only part is a refusal.
    Refused(Code, String),
}

/// How a message of an answer is read.
pub(crate) type Read<T> = fn(Bytes) -> Result<T, Unread>;

/// What a call and a call with many answers share. The request may hold secrets, and so is not shown.
#[derive(Clone)]
pub(crate) struct Head {
    /// The path, `/service/method`.
    pub(crate) method: String,
    pub(crate) request: Bytes,
    pub(crate) within: Duration,
}

impl Head {
    /// Returns the name of the call alone.
    pub(crate) fn name(&self) -> &str {
        self.method.rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("method", &self.method)
            .field("request", &format_args!("{} bytes", self.request.len()))
            .field("within", &self.within)
            .finish()
    }
}

/// A call, and by its type what it gives back.
#[derive(Debug)]
pub struct Call<T> {
    pub(crate) head: Head,
    pub(crate) read: Read<T>,
}

/// A call that many messages answer, and by its type what each of them gives.
#[derive(Debug)]
pub struct StreamCall<T> {
    pub(crate) head: Head,
    pub(crate) read: Read<T>,
}

impl<T> Clone for Call<T> {
    fn clone(&self) -> Self {
        Self { head: self.head.clone(), read: self.read }
    }
}

impl<T> Clone for StreamCall<T> {
    fn clone(&self) -> Self {
        Self { head: self.head.clone(), read: self.read }
    }
}

impl<T> Call<T> {
    pub(crate) fn new(method: String, request: &impl Message, within: Duration, read: Read<T>) -> Self {
        Self { head: Head { method, request: request.encode_to_vec().into(), within }, read }
    }

    /// Gives the machine another time to answer.
    #[must_use]
    pub const fn within(mut self, within: Duration) -> Self {
        self.head.within = within;
        self
    }

    /// Returns the name of the call.
    pub fn name(&self) -> &str {
        self.head.name()
    }
}

impl<T> StreamCall<T> {
    pub(crate) fn new(method: String, request: &impl Message, within: Duration, read: Read<T>) -> Self {
        Self { head: Head { method, request: request.encode_to_vec().into(), within }, read }
    }

    /// Gives the machine another time until its last message.
    #[must_use]
    pub const fn within(mut self, within: Duration) -> Self {
        self.head.within = within;
        self
    }

    /// Returns the name of the call.
    pub fn name(&self) -> &str {
        self.head.name()
    }
}

/// An answer of the form `XResponse { repeated X messages }`.
pub(crate) trait Answer: Message + Default {
    /// What each message is.
    type Entry: Default;
    /// Returns the messages.
    fn entries(self) -> Vec<Self::Entry>;
    /// Returns who a message is from.
    fn metadata(entry: &Self::Entry) -> Option<&common::Metadata>;
}

/// Tells of answers what their messages are.
macro_rules! answers {
    ($($answer:path => $entry:path),* $(,)?) => {
        $(impl crate::call::Answer for $answer {
            type Entry = $entry;

            fn entries(self) -> Vec<$entry> {
                self.messages
            }

            fn metadata(entry: &$entry) -> Option<&ichor_talos_proto::common::Metadata> {
                entry.metadata.as_ref()
            }
        })*
    };
}
pub(crate) use answers;

/// Decodes a message.
pub(crate) fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, Unread> {
    M::decode(bytes).map_err(|error| Unread::Nonsense(clean(&error.to_string())))
}

/// Reads an answer of one machine: one entry, which is no refusal.
pub(crate) fn only<A: Answer>(bytes: Bytes) -> Result<A::Entry, Unread> {
    let mut entries = decode::<A>(bytes)?.entries();
    let entry = entries.pop().ok_or_else(|| Unread::Nonsense("it is empty".into()))?;
    if !entries.is_empty() {
        return Err(Unread::Nonsense("several machines answered, and one was asked".into()));
    }
    admit(A::metadata(&entry))?;
    Ok(entry)
}

/// Reads an answer that only says that it was done.
pub(crate) fn done<A: Answer>(bytes: Bytes) -> Result<(), Unread> {
    decode::<A>(bytes)?.entries().iter().try_for_each(|entry| admit(A::metadata(entry)))
}

/// A part of an answer that was passed on by another machine may itself be a refusal.
pub(crate) fn admit(metadata: Option<&common::Metadata>) -> Result<(), Unread> {
    let Some(metadata) = metadata.filter(|metadata| !metadata.error.is_empty()) else { return Ok(()) };
    let number = metadata.status.as_ref().map_or(code::UNKNOWN, |status| status.code);
    Err(Unread::Refused(Code::of(number), clean(&metadata.error)))
}

#[cfg(test)]
mod tests {
    use ichor_talos_proto::{google::rpc::Status, machine};

    use super::*;

    fn hostname(metadata: Option<common::Metadata>) -> machine::Version {
        machine::Version { metadata, ..machine::Version::default() }
    }

    fn read(messages: Vec<machine::Version>) -> Result<machine::Version, Unread> {
        only::<machine::VersionResponse>(machine::VersionResponse { messages }.encode_to_vec().into())
    }

    #[test]
    fn one_machine_gives_one_answer() {
        assert!(read(vec![hostname(None)]).is_ok());
        assert!(read(Vec::new()).is_err());
        assert!(read(vec![hostname(None), hostname(None)]).is_err());
        let broken = only::<machine::VersionResponse>(Bytes::from_static(&[10, 99]));
        assert!(matches!(broken, Err(Unread::Nonsense(_))), "{broken:?}");
    }

    #[test]
    fn a_refusal_may_stand_in_an_answer() {
        let status = Status { code: 14, message: "no".into(), details: Vec::new() };
        let metadata =
            common::Metadata { hostname: "a".into(), error: "no\n route".into(), status: Some(status) };
        assert_eq!(
            read(vec![hostname(Some(metadata))]),
            Err(Unread::Refused(Code::Unavailable, "no route".into()))
        );
    }

    #[test]
    fn what_is_sent_is_not_shown() {
        let request = machine::ReadRequest { path: "secret".into() };
        let call = Call::new("/a/B".into(), &request, Duration::from_secs(1), |_| Ok(()));
        assert!(!format!("{call:?}").contains("secret"), "{call:?}");
        assert_eq!(call.name(), "B");
    }
}
