//! `ichor health`: every check, by name.

use ichor_ops::health::checks;
use ichor_plan::drift;

use super::{
    live::{self, Intent},
    session::Gate,
};
use crate::{
    args::Global,
    exit::Exit,
    failure::Failure,
    render::health::{document, exit, text},
    terminal::Terminal,
};

/// Checks a cluster.
pub fn run(global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let checked = live::with(global, terminal, Intent::Look, |stage| {
        let desired = stage.site.desired;
        let checks = checks(desired, &stage.observed);
        let shown = text(desired, &checks, terminal.width());
        Ok(((shown, document(desired, &checks), exit(&checks)), drift(desired, &stage.observed)))
    })?;
    match checked {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open((session, (text, document, exit))) => {
            session.show(|| text, || vec![document])?;
            Ok(exit)
        }
    }
}
