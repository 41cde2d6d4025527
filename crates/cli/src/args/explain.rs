//! `ichor explain`.

const EXAMPLES: &str = "\
Examples:
  ichor explain                list every code
  ichor explain ICH-1101       explain one; `1101` will do
  ichor explain versions       which Talos runs which Kubernetes
  ichor explain exit-codes     what the exit codes mean";

/// Explains a finding, or lists them all.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Explain {
    /// The code of a finding, `versions`, or `exit-codes`. Absent: lists all codes.
    #[arg(value_name = "CODE|TOPIC")]
    pub topic: Option<String>,
}
