//! Everything that is shown: text and tables for people, JSON and YAML for programs.

pub mod doctor;
pub mod document;
pub mod duration;
pub mod envelope;
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
pub mod health;
pub mod hosts;
pub mod keeping;
pub mod machines;
pub mod placement;
pub mod places;
pub mod plan;
pub mod progress;
pub mod remains;
pub mod rendered;
pub mod run_report;
pub mod secrecy;
pub mod secrets;
pub mod status;
pub mod steps;
pub mod summary;
pub mod table;
pub mod text;
