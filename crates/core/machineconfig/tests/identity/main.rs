//! The identity of a cluster, through the public interface: secrets, certificates and
//! boot files.

mod boot_files;
mod bundle;
mod canary;
mod certificates;
mod import;
mod machine;
mod support;
