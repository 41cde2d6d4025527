//! Validation: one table for each family of rules, in Talos' words.

use ichor_machineconfig::{
    Config, Patch, apply,
    validate::{Mode, validate},
};
use ichor_model::{Findings, Minor, Severity, SourceId};

const CONTROL_PLANE: &str = "
machine:
  type: controlplane
  token: t
  ca: {crt: YQ==, key: YQ==}
  install: {disk: /dev/sda}
cluster:
  controlPlane: {endpoint: 'https://10.0.0.10:6443'}
  clusterName: c
  secretboxEncryptionSecret: s
  ca: {crt: YQ==, key: YQ==}
  etcd: {ca: {crt: YQ==, key: YQ==}}
";

const WORKER: &str = "
machine:
  type: worker
  token: t
  ca: {crt: YQ==}
  install: {disk: /dev/sda}
cluster:
  controlPlane: {endpoint: 'https://10.0.0.10:6443'}
  ca: {crt: YQ==}
";

const ALL: [u64; 7] = [8, 9, 10, 11, 12, 13, 14];

/// What a release objects to, be it when the patch is applied or when the result is validated.
fn judge(base: &str, patch: &str, minor: u64, mode: Mode) -> Findings {
    let config = Config::parse(SourceId(0), base.as_bytes()).unwrap_or_else(|f| panic!("{f:#?}"));
    let patch =
        Patch::parse("test", SourceId(1), patch.as_bytes()).unwrap_or_else(|f| panic!("{patch}\n{f:#?}"));
    match apply(&config, &[patch], Minor::new(1, minor)) {
        Ok(config) => validate(&config, Minor::new(1, minor), mode),
        Err(findings) => findings,
    }
}

fn refused(base: &str, patch: &str, words: &str, minors: &[u64]) {
    for minor in minors {
        let findings = judge(base, patch, *minor, Mode::Metal);
        let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
        let found: Vec<_> = errors.map(|finding| &finding.message).collect();
        assert!(
            found.iter().any(|message| message.contains(words)),
            "1.{minor}: {patch}\nwanted {words}\ngot {found:#?}"
        );
        assert!(
            findings.iter().all(|finding| finding.remedy.is_some() && finding.at.is_some()),
            "{findings:#?}"
        );
    }
}

fn accepted(base: &str, patch: &str, minors: &[u64]) {
    for minor in minors {
        let findings = judge(base, patch, *minor, Mode::Metal);
        assert!(!findings.has_errors(), "1.{minor}: {patch}\n{findings:#?}");
    }
}

fn document(kind: &str, rest: &str) -> String {
    format!("apiVersion: v1alpha1\nkind: {kind}\n{rest}\n")
}

#[test]
fn good_configs_pass() {
    accepted(CONTROL_PLANE, "", &ALL);
    accepted(WORKER, "", &ALL);
    let network = include_str!("golden/network.yaml");
    let findings = judge(CONTROL_PLANE, network, 13, Mode::Metal);
    // The key of the golden file is too short on purpose, and its cluster has no discovery.
    let errors: Vec<_> =
        findings.iter().filter(|f| f.severity == Severity::Error).map(|f| f.message.as_str()).collect();
    assert!(errors.iter().all(|message| message.contains("wireguard")), "{errors:#?}");
}

#[test]
fn the_empty_config_is_refused() {
    let findings = validate(&Config::default(), Minor::new(1, 13), Mode::Cloud);
    assert!(findings.has_errors());
}

#[test]
fn machine_rules() {
    for (patch, words) in [
        ("persist: false", ".persist should be enabled"),
        ("machine: {type: king}", "unknown machine type \"king\""),
        ("machine: {kubelet: {nodeIP: {validSubnets: [lab]}}}", "kubelet nodeIP subnet is not valid"),
        (
            "machine: {kubelet: {extraConfig: {port: 1}}}",
            "kubelet configuration field \"port\" can't be overridden",
        ),
        (
            "machine: {kubelet: {image: 'x:v1.20.0'}}",
            "version of Kubernetes v1.20.0 is too old to be used with Talos 1.",
        ),
        (
            "machine: {kubelet: {image: 'x:v1.99.0'}}",
            "version of Kubernetes v1.99.0 is too new to be used with Talos 1.",
        ),
        ("machine: {kubelet: {image: 'x:latest'}}", "invalid image reference"),
        ("machine: {nodeLabels: {'a b': c}}", "invalid machine node labels"),
        ("machine: {nodeTaints: {a: never}}", "invalid machine node taints"),
        (
            "machine: {disks: [{device: a, partitions: [{mountpoint: /a}, {size: 1GB}]}]}",
            "not the last partition in the list",
        ),
        (
            "machine: {logging: {destinations: [{endpoint: 'http://a', format: json_lines}]}}",
            "logging endpoint",
        ),
        ("machine: {systemDiskEncryption: {state: {provider: luks2}}}", "no encryption keys provided"),
        (
            "machine: {systemDiskEncryption: {state: {provider: luks2, keys: [{slot: 0}]}}}",
            "at least one encryption key type",
        ),
        ("machine: {network: {interfaces: [{mtu: 1}]}}", "interface or deviceSelector"),
        (
            "machine: {network: {interfaces: [{interface: a, addresses: [lab]}]}}",
            "failed to parse IP address \"lab\"",
        ),
        (
            "machine: {network: {interfaces: [{interface: a, routes: [{metric: 1}]}]}}",
            "either network or gateway should be set",
        ),
        (
            "machine: {network: {interfaces: [{interface: b, bond: {interfaces: [a], mode: fast}}]}}",
            "invalid bond mode \"fast\"",
        ),
        (
            "machine: {network: {interfaces: [{interface: b, bond: {interfaces: [a], mode: 802.3ad}}, {interface: a, dhcp: true}]}}",
            "bonded/bridged interface shouldn't have any addressing methods configured",
        ),
    ] {
        refused(CONTROL_PLANE, patch, words, &ALL);
    }
}

#[test]
fn workers_hold_no_secrets_of_control_planes() {
    for (patch, words) in [
        (
            "cluster: {etcd: {ca: {crt: YQ==, key: YQ==}}}",
            "etcd config is only allowed on control plane machines",
        ),
        ("cluster: {ca: {crt: YQ==, key: YQ==}}", "cluster CA key is not allowed on non-controlplane nodes"),
        (
            "machine: {ca: {crt: YQ==, key: YQ==}}",
            "issuing Talos API CA key is not allowed on non-controlplane nodes",
        ),
        (
            "machine: {network: {interfaces: [{interface: a, vip: {ip: 10.0.0.1}}]}}",
            "virtual (shared) IP is not allowed",
        ),
        (
            "machine: {features: {rbac: true, kubernetesTalosAPIAccess: {enabled: true, allowedRoles: [os:reader]}}}",
            "can only be enabled on control plane machines",
        ),
    ] {
        refused(WORKER, patch, words, &ALL);
    }
    refused(
        WORKER,
        &document("KubeCoreDNSConfig", "enabled: true"),
        "only allowed on control plane machines",
        &[14],
    );
    let vip = judge(WORKER, &document("Layer2VIPConfig", "name: 10.0.0.10\nlink: a"), 13, Mode::Cloud);
    assert_eq!((vip.count(Severity::Error), vip.count(Severity::Warning)), (0, 1));
    refused(
        CONTROL_PLANE,
        "machine: {ca: {crt: YQ==}}",
        "issuing CA key is required for controlplane nodes",
        &ALL,
    );
}

#[test]
fn metal_machines_need_a_disk() {
    let bare = CONTROL_PLANE.replace("  install: {disk: /dev/sda}\n", "");
    refused(&bare, "", "install instructions are required in \"metal\" mode", &[8, 13]);
    assert_eq!(judge(&bare, "", 14, Mode::Metal).count(Severity::Warning), 1);
    refused(
        &bare,
        "machine: {install: {wipe: true}}",
        "either install disk or diskSelector should be defined",
        &ALL,
    );
    for minor in ALL {
        assert!(!judge(&bare, "machine: {install: {wipe: true}}", minor, Mode::Cloud).has_errors());
    }
    refused(
        CONTROL_PLANE,
        "machine: {install: {diskSelector: {type: tape}}}",
        "unsupported disk type \"tape\"",
        &ALL,
    );
    let both = "machine: {install: {grubUseUKICmdline: true, extraKernelArgs: [a]}}";
    refused(
        CONTROL_PLANE,
        both,
        "install.extraKernelArgs and install.grubUseUKICmdline can't be used together",
        &[12, 13],
    );
}

#[test]
fn cluster_rules() {
    for (patch, words) in [
        ("cluster: {network: {dnsDomain: '-'}}", "is not a valid DNS name"),
        ("cluster: {network: {cni: {name: calico}}}", "cni name \"calico\" should be one of"),
        (
            "cluster: {network: {cni: {name: none, urls: ['https://a']}}}",
            "\"urls\" field should be empty for \"none\" CNI",
        ),
        (
            "cluster: {externalCloudProvider: {manifests: ['https://a']}}",
            "external cloud provider is disabled",
        ),
        ("cluster: {inlineManifests: [{name: a}, {name: a}]}", "inline manifest name \"a\" is duplicate"),
        ("cluster: {discovery: {enabled: true}}", "cluster discovery service requires .cluster.id"),
        ("cluster: {etcd: {advertisedSubnets: [lab]}}", "etcd advertised subnet is not valid"),
        ("cluster: {apiServer: {resources: {limits: {gpu: 1}}}}", "unsupported pod resource \"gpu\""),
        (
            "cluster: {controlPlane: {endpoint: {$patch: delete}}}",
            "cluster controlplane endpoint is required",
        ),
    ] {
        refused(CONTROL_PLANE, patch, words, &ALL);
    }
    let kubespan = "machine: {network: {kubespan: {enabled: true}}}";
    refused(
        CONTROL_PLANE,
        kubespan,
        ".cluster.discovery should be enabled when .machine.network.kubespan",
        &[8, 13],
    );
}

#[test]
fn releases_know_only_what_they_know() {
    refused(CONTROL_PLANE, "machine: {baseRuntimeSpecOverrides: {a: 1}}", "exists since Talos 1.9", &[8]);
    refused(
        CONTROL_PLANE,
        "machine: {install: {grubUseUKICmdline: true}}",
        "exists since Talos 1.12",
        &[8, 11],
    );
    refused(
        CONTROL_PLANE,
        "cluster: {apiServer: {extraArgs: {a: [b]}}}",
        "a list of arguments since 1.13",
        &[8, 12],
    );
    refused(CONTROL_PLANE, &document("HostnameConfig", "auto: stable"), "exist since Talos 1.12", &[8, 11]);
    let volume =
        |size: &str| document("VolumeConfig", &format!("name: EPHEMERAL\nprovisioning: {{maxSize: {size}}}"));
    refused(CONTROL_PLANE, &volume("50%"), "a size of this form since 1.12", &[11]);
    accepted(CONTROL_PLANE, &volume("50%"), &[12, 13, 14]);
    let (config, _) = Config::read(SourceId(0), format!("{CONTROL_PLANE}  nonsense: 1\n").as_bytes());
    let findings = validate(&config, Minor::new(1, 13), Mode::Metal);
    assert!(
        findings
            .iter()
            .any(|f| f.notes.iter().any(|note| note.contains("unknown keys found during decoding")))
    );
}

#[test]
fn deprecated_fields_exclude_their_documents() {
    for (patch, kind, rest, words, minors) in [
        (
            "machine: {network: {hostname: a}}",
            "HostnameConfig",
            "auto: stable",
            "static hostname is already set in v1alpha1 config",
            &[12, 13, 14][..],
        ),
        (
            "machine: {features: {stableHostname: true}}",
            "HostnameConfig",
            "auto: stable",
            "stable hostname is already set in v1alpha1 config",
            &[12, 13, 14],
        ),
        (
            "machine: {network: {nameservers: [1.1.1.1]}}",
            "ResolverConfig",
            "nameservers: [{address: 1.1.1.1}]",
            ".machine.network.nameservers is already set",
            &[12, 13, 14],
        ),
        (
            "machine: {time: {servers: [a]}}",
            "TimeSyncConfig",
            "enabled: true",
            "time servers cannot be specified in both",
            &[12, 13, 14],
        ),
        (
            "machine: {network: {kubespan: {enabled: false}}}",
            "KubeSpanConfig",
            "enabled: false",
            "kubespan is already configured",
            &[13],
        ),
        (
            "machine: {install: {disk: a}}",
            "UnattendedInstallConfig",
            "provisioning: {diskSelector: {match: 'true'}}",
            "UnattendedInstallConfig config is incompatible with v1alpha1 config (.machine.install)",
            &[14],
        ),
        (
            "machine: {nodeLabels: {a: b}}",
            "KubeNodeConfig",
            "labels: {a: b}",
            ".machine.nodeLabels is already set in v1alpha1 config",
            &[14],
        ),
        (
            "machine: {systemDiskEncryption: {state: {provider: luks2, keys: [{nodeID: {}, slot: 0}]}}}",
            "VolumeConfig",
            "name: STATE\nencryption: {provider: luks2, keys: [{nodeID: {}, slot: 0}]}",
            "system disk encryption for \"STATE\" is configured in both",
            &[11, 12, 13, 14],
        ),
    ] {
        refused(CONTROL_PLANE, &format!("{patch}\n---\n{}", document(kind, rest)), words, minors);
    }
}

#[test]
fn hostname_rules() {
    let hostname = |rest: &str| document("HostnameConfig", rest);
    accepted(CONTROL_PLANE, &hostname("auto: off\nhostname: cp-1"), &[12, 13, 14]);
    accepted(CONTROL_PLANE, &hostname("auto: stable"), &[12, 13, 14]);
    accepted(CONTROL_PLANE, &hostname("auto: off"), &[13, 14]);
    for (rest, words, minors) in [
        (
            "auto: stable\nhostname: cp-1",
            "'auto' and 'hostname' cannot be set at the same time",
            &[12, 13, 14][..],
        ),
        ("auto: off", "either 'auto' or 'hostname' must be set", &[12]),
        ("{}", "either 'auto' or 'hostname' must be set", &[12, 13, 14]),
        ("auto: talos-addr", "invalid value for 'auto'", &[12, 13, 14]),
        ("auto: off\nhostname: .a", "invalid hostname", &[12, 13, 14]),
    ] {
        let rest = if rest == "{}" { "" } else { rest };
        refused(CONTROL_PLANE, &hostname(rest), words, minors);
    }
}

#[test]
fn document_rules() {
    for (kind, rest, words) in [
        ("LinkConfig", "name: ''", "name must be specified"),
        ("LinkConfig", "name: a\naddresses: [{}]", "address 0 must be a valid IP prefix"),
        ("LinkConfig", "name: a\nroutes: [{destination: 0.0.0.0/0}]", "route 0 destination"),
        ("LinkAliasConfig", "name: a", "link selector is required"),
        ("LinkAliasConfig", "name: a%s\nselector: {match: 'true'}", "invalid format verb"),
        ("VLANConfig", "name: a\nparent: b\nvlanID: 5000", "between 1 and 4094"),
        ("BondConfig", "name: a\nlinks: [b]", "bond mode must be specified"),
        ("WireguardConfig", "name: a\nprivateKey: short", "privateKey must be specified and valid"),
        ("DHCPv4Config", "name: a\nclientIdentifier: duid", "duidRaw must be set"),
        ("Layer2VIPConfig", "name: lab\nlink: a", "name must be a valid IP address"),
        ("StaticHostConfig", "name: 10.0.0.1", "at least one hostname is required"),
        ("TimeSyncConfig", "ntp: {}\nptp: {}", "only one of ntp or ptp"),
        (
            "NetworkRuleConfig",
            "name: a\nportSelector: {ports: [1-5, 3], protocol: tcp}",
            "invalid port range",
        ),
        ("VolumeConfig", "name: MINE", "volumes are supported"),
        (
            "VolumeConfig",
            "name: EPHEMERAL\nprovisioning: {minSize: 2GB, maxSize: 1GB}",
            "min size is greater than max size",
        ),
        ("VolumeConfig", "name: STATE\nprovisioning: {minSize: 2GB}", "provisioning config is not allowed"),
        ("UserVolumeConfig", "name: a\nprovisioning: {minSize: 1GB}", "disk selector is required"),
        (
            "UserVolumeConfig",
            "name: a b\nprovisioning: {diskSelector: {match: 'true'}, minSize: 1GB}",
            "name can only contain",
        ),
        (
            "UserVolumeConfig",
            "name: a\nvolumeType: directory\nprovisioning: {minSize: 1GB}",
            "invalid for volumeType directory",
        ),
        (
            "UserVolumeConfig",
            "name: a\nprovisioning: {diskSelector: {match: 'true'}, minSize: 1GB}\nfilesystem: {type: vfat}",
            "unsupported filesystem type: vfat",
        ),
        (
            "RawVolumeConfig",
            "name: a\nprovisioning: {diskSelector: {match: 'true'}}",
            "min size or max size is required",
        ),
        ("ZswapConfig", "maxPoolPercent: 101", "maxPoolPercent must be between 0 and 100"),
        ("ExtensionServiceConfig", "name: a", "no config files found for extension"),
        ("KmsgLogConfig", "name: a\nurl: http://a", "url scheme must be tcp:// or udp://"),
        ("EventSinkConfig", "endpoint: a", "event sink endpoint"),
        ("WatchdogTimerConfig", "device: a\ntimeout: 1s", "watchdog timeout: minimum value is 10s"),
        ("RegistryMirrorConfig", "name: a\nendpoints: [{url: 'ftp://a'}]", "unsupported scheme"),
        ("RegistryAuthConfig", "name: a\nusername: b\nauth: c", "only one of auth"),
        ("EnvironmentConfig", "variables: {1a: b}", "invalid environment variable name"),
    ] {
        let minor = if kind == "UserVolumeConfig" { 12 } else { 13 };
        refused(CONTROL_PLANE, &document(kind, rest), words, &[minor]);
    }
    for (kind, rest, words) in [
        ("KubeletConfig", "config: {}", "kubelet image cannot be empty"),
        (
            "KubeAPIServerConfig",
            "image: x:v1.36.0\nextraArgs: {oidc-issuer-url: a}",
            "use KubeAuthenticationConfig",
        ),
        (
            "KubeNetworkConfig",
            "podSubnets: [10.244.0.1/16]\nserviceSubnets: [10.96.0.0/12]",
            "is not a valid CIDR",
        ),
        (
            "KubeNetworkConfig",
            "podSubnets: [10.244.0.0/16, 10.245.0.0/16]\nserviceSubnets: [10.96.0.0/12]",
            "one of each family",
        ),
        ("KubePrismConfig", "port: 0", "must be in range 1-65535"),
        ("KubeAuthorizerConfig", "name: a\ntype: Magic", "authorizer type Magic is not allowed"),
        ("KubeInlineManifestConfig", "name: A_b\nmanifest: x", "manifest name is invalid"),
        ("KubeAPIServerCAConfig", "acceptedCAs: [YQ==]", "no PEM blocks"),
        ("DiscoveryIdentityConfig", "clusterID: a\nclusterSecret: b", "invalid clusterSecret"),
        ("DiscoveryServiceConfig", "name: a\nendpoint: ftp://a", "endpoint scheme must be"),
        ("ContainerConfig", "name: A\nimage: x", "name can only contain lowercase ASCII letters"),
        (
            "ContainerConfig",
            "name: a\nimage: x\nmounts: [{}]",
            "exactly one of userVolume, tmpfs or hostPath",
        ),
        ("ContainerConfig", "name: a\nimage: x\ndependsOn: {containers: [b]}", "which is not configured"),
        ("EtcFileConfig", "name: hosts\nmode: 0o644\ncontents: a", "is managed by Talos"),
        (
            "VethConfig",
            "name: a\npeer: {name: a-name-that-is-too-long}",
            "peer name must be specified, with at most 15 bytes",
        ),
    ] {
        refused(CONTROL_PLANE, &document(kind, rest), words, &[14]);
    }
}

#[test]
fn links_of_the_same_name_exclude_each_other() {
    let config = format!(
        "{CONTROL_PLANE}---\n{}---\n{}",
        document("LinkConfig", "name: a"),
        document("BridgeConfig", "name: a")
    );
    let config = Config::parse(SourceId(0), config.as_bytes()).unwrap_or_else(|f| panic!("{f:#?}"));
    let findings = validate(&config, Minor::new(1, 13), Mode::Metal);
    let words = "conflicting documents: LinkConfig/a and BridgeConfig/a";
    assert!(findings.iter().any(|finding| finding.message == words), "{findings:#?}");
}

#[test]
fn everything_wrong_is_said_at_once() {
    let patch = "persist: false\nmachine: {type: king, nodeTaints: {a: b}}\ncluster: {network: {cni: {name: x}, dnsDomain: '-'}}";
    assert!(judge(CONTROL_PLANE, patch, 13, Mode::Metal).count(Severity::Error) >= 4);
}
