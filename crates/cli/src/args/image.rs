//! `ichor image`.

use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  ichor image id                           the schematic id of each boot image";

const ID_EXAMPLES: &str = "\
Examples:
  ichor image id                           one line per image: the id, then the image
  ichor image id -o json | jq -r '.images[].url' where the Image Factory has them
  ichor image id -o json | jq -r '.images[0].schematic' | curl --data-binary @- https://factory.talos.dev/schematics";

/// Tells about the boot images of a cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct Image {
    /// What to tell.
    #[command(subcommand)]
    pub verb: ImageVerb,
}

/// What to tell about images.
#[derive(Debug, Subcommand)]
pub enum ImageVerb {
    /// Prints the schematic id of each boot image, without asking the Image Factory.
    ///
    /// As JSON and YAML also the schematic itself, the installer, and where the image is downloaded.
    #[command(after_help = ID_EXAMPLES)]
    Id,
}
