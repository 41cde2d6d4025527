//! What differs from one Talos release to the next.

use ichor_model::Minor;

/// Reads the minor version of a release such as `v1.13.9`; what cannot be read counts as the newest.
pub fn minor(tag: &str) -> Minor {
    let mut numbers = tag.trim_start_matches('v').split(['.', '-']).map(|part| part.parse().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => Minor::new(major, minor),
        _ => Minor::new(1, 14),
    }
}

/// Since 1.13 the normal API serves maintenance mode, with the rights of a reader.
pub fn maintenance_is_whole(talos: Minor) -> bool {
    talos >= Minor::new(1, 13)
}

/// Since 1.13 there are the lifecycle and image services.
pub fn has_lifecycle(talos: Minor) -> bool {
    talos >= Minor::new(1, 13)
}

/// Since 1.14 a config is never applied with a reboot.
pub fn never_reboots_to_apply(talos: Minor) -> bool {
    talos >= Minor::new(1, 14)
}

/// Since 1.12 the resource of a config is a text that holds it; before, it was the config itself.
pub fn config_is_text(talos: Minor) -> bool {
    talos >= Minor::new(1, 12)
}

/// Since 1.11 etcd can be downgraded through the API.
pub fn has_etcd_downgrade(talos: Minor) -> bool {
    talos >= Minor::new(1, 11)
}

/// Returns which releases may be upgraded to this one: from the first up to, but not including, the last.
pub fn upgradable_from(talos: Minor) -> (Minor, Minor) {
    let from = match talos.minor {
        0..=8 => 5,
        9 | 10 => 8,
        other => other - 2,
    };
    (Minor::new(1, from), Minor::new(1, talos.minor + 2))
}

/// Returns the etcd that comes with this Talos.
pub fn etcd(talos: Minor) -> &'static str {
    match talos.minor {
        0..=8 => "3.5.17",
        9 => "3.5.21",
        10 => "3.5.26",
        11 => "3.6.5",
        12 => "3.6.11",
        13 => "3.6.12",
        _ => "3.7.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_support_table() {
        let v = |minor| Minor::new(1, minor);
        assert_eq!(minor("v1.14.0-rc.1"), v(14));
        assert_eq!(upgradable_from(v(8)), (v(5), v(10)));
        assert_eq!(upgradable_from(v(10)), (v(8), v(12)));
        assert_eq!(upgradable_from(v(13)), (v(11), v(15)));
    }
}
