//! Whether the machines fit on the hosts, and what could be done about it.
//!
//! The inventory is resolved as every verb would, in what is there. It is not written yet, so that no finding points at
//! a line of it.

use std::path::Path;

use ichor_model::{Code, Finding, Findings, World};
use ichor_ops::{
    Halt,
    converge::first_look,
    init::{Answers, Thrift},
};
use ichor_spec::Sources;

use super::{Door, LOOKING, Stop, Wizard, resolve};
use crate::{
    questions::NoAnswer,
    render::findings::{self, Changes},
};

/// Most machines that are told one by one not to fit.
const MOST: usize = 3;

impl Wizard<'_> {
    /// Returns the inventory, with less for each machine where it would not fit otherwise.
    pub(super) fn fit(&self, door: &Door, answers: &Answers, file: &Path) -> Result<String, Stop> {
        let text = answers.inventory();
        let world = match found(&text, file, &World::default()) {
            (Some(desired), _) => self.wait(LOOKING, first_look(&door.pve, &desired))?.world(&desired),
            (None, wrong) => return Err(self.refuse(&wrong)),
        };
        let (desired, first) = found(&text, file, &world);
        if desired.is_some() {
            self.tell(&first);
            return Ok(text);
        }
        if !first.iter().any(|finding| finding.code == Code::NO_FIT) {
            return Err(self.refuse(&first));
        }
        let with = |thrift: &Thrift| Answers { thrift: *thrift, ..answers.clone() };
        let fits = |thrift: &&Thrift| found(&with(thrift).inventory(), file, &world).0.is_some();
        let Some(thrift) = Thrift::STEPS.iter().find(fits) else { return Err(self.refuse(&first)) };
        self.terminal.tell(&format!("\nAs they are, the machines do not fit:\n{}", lacks(&first)));
        self.terminal.tell(&format!("It fits if {}.", thrift.words()));
        if !self.questions.confirm("Do that", true)? {
            self.terminal.tell(ELSE);
            return Err(NoAnswer::Gone.into());
        }
        let text = with(thrift).inventory();
        self.tell(&found(&text, file, &world).1);
        Ok(text)
    }

    fn tell(&self, found: &Findings) {
        findings::tell(&Sources::default(), found, Changes::None, self.terminal);
    }

    fn refuse(&self, found: &Findings) -> Stop {
        self.tell(found);
        self.terminal.tell("Nothing was written: run `ichor init` again with other answers.");
        Stop::Halt(Halt::invalid(Findings::new()))
    }
}

/// What else can be done.
const ELSE: &str =
    "Fewer machines fit, too (`--control-planes`, `--workers`), and so may other hosts (`--hosts`).";

/// Resolves an inventory. Its findings have no places: there is no such file.
fn found(text: &str, file: &Path, world: &World) -> (Option<ichor_model::Desired>, Findings) {
    let (desired, found) = resolve(text, file, world, &mut Sources::default());
    (desired, found.iter().map(without_place).collect())
}

fn without_place(finding: &Finding) -> Finding {
    let remedy = match finding.code {
        Code::NO_FIT => Some(
            "ask for fewer machines (`--control-planes`, `--workers`), or for other hosts (`--hosts`)".into(),
        ),
        _ => finding.remedy.clone(),
    };
    Finding { at: None, related: Vec::new(), remedy, ..finding.clone() }
}

fn lacks(found: &Findings) -> String {
    let lacking: Vec<&Finding> = found.iter().filter(|finding| finding.code == Code::NO_FIT).collect();
    let told = |finding: &&Finding| format!("  {}: {}", finding.message, finding.notes.join("; "));
    let mut lines: Vec<String> = lacking.iter().take(MOST).map(told).collect();
    if lacking.len() > MOST {
        lines.push(format!("  and {} more", lacking.len() - MOST));
    }
    lines.join("\n")
}
