//! The inventory as a text.

use std::fmt::Display;

use super::{Answers, SMALL, TokenAt};

impl Answers {
    /// Writes the inventory.
    pub fn inventory(&self) -> String {
        let mut text = format!(
            "# The cluster `{}`. `ichor schema` prints what can stand here, for editors that know JSON Schema.\n\
             # After a change: `ichor plan` shows what it means, and `ichor up` does it.\nschema: 1\n\n",
            self.name
        );
        self.cluster(&mut text);
        self.proxmox(&mut text);
        self.network(&mut text);
        if let Some(factory) = &self.factory {
            text += &format!("\nimage: {{factory: {}}}\n", quoted(factory));
        }
        self.placement(&mut text);
        self.machines(&mut text);
        text
    }

    fn cluster(&self, text: &mut String) {
        *text += &format!(
            "cluster:\n  name: {}\n  talos: {}\n  kubernetes: {}\n",
            self.name, self.talos, self.kubernetes
        );
        if let Some(vip) = self.vip {
            *text += &format!(
                "  endpoint: {{vip: {vip}}} # the control planes share it: one of them answers there\n"
            );
        }
    }

    fn proxmox(&self, text: &mut String) {
        let token = match &self.token {
            TokenAt::Variable(name) => format!("{{env: {name}}}"),
            TokenAt::Sealed(place) => format!("{{sops: {}}}", quoted(place)),
        };
        *text += &format!(
            "\nproxmox:\n  endpoint: {}\n  token: {token} # never the token itself\n",
            quoted(&self.endpoint)
        );
        if let Some(fingerprint) = &self.fingerprint {
            *text +=
                &format!("  tls: {{sha256: {}}} # the certificate that it showed\n", quoted(fingerprint));
        }
        if !self.jump.is_empty() {
            *text += &format!("  jump: [{}]\n", listed(self.jump.iter().map(quoted)));
        }
        if let Some(pool) = &self.pool {
            *text += &format!("  pool: {}\n", quoted(pool));
        }
        *text += &format!("  hosts: [{}] # machines are spread over these\n", listed(&self.hosts));
        *text +=
            &format!("  storage: {{disks: {}, images: {}}}\n", quoted(&self.disks), quoted(&self.images));
    }

    fn network(&self, text: &mut String) {
        *text += &format!(
            "\nnetwork:\n  cidr: {}\n  gateway: {}\n  dns: [{}]\n",
            self.cidr,
            self.gateway,
            listed(&self.dns)
        );
        *text += &format!("  bridge: {}\n", quoted(&self.bridge));
        if let Some(vlan) = self.vlan {
            *text += &format!("  vlan: {vlan}\n");
        }
    }

    fn placement(&self, text: &mut String) {
        if self.thrift.times > 1 {
            *text += &format!(
                "\nplacement: {{overcommit: {{cpu: {}}}}} # the hosts have fewer processors than the machines\n",
                self.thrift.times
            );
        }
    }

    fn machines(&self, text: &mut String) {
        let memory = if self.thrift.is_small { format!(", memory: {SMALL}") } else { String::new() };
        *text += "\n# Each machine gets the next address. `cpu`, `memory` and `disk` make them larger, as in {cpu: 4, memory: 8GiB, disk: 50GiB}.\nmachines:\n";
        *text += &format!(
            "  cp: {{role: control-plane, count: {}, address: {}{memory}}}\n",
            self.control_planes, self.control_planes_from
        );
        if self.workers > 0 {
            *text += &format!(
                "  worker: {{role: worker, count: {}, address: {}{memory}}}\n",
                self.workers, self.workers_from
            );
        }
    }
}

fn listed<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// Writes a text as YAML reads it back, whatever it holds: names come from a server.
fn quoted(text: impl AsRef<str>) -> String {
    let text = text.as_ref();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let begins_plain = text.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    if begins_plain && !is_word && text.chars().all(plain) {
        return text.to_owned();
    }
    // A JSON string is one of YAML's too.
    serde_json::Value::from(text).to_string()
}
