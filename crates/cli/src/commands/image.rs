//! `ichor image id`: the schematic id of each boot image.

use ichor_model::Findings;
use ichor_ops::image;

use super::session::{Gate, Session};
use crate::{
    args::{Global, ImageVerb},
    exit::Exit,
    failure::Failure,
    render::text,
    terminal::Terminal,
};

/// Tells about images.
pub fn run(verb: &ImageVerb, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let ImageVerb::Id = verb;
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let named = match session.with_all(|site, _| Ok((image::name_all(site.desired)?, Findings::new())))? {
        Gate::Open(named) => named.concat(),
        Gate::Closed(exit) => return Ok(exit),
    };
    session.tell();
    // No titles: whoever wants the id alone takes the first word.
    let lines = || {
        let line = |named: &image::Named| format!("{}  {}\n", named.id, text::safe_line(&named.image));
        named.iter().map(line).collect()
    };
    session.show(lines, &named)?;
    Ok(Exit::Done)
}
