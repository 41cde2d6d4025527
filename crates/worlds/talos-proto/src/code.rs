//! The numbers of gRPC statuses.

/// The call ended well.
pub const OK: i32 = 0;
/// The caller gave up.
pub const CANCELED: i32 = 1;
/// An error without a number: what Talos' own errors become.
pub const UNKNOWN: i32 = 2;
/// The request is wrong, whatever the state of the machine.
pub const INVALID_ARGUMENT: i32 = 3;
/// No answer in time.
pub const DEADLINE_EXCEEDED: i32 = 4;
/// There is no such thing.
pub const NOT_FOUND: i32 = 5;
/// It is there already.
pub const ALREADY_EXISTS: i32 = 6;
/// The caller's roles do not allow it.
pub const PERMISSION_DENIED: i32 = 7;
/// No room is left.
pub const RESOURCE_EXHAUSTED: i32 = 8;
/// The machine is not in a state for it.
pub const FAILED_PRECONDITION: i32 = 9;
/// This Talos, or this mode, does not know the call.
pub const UNIMPLEMENTED: i32 = 12;
/// Something inside the machine broke.
pub const INTERNAL: i32 = 13;
/// Nobody answers now.
pub const UNAVAILABLE: i32 = 14;
/// The caller did not say who it is.
pub const UNAUTHENTICATED: i32 = 16;
