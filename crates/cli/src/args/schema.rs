//! `ichor schema`.

const EXAMPLES: &str = "\
Examples:
  ichor schema > ichor.schema.json     then, as the first line of an inventory:
                                       # yaml-language-server: $schema=ichor.schema.json";

/// Prints the JSON Schema of inventories, for editors.
///
/// Editors that know it complete keys, show what they mean and mark mistakes while typing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Schema {}
