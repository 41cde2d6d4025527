//! `ichor secrets identity`: who the user is for others, and a key for whoever has none.

use ichor_model::Findings;

use crate::{
    Halt, System,
    keyring::{Keyring, NewIdentity},
};

/// Who the user is.
#[derive(Debug)]
pub struct Own {
    /// The recipient that others encrypt to.
    pub recipient: String,
    /// The identity that was made, if there was none.
    pub made: Option<NewIdentity>,
    /// What is wrong with keys that were found.
    pub findings: Findings,
}

/// Returns who the user is, and makes an identity if there is none.
pub fn identity(system: &dyn System) -> Result<Own, Halt> {
    let mut ring = Keyring::load(system);
    let own = ring.own().map(|recipient| recipient.text().to_owned());
    let (recipient, made) = match own {
        Some(recipient) => (recipient, None),
        None => {
            let made = ring.make(system)?;
            (made.recipient.clone(), Some(made))
        }
    };
    Ok(Own { recipient, made, findings: ring.findings().clone() })
}
