//! Talos machines of the lab, as a client sees them.

mod bench;
mod boot;
mod cluster;
mod configs;
mod lifecycle;
mod repeat;
mod watching;
