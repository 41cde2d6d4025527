//! What becomes of a call that meets a fault.

use std::{net::IpAddr, time::Duration};

use super::{CallKey, Door, Lab, Progress};
use crate::{
    clock::Time,
    faults::{Kind, When},
    ground::Mischief,
    hostility,
    wire::{Request, Response, Rpc, RpcReply},
};

/// gRPC's word for a server that went away.
const UNAVAILABLE: i32 = 14;

/// Answers an HTTP call that meets a fault.
pub fn http(lab: &mut Lab, door: &Door, request: &Request, call: &CallKey, kind: Kind) -> Progress<Response> {
    run(
        lab,
        call,
        kind,
        |lab| lab.answer(door, request),
        |lab, kind, answer| match kind {
            Kind::Close(_) => Response { status: 0, close: true, ..Response::default() },
            Kind::Status { code, reason, .. } => {
                let reason = Some(reason).filter(|reason| !reason.is_empty());
                Response { status: code, reason, close: true, ..Response::default() }
            }
            Kind::Cut { bytes } => Response { cut: Some(bytes), ..answer },
            Kind::Payload(body) => Response { body: body.into_bytes(), ..without_length(answer) },
            Kind::Hostile(kind) => {
                let (answer, tap) = hostility::http(kind, &without_length(answer), &mut lab.ground);
                let stream = tap.map(|tap| lab.open_tap(tap));
                Response { stream, ..answer }
            }
            _ => answer,
        },
    )
}

/// An answer with another body must not tell the length of its own.
fn without_length(mut answer: Response) -> Response {
    answer.headers.retain(|(name, _)| name != "content-length");
    answer
}

/// Answers a call to the Talos API that meets a fault.
pub fn rpc(lab: &mut Lab, address: IpAddr, rpc: &Rpc, call: &CallKey, kind: Kind) -> Progress<RpcReply> {
    run(
        lab,
        call,
        kind,
        |lab| lab.answer_rpc(address, rpc),
        |lab, kind, answer| match kind {
            Kind::Close(_) => {
                RpcReply::Status { code: UNAVAILABLE, message: "connection closed before the answer".into() }
            }
            Kind::Status { code, reason, .. } => RpcReply::Status { code: code.into(), message: reason },
            Kind::Cut { .. } => RpcReply::Status { code: UNAVAILABLE, message: "stream was reset".into() },
            Kind::Payload(body) => RpcReply::Messages { messages: vec![body.into_bytes()], stream: None },
            Kind::Hostile(kind) => match hostility::rpc(kind, &mut lab.ground) {
                (reply, None) => reply,
                (_, Some(tap)) => {
                    RpcReply::Messages { messages: Vec::new(), stream: Some(lab.open_tap(tap)) }
                }
            },
            _ => answer,
        },
    )
}

/// The course of a fault: when the effect happens, and what is made of the answer.
fn run<T: Default>(
    lab: &mut Lab,
    call: &CallKey,
    kind: Kind,
    answer: impl Fn(&mut Lab) -> Progress<T>,
    spoil: impl FnOnce(&mut Lab, Kind, T) -> T,
) -> Progress<T> {
    let began = call.began;
    let late = began + kind.delay();
    if late > lab.ground.now {
        return Progress::Wait(late);
    }
    match &kind {
        Kind::Hang(When::Before) => return Progress::Wait(Time::NEVER),
        Kind::Close(When::Before) | Kind::Status { when: When::Before, .. } => {
            return Progress::Done(spoil(lab, kind, T::default()));
        }
        Kind::Twice => {
            // The first answer is lost; only when it is there does the second call begin.
            if let Progress::Wait(until) = answer(lab) {
                return Progress::Wait(until);
            }
            lab.meets_next(call, Kind::Slow { millis: 0 });
        }
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
        Progress::Done(_) if matches!(kind, Kind::Hang(_)) => {
            // It has had its effect: asked again, it must not have it again.
            lab.meets_next(call, Kind::Hang(When::Before));
            Progress::Wait(Time::NEVER)
        }
        Progress::Done(reply) => Progress::Done(spoil(lab, kind, reply)),
        Progress::Wait(until) => Progress::Wait(until),
    }
}
