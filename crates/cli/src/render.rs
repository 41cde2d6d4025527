//! Everything that is shown: text and tables for people, JSON and YAML for programs.

pub mod document;
#[allow(dead_code, reason = "the live verbs show it")]
pub mod duration;
pub mod envelope;
#[allow(dead_code, reason = "the live verbs show it")]
pub mod estimate;
pub mod excerpt;
pub mod failure;
pub mod findings;
pub mod findings_json;
#[cfg(test)]
pub mod fixture;
pub mod given;
pub mod graph;
pub mod headcount;
#[allow(dead_code, reason = "the live verbs show it")]
pub mod health;
pub mod hosts;
pub mod machines;
pub mod placement;
pub mod places;
pub mod plan;
#[allow(dead_code, reason = "the live verbs show it")]
pub mod progress;
pub mod rendered;
#[allow(dead_code, reason = "the live verbs show it")]
pub mod run_report;
pub mod secrecy;
pub mod secrets;
#[allow(dead_code, reason = "the live verbs show it")]
pub mod status;
#[allow(dead_code, reason = "the live verbs show it")]
pub mod steps;
pub mod summary;
pub mod table;
pub mod text;
