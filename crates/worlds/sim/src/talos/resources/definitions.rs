//! The kinds of resources that the lab's machines have, and how clients find and show them.

use ichor_talos_proto::{
    Message,
    cosi::resource::{ResourceDefinitionSpec, resource_definition_spec::PrintColumn},
};

use super::spec::quoted;

/// A kind of resource.
pub struct Definition {
    /// Its full name.
    pub kind: &'static str,
    /// Where it lives unless somebody says otherwise.
    pub namespace: &'static str,
    /// Whether only administrators may look.
    pub sensitive: bool,
    /// Names beside those that follow from the full one.
    aliases: &'static [&'static str],
    /// Columns of a table: title and path.
    columns: &'static [(&'static str, &'static str)],
}

/// The namespaces of a machine.
pub const NAMESPACES: [&str; 12] = [
    "cluster",
    "config",
    "controlplane",
    "etcd",
    "extras",
    "files",
    "hardware",
    "k8s",
    "meta",
    "network",
    "runtime",
    "secrets",
];

const fn plain(
    kind: &'static str,
    namespace: &'static str,
    aliases: &'static [&'static str],
    columns: &'static [(&'static str, &'static str)],
) -> Definition {
    Definition { kind, namespace, sensitive: false, aliases, columns }
}

const fn secret(kind: &'static str, namespace: &'static str) -> Definition {
    Definition { kind, namespace, sensitive: true, aliases: &[], columns: &[] }
}

/// The kind that describes kinds.
pub const DEFINITIONS: &str = "ResourceDefinitions.meta.cosi.dev";
/// The kind that names namespaces.
pub const NAMESPACE_KIND: &str = "Namespaces.meta.cosi.dev";

/// All kinds.
pub const ALL: &[Definition] = &[
    plain(DEFINITIONS, "meta", &["api-resources"], &[("Aliases", "{.aliases[:]}")]),
    plain(NAMESPACE_KIND, "meta", &["ns"], &[]),
    plain(
        "MachineStatuses.runtime.talos.dev",
        "runtime",
        &[],
        &[("Stage", "{.stage}"), ("Ready", "{.status.ready}")],
    ),
    secret("MachineConfigs.config.talos.dev", "config"),
    plain("MachineTypes.config.talos.dev", "config", &[], &[("Type", "{@}")]),
    plain(
        "HostnameStatuses.net.talos.dev",
        "network",
        &["hostname"],
        &[("Hostname", "{.hostname}"), ("Domainname", "{.domainname}")],
    ),
    plain(
        "NodeAddresses.net.talos.dev",
        "network",
        &[],
        &[("Addresses", "{.addresses}"), ("SortAlgorithm", "{.sortAlgorithm}")],
    ),
    plain(
        "AddressStatuses.net.talos.dev",
        "network",
        &["address", "addresses"],
        &[("Address", "{.address}"), ("Link", "{.linkName}")],
    ),
    plain(
        "LinkStatuses.net.talos.dev",
        "network",
        &["link", "links"],
        &[
            ("Alias", "{.alias}"),
            ("Type", "{.type}"),
            ("Kind", "{.kind}"),
            ("Hw Addr", "{.hardwareAddr}"),
            ("Oper State", "{.operationalState}"),
            ("Link State", "{.linkState}"),
        ],
    ),
    plain(
        "NetworkStatuses.net.talos.dev",
        "network",
        &["netstatus", "netstatuses"],
        &[
            ("Address", "{.addressReady}"),
            ("Connectivity", "{.connectivityReady}"),
            ("Hostname", "{.hostnameReady}"),
            ("Etc", "{.etcFilesReady}"),
        ],
    ),
    plain(
        "RouteStatuses.net.talos.dev",
        "network",
        &["route", "routes"],
        &[
            ("Destination", "{.dst}"),
            ("Gateway", "{.gateway}"),
            ("Link", "{.outLinkName}"),
            ("Metric", "{.priority}"),
        ],
    ),
    plain(
        "ResolverStatuses.net.talos.dev",
        "network",
        &["resolvers"],
        &[("Resolvers", "{.dnsServers}"), ("Search Domains", "{.searchDomains}")],
    ),
    plain(
        "TimeServerStatuses.net.talos.dev",
        "network",
        &["timeserver", "timeservers"],
        &[("Timeservers", "{.timeServers}")],
    ),
    plain("TimeStatuses.v1alpha1.talos.dev", "runtime", &[], &[("Synced", "{.synced}")]),
    plain(
        "Services.v1alpha1.talos.dev",
        "runtime",
        &["svc"],
        &[("Running", "{.running}"), ("Healthy", "{.healthy}"), ("Health Unknown", "{.unknown}")],
    ),
    plain(
        "Disks.block.talos.dev",
        "runtime",
        &[],
        &[
            ("Size", "{.pretty_size}"),
            ("Read Only", "{.readonly}"),
            ("Transport", "{.transport}"),
            ("Rotational", "{.rotational}"),
            ("WWID", "{.wwid}"),
            ("Model", "{.model}"),
            ("Serial", "{.serial}"),
        ],
    ),
    plain(
        "VolumeStatuses.block.talos.dev",
        "runtime",
        &[],
        &[("Type", "{.type}"), ("Phase", "{.phase}"), ("Location", "{.location}"), ("Size", "{.prettySize}")],
    ),
    plain("SystemDisks.block.talos.dev", "runtime", &[], &[("Disk", "{.diskID}")]),
    plain(
        "MountStatuses.runtime.talos.dev",
        "runtime",
        &["mounts"],
        &[("Source", "{.source}"), ("Target", "{.target}"), ("Filesystem Type", "{.filesystemType}")],
    ),
    plain(
        "ExtensionStatuses.runtime.talos.dev",
        "runtime",
        &["extensions"],
        &[("Name", "{.metadata.name}"), ("Version", "{.metadata.version}")],
    ),
    plain("Versions.runtime.talos.dev", "runtime", &[], &[("Name", "{.name}"), ("Version", "{.version}")]),
    plain(
        "SecurityStates.talos.dev",
        "runtime",
        &[],
        &[
            ("SecureBoot", "{.secureBoot}"),
            ("UKISigningKeyFingerprint", "{.ukiSigningKeyFingerprint}"),
            ("PCRSigningKeyFingerprint", "{.pcrSigningKeyFingerprint}"),
            ("SELinuxState", "{.selinuxState}"),
        ],
    ),
    plain(
        "PlatformMetadatas.talos.dev",
        "runtime",
        &[],
        &[
            ("Platform", "{.platform}"),
            ("Type", "{.instanceType}"),
            ("Region", "{.region}"),
            ("Zone", "{.zone}"),
        ],
    ),
    plain("MetaKeys.runtime.talos.dev", "runtime", &["meta"], &[("Value", "{.value}")]),
    plain("Diagnostics.runtime.talos.dev", "runtime", &[], &[("Message", "{.message}")]),
    plain(
        "SystemInformations.hardware.talos.dev",
        "hardware",
        &["systeminformation"],
        &[
            ("Manufacturer", "{.manufacturer}"),
            ("ProductName", "{.productName}"),
            ("Version", "{.version}"),
            ("SerialNumber", "{.serialnumber}"),
            ("UUID", "{.uuid}"),
            ("WakeUpType", "{.wakeUpType}"),
            ("SKUNumber", "{.skuNumber}"),
        ],
    ),
    plain(
        "Processors.hardware.talos.dev",
        "hardware",
        &["cpus", "cpu"],
        &[
            ("Manufacturer", "{.manufacturer}"),
            ("Model", "{.productName}"),
            ("Cores", "{.coreCount}"),
            ("Threads", "{.threadCount}"),
        ],
    ),
    plain(
        "MemoryModules.hardware.talos.dev",
        "hardware",
        &["memorymodules", "ram"],
        &[("Manufacturer", "{.manufacturer}"), ("Model", "{.productName}"), ("SizeMiB", "{.sizeMiB}")],
    ),
    plain("EtcdMembers.etcd.talos.dev", "etcd", &[], &[("Member ID", "{.memberID}")]),
    plain(
        "Members.cluster.talos.dev",
        "cluster",
        &[],
        &[
            ("Hostname", "{.hostname}"),
            ("Machine Type", "{.machineType}"),
            ("OS", "{.operatingSystem}"),
            ("Addresses", "{.addresses}"),
        ],
    ),
    plain(
        "Infos.cluster.talos.dev",
        "cluster",
        &[],
        &[("Cluster ID", "{.clusterId}"), ("Cluster Name", "{.clusterName}")],
    ),
    plain("Nodenames.kubernetes.talos.dev", "k8s", &[], &[("Nodename", "{.nodename}")]),
    plain(
        "NodeStatuses.kubernetes.talos.dev",
        "k8s",
        &[],
        &[("Ready", "{.nodeReady}"), ("Unschedulable", "{.unschedulable}")],
    ),
    secret("KubeletSpecs.kubernetes.talos.dev", "k8s"),
    secret("APIServerConfigs.kubernetes.talos.dev", "controlplane"),
    plain("ControllerManagerConfigs.kubernetes.talos.dev", "controlplane", &[], &[]),
    plain("SchedulerConfigs.kubernetes.talos.dev", "controlplane", &[], &[]),
    plain("BootstrapManifestsConfigs.kubernetes.talos.dev", "controlplane", &[], &[]),
    plain("Manifests.kubernetes.talos.dev", "controlplane", &[], &[]),
    plain(
        "StaticPodStatuses.kubernetes.talos.dev",
        "k8s",
        &["podstatus"],
        &[("Ready", "{.conditions[?(@.type==\"Ready\")].status}")],
    ),
    plain(
        "SiderolinkStatuses.siderolink.talos.dev",
        "config",
        &[],
        &[("Host", "{.host}"), ("Connected", "{.connected}")],
    ),
];

/// Finds a kind by its full name.
pub fn find(kind: &str) -> Option<&'static Definition> {
    // Talos looks definitions up by the name in lower case.
    ALL.iter().find(|definition| definition.kind.eq_ignore_ascii_case(kind))
}

impl Definition {
    /// Returns the id of the resource that describes the kind.
    pub fn id(&self) -> String {
        self.kind.to_lowercase()
    }

    fn spec(&self) -> ResourceDefinitionSpec {
        let (name, suffix) = self.kind.split_once('.').unwrap_or((self.kind, ""));
        let display = singular(name);
        let mut aliases: Vec<String> = self.aliases.iter().map(|alias| (*alias).to_owned()).collect();
        let mut all = Vec::new();
        // Mounts are the one kind that has no automatic names.
        if name != "MountStatuses" {
            aliases.push(display.to_lowercase());
            all.push(name.to_lowercase());
            let elements: Vec<&str> = suffix.split('.').collect();
            all.extend(
                (1..elements.len())
                    .map(|count| format!("{}.{}", name.to_lowercase(), elements[..count].join("."))),
            );
            let capitals: String = name.chars().filter(char::is_ascii_uppercase).collect();
            if capitals.len() > 1 {
                aliases.push(capitals.to_lowercase());
                if !capitals.ends_with('S') {
                    aliases.push(format!("{}s", capitals.to_lowercase()));
                }
            }
        }
        all.extend(aliases.iter().cloned());
        let columns = self
            .columns
            .iter()
            .map(|(title, path)| PrintColumn { name: (*title).to_owned(), json_path: (*path).to_owned() });
        ResourceDefinitionSpec {
            resource_type: self.kind.to_owned(),
            display_type: display,
            default_namespace: self.namespace.to_owned(),
            aliases,
            all_aliases: all,
            print_columns: columns.collect(),
            sensitivity: i32::from(self.sensitive),
        }
    }

    /// Returns the resource that describes the kind, as YAML and as protobuf.
    pub fn describe(&self) -> (String, Vec<u8>) {
        let spec = self.spec();
        let list = |items: &[String]| {
            items.iter().map(|item| format!("    - {}\n", quoted(item))).collect::<String>()
        };
        let columns: String = spec
            .print_columns
            .iter()
            .map(|column| {
                format!(
                    "    - name: {}\n      jsonPath: {}\n",
                    quoted(&column.name),
                    quoted(&column.json_path)
                )
            })
            .collect();
        let columns = if columns.is_empty() { " []\n".to_owned() } else { format!("\n{columns}") };
        let sensitivity = if self.sensitive { "sensitivity: sensitive\n" } else { "" };
        let yaml = format!(
            "type: {}\ndisplayType: {}\ndefaultNamespace: {}\naliases:\n{}allAliases:\n{}printColumns:{columns}{sensitivity}",
            spec.resource_type,
            spec.display_type,
            spec.default_namespace,
            list(&spec.aliases),
            list(&spec.all_aliases),
        );
        (yaml, spec.encode_to_vec())
    }
}

/// Returns the singular of a kind's name.
fn singular(name: &str) -> String {
    if let Some(stem) = name.strip_suffix("uses") {
        return format!("{stem}us");
    }
    if let Some(stem) = name.strip_suffix("esses") {
        return format!("{stem}ess");
    }
    if let Some(stem) = name.strip_suffix("ies") {
        return format!("{stem}y");
    }
    name.strip_suffix('s').unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_the_full_one() {
        let spec = find("machinestatuses.runtime.talos.dev").expect("known").spec();
        assert_eq!(spec.display_type, "MachineStatus");
        let names = [
            "machinestatuses",
            "machinestatuses.runtime",
            "machinestatuses.runtime.talos",
            "machinestatus",
            "ms",
        ];
        assert_eq!(spec.all_aliases, names);
        assert_eq!(find("NodeAddresses.net.talos.dev").expect("known").spec().display_type, "NodeAddress");
        assert_eq!(find("MountStatuses.runtime.talos.dev").expect("known").spec().all_aliases, ["mounts"]);
        assert_eq!(find("Disks.block.talos.dev").expect("known").spec().display_type, "Disk");
    }
}
