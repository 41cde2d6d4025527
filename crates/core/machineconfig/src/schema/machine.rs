//! The legacy document: its root and `machine`.

use super::cluster::CLUSTER;
use super::{
    ARGS, BOOL, FREE, INT, Keyed, Merge, Struct, TEXT, TEXT_MAP, TEXTS, Type, Type::Struct as Obj, U8, U16,
    U32, U64, field, fields, list, map_of, must, opt,
};

/// The legacy document.
pub const ROOT: Struct = fields(&[
    must("version", TEXT),
    opt("debug", BOOL),
    opt("persist", BOOL),
    opt("machine", Obj(&MACHINE)).always(),
    opt("cluster", Obj(&CLUSTER)).always(),
]);

/// A certificate and its key.
pub const CERT_AND_KEY: Struct = fields(&[must("crt", Type::Base64), must("key", Type::Base64).secret()]);

/// A certificate alone.
pub const CERT: Struct = fields(&[must("crt", Type::Base64)]);

/// A key alone.
pub const KEY: Struct = fields(&[must("key", Type::Base64).secret()]);

const MACHINE_CONTROLLER_MANAGER_CONFIG: Struct = fields(&[opt("disabled", BOOL)]);

const MACHINE_SCHEDULER_CONFIG: Struct = fields(&[opt("disabled", BOOL)]);

const MACHINE_CONTROL_PLANE_CONFIG: Struct = fields(&[
    opt("controllerManager", Obj(&MACHINE_CONTROLLER_MANAGER_CONFIG)),
    opt("scheduler", Obj(&MACHINE_SCHEDULER_CONFIG)),
]);

const LINUX_ID_MAPPING: Struct = fields(&[must("containerID", U32), must("hostID", U32), must("size", U32)]);

const EXTRA_MOUNT: Struct = fields(&[
    must("destination", TEXT),
    field("type", TEXT),
    field("source", TEXT),
    field("options", TEXTS),
    field("uidMappings", list(&Obj(&LINUX_ID_MAPPING))),
    field("gidMappings", list(&Obj(&LINUX_ID_MAPPING))),
]);

const KUBELET_NODE_IP_CONFIG: Struct = fields(&[field("validSubnets", TEXTS)]);

const KUBELET_CONFIG: Struct = fields(&[
    field("image", TEXT),
    field("clusterDNS", TEXTS),
    field("extraArgs", ARGS),
    field("extraMounts", list(&Obj(&EXTRA_MOUNT))),
    field("extraConfig", FREE),
    field("credentialProviderConfig", FREE).old(14, "KubeCredentialProviderConfig"),
    opt("defaultRuntimeSeccompProfileEnabled", BOOL),
    opt("registerWithFQDN", BOOL).old(14, "KubeNodeConfig"),
    opt("nodeIP", Obj(&KUBELET_NODE_IP_CONFIG)).old(14, "KubeNodeConfig"),
    opt("skipNodeRegistration", BOOL).old(14, "KubeNodeConfig"),
    opt("disableManifestsDirectory", BOOL),
]);

const NETWORK_DEVICE_SELECTOR: Struct = fields(&[
    field("busPath", TEXT),
    field("hardwareAddr", TEXT),
    field("permanentAddr", TEXT).since(9),
    field("pciID", TEXT),
    field("driver", TEXT),
    opt("physical", BOOL),
]);

const ROUTE: Struct = fields(&[
    must("network", TEXT),
    must("gateway", TEXT),
    field("source", TEXT),
    field("metric", U32),
    field("mtu", U32),
]);

const BOND: Struct = fields(&[
    must("interfaces", TEXTS),
    field("deviceSelectors", list(&Obj(&NETWORK_DEVICE_SELECTOR))),
    field("arpIPTarget", TEXTS),
    must("mode", TEXT),
    field("xmitHashPolicy", TEXT),
    field("lacpRate", TEXT),
    field("adActorSystem", TEXT),
    field("arpValidate", TEXT),
    field("arpAllTargets", TEXT),
    field("primary", TEXT),
    field("primaryReselect", TEXT),
    field("failOverMac", TEXT),
    field("adSelect", TEXT),
    field("miimon", U32),
    field("updelay", U32),
    field("downdelay", U32),
    field("arpInterval", U32),
    field("resendIgmp", U32),
    field("minLinks", U32),
    field("lpInterval", U32),
    field("packetsPerSlave", U32),
    field("numPeerNotif", U8),
    field("tlbDynamicLb", U8),
    field("allSlavesActive", U8),
    opt("useCarrier", BOOL),
    field("adActorSysPrio", U16),
    field("adUserPortKey", U16),
    field("peerNotifyDelay", U32),
]);

const STP: Struct = fields(&[opt("enabled", BOOL)]);

const BRIDGE_VLAN: Struct = fields(&[opt("vlanFiltering", BOOL)]);

const BRIDGE: Struct =
    fields(&[must("interfaces", TEXTS), opt("stp", Obj(&STP)), opt("vlan", Obj(&BRIDGE_VLAN))]);

const BRIDGE_PORT: Struct = fields(&[field("master", TEXT)]);

const VIP_EQUINIX_METAL_CONFIG: Struct = fields(&[must("apiToken", TEXT).secret()]);

const VIP_HCLOUD_CONFIG: Struct = fields(&[must("apiToken", TEXT).secret()]);

const DEVICE_VIP_CONFIG: Struct = fields(&[
    field("ip", TEXT),
    opt("equinixMetal", Obj(&VIP_EQUINIX_METAL_CONFIG)),
    opt("hcloud", Obj(&VIP_HCLOUD_CONFIG)),
]);

const DHCP_OPTIONS: Struct =
    fields(&[must("routeMetric", U32), opt("ipv4", BOOL), opt("ipv6", BOOL), field("duidv6", TEXT)]);

const VLAN: Struct = fields(&[
    field("addresses", TEXTS),
    field("cidr", TEXT).old(8, "`addresses`"),
    must("routes", list(&Obj(&ROUTE))),
    opt("dhcp", BOOL),
    must("vlanId", U16),
    field("mtu", U32),
    opt("vip", Obj(&DEVICE_VIP_CONFIG)),
    opt("dhcpOptions", Obj(&DHCP_OPTIONS)),
]);

const DEVICE_WIREGUARD_PEER: Struct = fields(&[
    field("publicKey", TEXT),
    field("endpoint", TEXT),
    field("persistentKeepaliveInterval", Type::Duration),
    field("allowedIPs", TEXTS),
]);

const DEVICE_WIREGUARD_CONFIG: Struct = fields(&[
    field("privateKey", TEXT).secret(),
    field("listenPort", INT),
    field("firewallMark", INT),
    field("peers", list(&Obj(&DEVICE_WIREGUARD_PEER))),
]);

const DEVICE: Struct = fields(&[
    field("interface", TEXT),
    opt("deviceSelector", Obj(&NETWORK_DEVICE_SELECTOR)),
    field("addresses", TEXTS),
    field("cidr", TEXT).old(8, "`addresses`"),
    field("routes", list(&Obj(&ROUTE))),
    opt("bond", Obj(&BOND)),
    opt("bridge", Obj(&BRIDGE)),
    opt("bridgePort", Obj(&BRIDGE_PORT)).since(9),
    field("vlans", list(&Obj(&VLAN))).by("vlanId"),
    field("mtu", INT),
    opt("dhcp", BOOL),
    opt("ignore", BOOL),
    opt("dummy", BOOL),
    opt("dhcpOptions", Obj(&DHCP_OPTIONS)),
    opt("wireguard", Obj(&DEVICE_WIREGUARD_CONFIG)),
    opt("vip", Obj(&DEVICE_VIP_CONFIG)),
]);

const EXTRA_HOST: Struct = fields(&[must("ip", TEXT), must("aliases", TEXTS)]);

const KUBE_SPAN_FILTERS: Struct =
    fields(&[field("endpoints", TEXTS), field("excludeAdvertisedNetworks", TEXTS).since(12)]);

const NETWORK_KUBE_SPAN: Struct = fields(&[
    opt("enabled", BOOL),
    opt("advertiseKubernetesNetworks", BOOL),
    opt("allowDownPeerBypass", BOOL),
    opt("harvestExtraEndpoints", BOOL),
    opt("mtu", U32),
    opt("filters", Obj(&KUBE_SPAN_FILTERS)),
]);

const NETWORK_CONFIG: Struct = fields(&[
    field("hostname", TEXT).old(12, "HostnameConfig"),
    field("interfaces", list(&Obj(&DEVICE)))
        .merge(Merge::Keyed(Keyed::Interface))
        .old(12, "LinkConfig and the other network documents"),
    field("nameservers", TEXTS).old(12, "ResolverConfig"),
    field("searchDomains", TEXTS).since(9).old(12, "ResolverConfig"),
    field("extraHostEntries", list(&Obj(&EXTRA_HOST))).old(12, "StaticHostConfig"),
    opt("kubespan", Obj(&NETWORK_KUBE_SPAN)).old(13, "KubeSpanConfig"),
    opt("disableSearchDomain", BOOL).old(12, "ResolverConfig"),
]);

const DISK_PARTITION: Struct = fields(&[field("size", Type::DiskSize), field("mountpoint", TEXT)]);

const MACHINE_DISK: Struct =
    fields(&[field("device", TEXT), field("partitions", list(&Obj(&DISK_PARTITION)))]);

const INSTALL_DISK_SELECTOR: Struct = fields(&[
    opt("size", Type::SizeMatcher),
    field("name", TEXT),
    field("model", TEXT),
    field("serial", TEXT),
    field("modalias", TEXT),
    field("uuid", TEXT),
    field("wwid", TEXT),
    field("type", TEXT),
    field("busPath", TEXT),
]);

const INSTALL_EXTENSION_CONFIG: Struct = fields(&[must("image", TEXT)]);

const INSTALL_CONFIG: Struct = fields(&[
    field("disk", TEXT),
    opt("diskSelector", Obj(&INSTALL_DISK_SELECTOR)),
    field("extraKernelArgs", TEXTS).old(10, "kernel arguments in the image schematic"),
    field("image", TEXT),
    field("extensions", list(&Obj(&INSTALL_EXTENSION_CONFIG))).old(8, "extensions in the image schematic"),
    opt("bootloader", BOOL).old(8, "nothing: it never worked"),
    opt("wipe", BOOL).always(),
    opt("legacyBIOSSupport", BOOL),
    opt("grubUseUKICmdline", BOOL).since(12),
]);

const MACHINE_FILE: Struct =
    fields(&[must("content", TEXT), must("permissions", Type::Octal), must("path", TEXT), must("op", TEXT)]);

const TIME_CONFIG: Struct =
    fields(&[opt("disabled", BOOL), field("servers", TEXTS), field("bootTimeout", Type::Duration)]);

const REGISTRY_MIRROR_CONFIG: Struct =
    fields(&[must("endpoints", TEXTS), opt("overridePath", BOOL), opt("skipFallback", BOOL).since(9)]);

const REGISTRY_TLS_CONFIG: Struct = fields(&[
    opt("clientIdentity", Type::Pem(&CERT_AND_KEY)),
    field("ca", Type::Base64),
    opt("insecureSkipVerify", BOOL),
]);

const REGISTRY_AUTH_CONFIG: Struct = fields(&[
    field("username", TEXT),
    field("password", TEXT).secret(),
    field("auth", TEXT).secret(),
    field("identityToken", TEXT).secret(),
]);

const REGISTRY_CONFIG: Struct =
    fields(&[opt("tls", Obj(&REGISTRY_TLS_CONFIG)), opt("auth", Obj(&REGISTRY_AUTH_CONFIG))]);

const REGISTRIES_CONFIG: Struct = fields(&[
    field("mirrors", map_of(&Obj(&REGISTRY_MIRROR_CONFIG))),
    field("config", map_of(&Obj(&REGISTRY_CONFIG))),
]);

const ENCRYPTION_KEY_STATIC: Struct = fields(&[field("passphrase", TEXT).secret()]);

const ENCRYPTION_KEY_NODE_ID: Struct = fields(&[]);

const ENCRYPTION_KEY_KMS: Struct = fields(&[must("endpoint", TEXT)]);

const ENCRYPTION_KEY_TPM: Struct = fields(&[opt("checkSecurebootStatusOnEnroll", BOOL)]);

const ENCRYPTION_KEY: Struct = fields(&[
    opt("static", Obj(&ENCRYPTION_KEY_STATIC)),
    opt("nodeID", Obj(&ENCRYPTION_KEY_NODE_ID)),
    opt("kms", Obj(&ENCRYPTION_KEY_KMS)),
    must("slot", INT),
    opt("tpm", Obj(&ENCRYPTION_KEY_TPM)),
]);

const ENCRYPTION_CONFIG: Struct = fields(&[
    must("provider", TEXT),
    must("keys", list(&Obj(&ENCRYPTION_KEY))),
    field("cipher", TEXT),
    field("keySize", U64),
    field("blockSize", U64),
    field("options", TEXTS),
]);

const SYSTEM_DISK_ENCRYPTION_CONFIG: Struct =
    fields(&[opt("state", Obj(&ENCRYPTION_CONFIG)), opt("ephemeral", Obj(&ENCRYPTION_CONFIG))]);

const KUBERNETES_TALOS_API_ACCESS_CONFIG: Struct = fields(&[
    opt("enabled", BOOL),
    field("allowedRoles", TEXTS),
    field("allowedKubernetesNamespaces", TEXTS),
]);

const KUBE_PRISM: Struct = fields(&[opt("enabled", BOOL), field("port", INT)]);

const HOST_DNS_CONFIG: Struct =
    fields(&[opt("enabled", BOOL), opt("forwardKubeDNSToHost", BOOL), opt("resolveMemberNames", BOOL)]);

const IMAGE_CACHE_CONFIG: Struct = fields(&[opt("localEnabled", BOOL)]);

const FEATURES_CONFIG: Struct = fields(&[
    opt("rbac", BOOL),
    opt("stableHostname", BOOL).old(12, "HostnameConfig"),
    opt("kubernetesTalosAPIAccess", Obj(&KUBERNETES_TALOS_API_ACCESS_CONFIG))
        .old(14, "KubeTalosAPIAccessConfig"),
    opt("apidCheckExtKeyUsage", BOOL),
    opt("diskQuotaSupport", BOOL),
    opt("kubePrism", Obj(&KUBE_PRISM)).old(14, "KubePrismConfig"),
    opt("hostDNS", Obj(&HOST_DNS_CONFIG)).old(14, "ResolverConfig"),
    opt("imageCache", Obj(&IMAGE_CACHE_CONFIG)).since(9).old(14, "ImageCacheConfig"),
    field("nodeAddressSortAlgorithm", TEXT).since(9),
]);

const UDEV_CONFIG: Struct = fields(&[field("rules", TEXTS)]);

const LOGGING_DESTINATION: Struct =
    fields(&[opt("endpoint", Type::Url(true)).always(), must("format", TEXT), field("extraTags", TEXT_MAP)]);

const LOGGING_CONFIG: Struct = fields(&[must("destinations", list(&Obj(&LOGGING_DESTINATION)))]);

const KERNEL_MODULE_CONFIG: Struct = fields(&[must("name", TEXT), field("parameters", TEXTS)]);

const KERNEL_CONFIG: Struct = fields(&[field("modules", list(&Obj(&KERNEL_MODULE_CONFIG)))]);

const MACHINE_SECCOMP_PROFILE: Struct = fields(&[must("name", TEXT), must("value", FREE)]);

const MACHINE: Struct = fields(&[
    must("type", TEXT),
    must("token", TEXT).secret(),
    opt("ca", Type::Pem(&CERT_AND_KEY)),
    field("acceptedCAs", list(&Type::Pem(&CERT))),
    must("certSANs", TEXTS),
    opt("controlPlane", Obj(&MACHINE_CONTROL_PLANE_CONFIG))
        .old(14, "KubeControllerManagerConfig and KubeSchedulerConfig"),
    opt("kubelet", Obj(&KUBELET_CONFIG)).old(14, "KubeletConfig"),
    field("pods", list(&FREE)).old(14, "KubeStaticPodConfig"),
    opt("network", Obj(&NETWORK_CONFIG)),
    field("disks", list(&Obj(&MACHINE_DISK))).old(10, "UserVolumeConfig"),
    opt("install", Obj(&INSTALL_CONFIG)).old(14, "UnattendedInstallConfig"),
    field("files", list(&Obj(&MACHINE_FILE))).old(14, "EtcFileConfig or CRICustomizationConfig"),
    field("env", TEXT_MAP).old(13, "EnvironmentConfig"),
    opt("time", Obj(&TIME_CONFIG)).old(12, "TimeSyncConfig"),
    field("sysctls", TEXT_MAP).old(14, "SysctlConfig"),
    field("sysfs", TEXT_MAP).old(14, "SysfsConfig"),
    field("registries", Obj(&REGISTRIES_CONFIG))
        .old(12, "RegistryMirrorConfig, RegistryTLSConfig and RegistryAuthConfig"),
    opt("systemDiskEncryption", Obj(&SYSTEM_DISK_ENCRYPTION_CONFIG)).old(11, "VolumeConfig"),
    opt("features", Obj(&FEATURES_CONFIG)),
    opt("udev", Obj(&UDEV_CONFIG)).old(14, "UdevRulesConfig"),
    opt("logging", Obj(&LOGGING_CONFIG)),
    opt("kernel", Obj(&KERNEL_CONFIG)).old(14, "KernelModuleConfig"),
    field("seccompProfiles", list(&Obj(&MACHINE_SECCOMP_PROFILE))),
    field("baseRuntimeSpecOverrides", FREE).since(9).old(14, "CRIBaseRuntimeSpecConfig"),
    field("nodeLabels", TEXT_MAP).old(14, "KubeNodeConfig"),
    field("nodeAnnotations", TEXT_MAP).old(14, "KubeNodeConfig"),
    field("nodeTaints", TEXT_MAP).old(14, "KubeNodeConfig"),
]);
