//! Plans of steps, against a small world that does what steps say and nothing else.

mod destroy;
mod drift;
mod files;
mod preflight;
mod stage;
mod up;
