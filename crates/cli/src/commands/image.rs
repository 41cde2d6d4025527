//! `ichor image id`: the schematic id of each boot image.

use ichor_model::Findings;
use ichor_ops::image::{self, Named};
use serde_json::{Value, json};

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
    let named = session.with_all(|site, _| {
        Ok(((site.name().to_owned(), image::name_all(site.desired)?), Findings::new()))
    })?;
    let named = match named {
        Gate::Open(named) => named,
        Gate::Closed(exit) => return Ok(exit),
    };
    session.show(|| lines(&named), || named.iter().map(value).collect())
}

/// Returns one line for each image. No titles: whoever wants the id alone takes the first word.
fn lines(named: &[(String, Vec<Named>)]) -> String {
    let line = |cluster: &str, image: &Named| {
        let of = if named.len() > 1 { format!("  {cluster}") } else { String::new() };
        format!("{}  {}{of}\n", image.id, text::safe_line(&image.image))
    };
    named.iter().flat_map(|(cluster, images)| images.iter().map(|image| line(cluster, image))).collect()
}

fn value((cluster, images): &(String, Vec<Named>)) -> Value {
    json!({ "cluster": cluster, "images": images })
}
