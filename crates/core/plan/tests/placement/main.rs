//! Placement, seen from outside: its rules one by one, and what holds whatever the input.

mod build;
mod control_planes;
mod explain;
mod loss;
mod oracle;
mod properties;
mod refusals;
mod workers;
