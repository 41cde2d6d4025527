//! Replays recorded calls against the lab.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use ichor_sim::replay::{self, Report};
use serde_json::Value;

/// Replays all recordings of a folder and prints the agreement per recording and in all; returns it in percent.
pub fn run(folder: &Path, show: &[String]) -> Result<f64> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .with_context(|| format!("cannot read `{}`", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let (mut agreed, mut all) = (0, 0);
    for path in files {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let recording: Value =
            serde_json::from_str(&text).with_context(|| format!("`{}` is no JSON", path.display()))?;
        if !recording["exchanges"].is_array() {
            continue;
        }
        let mut report = replay::run(&recording);
        report.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        agreed += report.agreed();
        all += report.exchanges.len();
        println!("{:5} of {:4} {}", report.agreed(), report.exchanges.len(), report.name);
        if show.iter().any(|part| report.name.contains(part.as_str())) {
            print_differences(&report);
        }
    }
    let percent = percent(agreed, all);
    println!("{agreed} of {all} calls agree ({percent:.2} %)");
    Ok(percent)
}

#[allow(clippy::cast_precision_loss)]
fn percent(part: usize, all: usize) -> f64 {
    if all == 0 { 100.0 } else { part as f64 * 100.0 / all as f64 }
}

fn print_differences(report: &Report) {
    for (place, outcome) in report.exchanges.iter().enumerate() {
        if outcome.differences.is_empty() {
            continue;
        }
        println!("      #{place} {}", shortened(&outcome.title, 300));
        for difference in &outcome.differences {
            println!("          {}", shortened(difference, 600));
        }
    }
}

fn shortened(text: &str, most: usize) -> String {
    let short: String = text.chars().take(most).collect();
    if short.len() < text.len() { format!("{short}...") } else { short }
}
