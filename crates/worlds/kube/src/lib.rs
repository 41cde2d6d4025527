//! A client of the Kubernetes API.
//!
//! 1. [`Resource`] says under which paths a kind is served; those that ichor always needs are constants, others
//!    are found by asking ([`Client::discover`]).
//! 2. [`api`] has a function per call: it builds a [`Call`], typed by what comes back. No socket, no clock.
//! 3. [`Client`] sends calls over a transport and reads the answers; [`Refusal`] says what a refusal means.
//! 4. [`Watch`] tells changes as they come, and when it can tell no more.
//!
//! An API server is asked at a control plane's own address, which its certificate names, and the client shows a
//! certificate of the cluster's CA: both are the transport's business.
//!
//! Facts that shape it: a budget that forbids an eviction and a server with too much to do both answer 429; a
//! page of a list can be too old for the next one (410); applying names every other owner of a field in causes.

pub mod api;
mod call;
mod client;
mod object;
mod read;
mod refusal;
mod resource;
mod watch;

pub use call::{Call, Content};
pub use client::{Client, Deleted, Error, Evicted, Probe};
pub use object::{Condition, List, ObjectName, Truth, condition};
pub use refusal::{FieldConflict, Kind, Refusal};
pub use resource::Resource;
pub use watch::{Event, Watch, WatchFrom};
