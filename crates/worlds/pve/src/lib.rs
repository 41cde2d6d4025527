//! A client of the Proxmox VE API.
//!
//! 1. [`api`] has a function per call: it builds a [`Call`], typed by what comes back. No socket, no clock.
//! 2. [`property`] has a type per property string (`net0`, `scsi0`, ...), which are never put together by hand.
//! 3. [`machine`] says what makes a VM the machine that is wanted, and what is still to be changed; [`ownership`]
//!    says whose a VM is.
//! 4. [`Client`] sends calls over a transport and reads the answers; [`Refusal`] says what a refusal means.
//! 5. [`console`] reads what a VM prints to its serial port.
//!
//! Facts that shape it: every absence and conflict is a 500 with a text, the text is in the reason phrase in older
//! releases, and a lost answer to anything but a GET must be resolved by looking.

pub mod api;
mod call;
mod client;
pub mod console;
mod encode;
pub mod machine;
pub mod ownership;
pub mod property;
mod refusal;
#[cfg(test)]
mod sample;
mod task;
mod upload;

pub use call::{Call, Params};
pub use client::{Client, Error, Ticket, Token};
pub use refusal::{Kind, Refusal, kind_of};
pub use task::{Exit, TaskStatus, Upid};
