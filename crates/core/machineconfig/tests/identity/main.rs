//! The identity of a cluster, through the public interface: boot files.

mod boot_files;
mod machine;
