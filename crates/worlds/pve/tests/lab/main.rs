//! The client and the lab: what we write, Proxmox takes, and what it gives back means the same.

mod calls;
mod machines;
mod shapes;
mod support;
