//! Writes the configs that ichor generates from a bundle, one for each contract and role: `configs SECRETS
//! FOLDER`. Fuzzing starts from them.
#![allow(clippy::disallowed_methods, reason = "a program of its own, which reads its arguments")]

use std::{env, error::Error, fs, path::Path};

use ichor_machineconfig::{
    Config, emit,
    generate::{Blueprint, Install, documents},
    pki::Timestamp,
    secrets::Bundle,
};
use ichor_model::{Minor, desired::Role};

/// In 2027: the same seeds every day.
const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [secrets, folder] = &arguments[..] else { return Err("usage: configs SECRETS FOLDER".into()) };
    let bundle = Bundle::from_secrets_yaml(&fs::read_to_string(secrets)?, NOW)?;
    for contract in 8..=14 {
        for role in Role::ALL {
            let config = config(role, contract, &bundle)?;
            fs::write(Path::new(folder).join(format!("1.{contract}-{role}.yaml")), emit(&config))?;
        }
    }
    Ok(())
}

fn config(role: Role, contract: u64, bundle: &Bundle) -> Result<Config, Box<dyn Error>> {
    let kubernetes = format!("v1.{}.0", contract + 22).parse().map_err(|_| "no release")?;
    let mut blueprint =
        Blueprint::new(role, Minor::new(1, contract), "homelab", "https://10.0.0.20:6443", kubernetes);
    blueprint.install = Some(Install { disk: Some("/dev/sda".into()), image: None, kernel_args: Vec::new() });
    blueprint.sans = vec!["10.0.0.20".into()];
    Config::from_json(&documents(&blueprint, bundle)).map_err(|_| "what was generated does not read".into())
}
