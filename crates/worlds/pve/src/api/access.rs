//! `/access`.

use std::collections::BTreeMap;

use ichor_port::Method;

use crate::Call;

/// The caller's own rights: privileges by path, and whether they are inherited below.
pub type Permissions = BTreeMap<String, BTreeMap<String, u8>>;

/// Asks for the caller's own rights.
pub fn permissions() -> Call<Permissions> {
    Call::new(Method::Get, &["access", "permissions"])
}
