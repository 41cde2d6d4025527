//! What becomes of a call that meets a fault.

use std::{net::IpAddr, time::Duration};

use super::{Door, Fault, Lab, Progress};
use crate::{
    clock::Time,
    faults::{Kind, When},
    ground::Mischief,
    wire::{Request, Response, Rpc, RpcReply},
};

/// gRPC's word for a server that went away.
const UNAVAILABLE: i32 = 14;

/// Answers an HTTP call that meets a fault.
pub fn http(lab: &mut Lab, door: &Door, request: &Request, fault: Fault) -> Progress<Response> {
    run(
        lab,
        request.began,
        fault,
        |lab| lab.answer(door, request),
        |kind, answer| match kind {
            Kind::Close(_) => Response { status: 0, close: true, ..Response::default() },
            Kind::Status { code, reason, .. } => {
                let reason = Some(reason).filter(|reason| !reason.is_empty());
                Response { status: code, reason, close: true, ..Response::default() }
            }
            Kind::Cut { bytes } => Response { cut: Some(bytes), ..answer },
            Kind::Payload(body) => Response { body: body.into_bytes(), ..answer },
            _ => answer,
        },
    )
}

/// Answers a call to the Talos API that meets a fault.
pub fn rpc(lab: &mut Lab, address: IpAddr, rpc: &Rpc, fault: Fault) -> Progress<RpcReply> {
    run(
        lab,
        rpc.began,
        fault,
        |lab| lab.answer_rpc(address, rpc),
        |kind, answer| match kind {
            Kind::Close(_) => {
                RpcReply::Status { code: UNAVAILABLE, message: "connection closed before the answer".into() }
            }
            Kind::Status { code, reason, .. } => RpcReply::Status { code: code.into(), message: reason },
            Kind::Cut { .. } => RpcReply::Status { code: UNAVAILABLE, message: "stream was reset".into() },
            Kind::Payload(body) => RpcReply::Messages { messages: vec![body.into_bytes()], stream: None },
            _ => answer,
        },
    )
}

/// The course of a fault: when the effect happens, and what is made of the answer.
fn run<T: Default>(
    lab: &mut Lab,
    began: Time,
    fault: Fault,
    answer: impl Fn(&mut Lab) -> Progress<T>,
    spoil: impl FnOnce(Kind, T) -> T,
) -> Progress<T> {
    let late = began + fault.kind.delay();
    if late > lab.ground.now {
        return Progress::Wait(late);
    }
    match &fault.kind {
        Kind::Hang(When::Before) => return Progress::Wait(Time::NEVER),
        Kind::Close(When::Before) | Kind::Status { when: When::Before, .. } => {
            return Progress::Done(spoil(fault.kind, T::default()));
        }
        Kind::Twice if !fault.again => drop(answer(lab)),
        Kind::TaskFails(text) => lab.ground.mischief.task_fails = Some(text.clone()),
        Kind::LockHeld { millis } => {
            lab.ground.mischief.locks_held_until = Some(began + Duration::from_millis(*millis));
        }
        Kind::PermissionLost => lab.ground.mischief.no_rights = true,
        _ => {}
    }
    let progress = answer(lab);
    lab.ground.mischief = Mischief::default();
    match progress {
        Progress::Done(_) if matches!(fault.kind, Kind::Hang(_)) => {
            // It has had its effect: asked again, it must not have it again.
            lab.waiting.insert(fault.call, Kind::Hang(When::Before));
            Progress::Wait(Time::NEVER)
        }
        Progress::Done(reply) => Progress::Done(spoil(fault.kind, reply)),
        Progress::Wait(until) => Progress::Wait(until),
    }
}
