//! The identity of a cluster, through the public interface: secrets, certificates, client configs and
//! boot files.

mod boot_files;
mod bundle;
mod canary;
mod certificates;
mod client_configs;
mod import;
mod machine;
mod support;
