//! `/pools`.

use ichor_model::VmId;
use ichor_port::Method;
use serde::Deserialize;

use crate::Call;

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PoolRow {
    /// Its name.
    pub poolid: String,
    /// What somebody wrote about it.
    #[serde(default)]
    pub comment: Option<String>,
}

/// Lists the pools.
pub fn pools() -> Call<Vec<PoolRow>> {
    Call::new(Method::Get, &["pools"])
}

/// Makes a pool.
pub fn create_pool(pool: &str, comment: &str) -> Call<()> {
    Call::new(Method::Post, &["pools"]).with("poolid", pool).with("comment", comment)
}

/// Puts a VM into a pool.
pub fn join_pool(pool: &str, vmid: VmId) -> Call<()> {
    at(Method::Put, pool).with("vms", vmid)
}

/// Deletes a pool, which must be empty.
pub fn delete_pool(pool: &str) -> Call<()> {
    at(Method::Delete, pool)
}

/// Pools within pools came with 8.1, and are named by a parameter alone; older releases know only paths.
fn at<T>(method: Method, pool: &str) -> Call<T> {
    if pool.contains('/') {
        Call::new(method, &["pools"]).with("poolid", pool)
    } else {
        Call::new(method, &["pools", pool])
    }
}
