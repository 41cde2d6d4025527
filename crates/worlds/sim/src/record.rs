//! What was called, for tests to look at and for people to read.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::{clock::Time, faults::Server};

/// Most calls that are kept; older ones are forgotten, and counted.
const MOST: usize = 100_000;

/// The calls so far. Bodies are not kept: they may hold a user's secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// How many older calls were forgotten.
    pub forgotten: u64,
    /// The calls, oldest first.
    pub calls: VecDeque<Call>,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// When it began.
    pub at: Time,
    /// At which server.
    pub server: Server,
    /// The HTTP method; empty for Talos.
    pub method: String,
    /// The path, or Talos' method.
    pub path: String,
    /// The status of the answer: HTTP's, or gRPC's for Talos. Absent: there was no answer.
    pub status: Option<u16>,
}

impl Record {
    /// Writes down a call.
    pub fn add(&mut self, call: Call) {
        if self.calls.len() == MOST {
            self.calls.pop_front();
            self.forgotten += 1;
        }
        self.calls.push_back(call);
    }

    /// Returns the calls to a server that were to change something.
    pub fn changing(&self, server: Server) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(move |call| {
            call.server == server && !matches!(call.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "")
        })
    }
}
