//! The machine config that a machine runs with, or will boot with.

use ichor_port::Secret;

use super::{Kind, Meta, from_yaml};

/// Says that a config is a text in its resource.
const IS_TEXT: &str = "talos.dev/yaml-spec";

/// A machine config, byte for byte as it was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineConfig(pub Secret);

impl MachineConfig {
    /// The one that the machine runs with. Its id is that of the document; there is none in maintenance mode.
    pub const ACTIVE: &'static str = "v1alpha1";
    /// The one that it will boot with, since 1.10.
    pub const PERSISTENT: &'static str = "persistent";
}

impl Kind for MachineConfig {
    const NAMESPACE: &'static str = "config";
    const TYPE: &'static str = "MachineConfigs.config.talos.dev";

    /// Since 1.12 the resource is a text that holds the config, and an annotation says so; before, the resource was
    /// the config itself.
    fn read(meta: &Meta, yaml: &str) -> Result<Self, String> {
        if meta.annotations.get(IS_TEXT).is_some_and(|value| value == "1") {
            return from_yaml::<String>(yaml).map(|text| Self(Secret::new(text)));
        }
        Ok(Self(Secret::new(yaml)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "version: v1alpha1\nmachine:\n    type: worker\n---\nkind: HostnameConfig\n";

    #[test]
    fn older_machines_show_the_config_itself() {
        let read = MachineConfig::read(&Meta::default(), CONFIG).expect("readable");
        assert_eq!(read.0.expose(), CONFIG);
    }

    #[test]
    fn newer_machines_show_a_text_with_the_config() {
        let annotations = [(IS_TEXT.to_owned(), "1".to_owned())].into_iter().collect();
        let meta = Meta { annotations, ..Meta::default() };
        let quoted = serde_json::to_string(CONFIG).expect("JSON");
        let block: String = std::iter::once("|\n".to_owned())
            .chain(CONFIG.lines().map(|line| format!("    {line}\n")))
            .collect();
        for yaml in [quoted, block] {
            let read = MachineConfig::read(&meta, &yaml).expect("readable");
            assert_eq!(read.0.expose(), CONFIG);
        }
        let wrong = MachineConfig::read(&meta, "machine:\n  token: secret\n").expect_err("no text");
        assert!(!wrong.contains("secret"), "{wrong}");
    }
}
