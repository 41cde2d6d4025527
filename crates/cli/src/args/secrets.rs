//! `ichor secrets`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint, builder::FalseyValueParser};

const EXAMPLES: &str = "\
Examples:
  ichor secrets new                        make the secrets of a new cluster
  ichor secrets import secrets.yaml        take those of a cluster that runs
  ichor secrets restore                    bring back those that got lost or damaged
  ichor secrets add-recipient age1...      let somebody else open them too
  ichor secrets show                       what is kept, without any secret
  ichor secrets export > secrets.yaml      for talosctl, or for a backup";

const NEW_EXAMPLES: &str = "\
Examples:
  ichor secrets new                        for the cluster of ./ichor.yaml
  ichor -f clusters/ --cluster lab secrets new";

const IMPORT_EXAMPLES: &str = "\
Examples:
  ichor secrets import secrets.yaml        made by `talosctl gen secrets`
  ichor secrets import controlplane.yaml   a control plane's machine config holds them too
  talosctl -n 10.0.0.11 get machineconfig v1alpha1 -o jsonpath='{.spec}' | ichor secrets import -
  ichor secrets import talsecret.sops.yaml encrypted, by sops or talhelper, to a key of yours";

const RESTORE_EXAMPLES: &str = "\
Examples:
  ichor secrets restore --list             which generations there are, and what they have
  ichor secrets restore                    the newest secrets that are whole
  ichor secrets restore 41                 those of the 41st generation";

const ENCRYPT_EXAMPLES: &str = "\
Examples:
  ichor secrets encrypt                    secrets that an older ichor kept in plain
  ichor secrets encrypt secrets.sops.yaml  another file, in its place";

const EDIT_EXAMPLES: &str = "\
Examples:
  ichor secrets edit secrets.sops.yaml     values for `{sops: secrets.sops.yaml#proxmox.token}`
  EDITOR='code --wait' ichor secrets edit  the cluster's own secrets";

const ROTATE_EXAMPLES: &str = "\
Examples:
  ichor secrets rotate-key                 a new key for the cluster's secrets
  ichor secrets rotate-key secrets.sops.yaml";

const ADD_EXAMPLES: &str = "\
Examples:
  ichor secrets add-recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p
  ichor secrets add-recipient \"$(cat ~/.ssh/id_ed25519.pub)\"
  ichor secrets add-recipient age1... --of secrets.sops.yaml";

const REMOVE_EXAMPLES: &str = "\
Examples:
  ichor secrets remove-recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";

const IDENTITY_EXAMPLES: &str = "\
Examples:
  ichor secrets identity                   send the line to those who encrypt to you";

const EXPORT_EXAMPLES: &str = "\
Examples:
  ichor secrets export --out secrets.yaml  a file for its owner alone
  ichor secrets export | age -r age1... > secrets.yaml.age";

const SHOW_EXAMPLES: &str = "\
Examples:
  ichor secrets show                       fingerprints, ends and algorithms
  ichor secrets show -o json | jq -r '.authorities[].ends'";

/// Makes, imports, restores, encrypts, edits, exports and shows the secrets of a cluster.
///
/// They are made once and kept for the cluster's whole life: the certificate authorities, keys and tokens
/// from which everything else can be made again. ichor keeps them as talosctl does, with every value encrypted as
/// sops does it, in a `secrets.sops.yaml` in the directory that `store` names (`.ichor` beside the inventory),
/// or in the file that `secrets.file` names. They are encrypted to the age recipients of `secrets.age`, of
/// `SOPS_AGE_RECIPIENTS` or of `.sops.yaml`, or to you.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct Secrets {
    /// What to do.
    #[command(subcommand)]
    pub verb: SecretsVerb,
}

/// What to do with secrets.
#[derive(Debug, Subcommand)]
pub enum SecretsVerb {
    /// Makes the secrets of a new cluster.
    ///
    /// They are written once and never over others. The machine-config contract of the inventory is recorded
    /// beside them, and kept when Talos is upgraded later.
    #[command(after_help = NEW_EXAMPLES)]
    New,
    /// Imports the secrets of a cluster that runs.
    ///
    /// They are written over no others. A file in their place that is empty or damaged stays beside them.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(Import),
    /// Brings back secrets that got lost or damaged, out of a generation of the store.
    ///
    /// The store keeps what must not be lost as it was after each of the last ten runs that are in its trail. What is in the place of the
    /// secrets now stays beside them, under a name that ends with `.old`.
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(Restore),
    /// Prints the secrets as talosctl's `secrets.yaml`.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(Export),
    /// Shows what is kept, without any secret.
    #[command(after_help = SHOW_EXAMPLES)]
    Show,
    /// Encrypts secrets that are kept in plain.
    #[command(after_help = ENCRYPT_EXAMPLES)]
    Encrypt(SealedFile),
    /// Changes an encrypted file in an editor.
    ///
    /// The editor is that of `SOPS_EDITOR` or `EDITOR`. It gets the plain text in a directory for its owner alone,
    /// which is gone afterwards, however it went. A file that is not there is made.
    #[command(after_help = EDIT_EXAMPLES)]
    Edit(SealedFile),
    /// Encrypts a file with a new key, to the same recipients.
    #[command(after_help = ROTATE_EXAMPLES)]
    RotateKey(SealedFile),
    /// Lets others open an encrypted file too.
    #[command(after_help = ADD_EXAMPLES)]
    AddRecipient(AddRecipient),
    /// Takes recipients away, and encrypts the file with a new key.
    ///
    /// Whoever could open the file before knows what was in it: make new secrets where that matters.
    #[command(after_help = REMOVE_EXAMPLES)]
    RemoveRecipient(RemoveRecipient),
    /// Shows your own recipient, and makes an identity if you have none.
    #[command(after_help = IDENTITY_EXAMPLES)]
    Identity,
}

/// The file that a verb is about.
#[derive(Debug, clap::Args)]
pub struct SealedFile {
    /// A file of values, in YAML or JSON; absent, the cluster's secrets.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub sealed: Option<PathBuf>,
}

/// `ichor secrets add-recipient`.
#[derive(Debug, clap::Args)]
pub struct AddRecipient {
    /// Public keys of age (`age1...`) or of SSH (`ssh-ed25519 ...`).
    #[arg(value_name = "RECIPIENT", required = true)]
    pub recipients: Vec<String>,
    /// A file of values; absent, the cluster's secrets.
    #[arg(long, value_name = "FILE", env = "ICHOR_ADD_RECIPIENT_OF", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub of: Option<PathBuf>,
}

/// `ichor secrets remove-recipient`.
#[derive(Debug, clap::Args)]
pub struct RemoveRecipient {
    /// Public keys of age (`age1...`) or of SSH (`ssh-ed25519 ...`).
    #[arg(value_name = "RECIPIENT", required = true)]
    pub recipients: Vec<String>,
    /// A file of values; absent, the cluster's secrets.
    #[arg(long, value_name = "FILE", env = "ICHOR_REMOVE_RECIPIENT_OF", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub of: Option<PathBuf>,
}

/// `ichor secrets import`.
#[derive(Debug, clap::Args)]
pub struct Import {
    /// A `secrets.yaml`, or the machine config of a control plane, encrypted by sops or not; `-` for standard
    /// input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
}

/// `ichor secrets restore`.
#[derive(Debug, clap::Args)]
pub struct Restore {
    /// The number of a generation; absent, the newest whose secrets are whole.
    #[arg(value_name = "GENERATION")]
    pub generation: Option<u64>,
    /// Shows which generations there are, who wrote them and when, and changes nothing.
    #[arg(long, env = "ICHOR_RESTORE_LIST", hide_env_values = true, value_parser = FalseyValueParser::new(), conflicts_with_all = ["generation", "replace"])]
    pub list: bool,
    /// Puts them also in the place of whole secrets of another cluster, or of some that no key of yours opens.
    #[arg(long, env = "ICHOR_RESTORE_REPLACE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub replace: bool,
}

/// `ichor secrets export`.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// A file to write, for its owner alone, in place of standard output.
    #[arg(long, value_name = "FILE", env = "ICHOR_EXPORT_OUT", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Writes over a file that is there.
    #[arg(long, env = "ICHOR_EXPORT_OVERWRITE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub overwrite: bool,
}
