//! "Did you mean".

/// Words that other tools use for a key of ours.
const SYNONYMS: &[(&str, &str)] = &[
    ("addr", "address"),
    ("agent_enabled", "agent"),
    ("api_endpoint", "endpoint"),
    ("api_token", "token"),
    ("api_token_secret", "token"),
    ("api_url", "endpoint"),
    ("apiserver_vip", "vip"),
    ("argo", "argocd"),
    ("argo_cd", "argocd"),
    ("bios_type", "bios"),
    ("cluster_name", "name"),
    ("clustername", "name"),
    ("cores", "cpu"),
    ("count_", "count"),
    ("cpus", "cpu"),
    ("datastore", "storage"),
    ("datastore_id", "storage"),
    ("disk_size", "disk"),
    ("flux2", "flux"),
    ("fluxcd", "flux"),
    ("gw", "gateway"),
    ("host_node", "host"),
    ("hostname", "name"),
    ("install_disk", "disk"),
    ("ip", "address"),
    ("ip_address", "address"),
    ("ips", "address"),
    ("k8s", "kubernetes"),
    ("k8s_version", "kubernetes"),
    ("kubernetes_version", "kubernetes"),
    ("mac_addr", "mac"),
    ("mac_address", "mac"),
    ("machine_type", "role"),
    ("mem", "memory"),
    ("nameservers", "dns"),
    ("dns_servers", "dns"),
    ("network_bridge", "bridge"),
    ("node", "host"),
    ("node_name", "host"),
    ("nodes", "machines"),
    ("ntp", "time_servers"),
    ("onboot", "on_boot"),
    ("pci_devices", "pci"),
    ("pod_cidr", "pods"),
    ("pod_subnets", "pods"),
    ("pool", "storage"),
    ("proxmox_node", "host"),
    ("pve_node", "host"),
    ("ram", "memory"),
    ("ram_dedicated", "memory"),
    ("replicas", "count"),
    ("scsi_hw", "scsi_controller"),
    ("scsihw", "scsi_controller"),
    ("service_cidr", "services"),
    ("service_subnets", "services"),
    ("svc_cidr", "services"),
    ("subnet", "cidr"),
    ("target_node", "host"),
    ("target_nodes", "hosts"),
    ("talos_version", "talos"),
    ("tag", "vlan"),
    ("token_secret", "token"),
    ("type", "role"),
    ("type", "kind"),
    ("vcpu", "cpu"),
    ("vcpus", "cpu"),
    ("url", "endpoint"),
    ("version", "talos"),
    ("vlan_id", "vlan"),
    ("vlan_tag", "vlan"),
    ("vm_id", "vmid"),
    ("id", "vmid"),
    ("workers", "machines"),
    ("controlplane", "machines"),
    ("controlplanes", "machines"),
    ("control_planes", "machines"),
    ("controllers", "machines"),
];

/// Returns the known word that was probably meant.
pub fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = plain_form(written);
    if let Some(same) = known.iter().find(|word| plain_form(word) == plain) {
        return Some(same);
    }
    let snake = snake_form(written);
    if let Some((_, ours)) = SYNONYMS.iter().find(|(theirs, ours)| *theirs == snake && known.contains(ours)) {
        return known.iter().find(|word| *word == ours).copied();
    }
    known
        .iter()
        .map(|word| (strsim::damerau_levenshtein(&plain, &plain_form(word)), *word))
        .filter(|(distance, word)| *distance <= allowed_distance(word))
        .min()
        .map(|(_, word)| word)
}

/// Longer words may differ by more: `vmdi` is `vmid`, but `gpu` is not `cpu`.
const fn allowed_distance(word: &str) -> usize {
    match word.len() {
        0..=3 => 0,
        4..=5 => 1,
        _ => 2,
    }
}

/// Lower case without separators: what `bridgeName`, `bridge-name` and `bridge_name` share.
fn plain_form(word: &str) -> String {
    word.chars().take(64).filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn snake_form(word: &str) -> String {
    let mut snake = String::new();
    for c in word.chars().take(64) {
        if c.is_ascii_uppercase() && !snake.is_empty() && !snake.ends_with('_') {
            snake.push('_');
        }
        snake.push(if c == '-' { '_' } else { c.to_ascii_lowercase() });
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_and_words_of_other_tools_are_understood() {
        let known = ["memory", "vmid", "address", "cpu", "cpu_type", "bridge", "scsi_controller", "host"];
        for (written, meant) in [
            ("memroy", Some("memory")),
            ("Memory", Some("memory")),
            ("ram", Some("memory")),
            ("vm_id", Some("vmid")),
            ("cpuType", Some("cpu_type")),
            ("ipAddress", Some("address")),
            ("gpu", None),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, &known), meant, "{written}");
        }
    }
}
