//! Everything else: registries, runtime, security, discovery, extensions.

use super::{
    BOOL, FREE, I32, Keyed, Kind, Merge, Struct, TEXT, TEXT_MAP, TEXTS, Type, Type::Struct as Obj, URL,
    field, fields, list, must, opt,
};

/// The kinds of this file.
pub const KINDS: &[Kind] = &[
    Kind::new("DiscoveryIdentityConfig", 14, DISCOVERY_IDENTITY_CONFIG),
    Kind::named("DiscoveryServiceConfig", 14, DISCOVERY_SERVICE_CONFIG),
    Kind::named("ContainerConfig", 14, CONTAINER_CONFIG),
    Kind::new("CRIBaseRuntimeSpecConfig", 14, CRI_BASE_RUNTIME_SPEC_CONFIG),
    Kind::named("CRICustomizationConfig", 14, CRI_CUSTOMIZATION_CONFIG),
    Kind::new("ImageCacheConfig", 14, IMAGE_CACHE_CONFIG),
    Kind::named("RegistryAuthConfig", 12, REGISTRY_AUTH_CONFIG),
    Kind::named("RegistryMirrorConfig", 12, REGISTRY_MIRROR_CONFIG),
    Kind::named("RegistryTLSConfig", 12, REGISTRY_TLS_CONFIG),
    Kind::named("ExtensionServiceConfig", 8, SERVICE_CONFIG),
    Kind::named("PCIDriverRebindConfig", 10, PCI_DRIVER_REBIND_CONFIG),
    Kind::new("EnvironmentConfig", 13, ENVIRONMENT),
    Kind::named("EtcFileConfig", 14, ETC_FILE_CONFIG),
    Kind::new("EventSinkConfig", 8, EVENT_SINK),
    Kind::named("KernelModuleConfig", 14, KERNEL_MODULE_CONFIG),
    Kind::named("KmsgLogConfig", 8, KMSG_LOG),
    Kind::new("OOMConfig", 12, OOM),
    Kind::new("SecurityProfileConfig", 14, SECURITY_PROFILE_CONFIG),
    Kind::new("SysctlConfig", 14, SYSCTL_CONFIG),
    Kind::new("SysfsConfig", 14, SYSFS_CONFIG),
    Kind::new("UdevRulesConfig", 14, UDEV_RULES_CONFIG),
    Kind::new("UnattendedInstallConfig", 14, UNATTENDED_INSTALL_CONFIG),
    Kind::new("WatchdogTimerConfig", 8, WATCHDOG_TIMER),
    Kind::new("ImageVerificationConfig", 13, IMAGE_VERIFICATION_CONFIG),
    Kind::named("TrustedRootsConfig", 8, TRUSTED_ROOTS_CONFIG),
    Kind::new("SideroLinkConfig", 8, CONFIG),
];

/// A certificate and its key as plain PEM.
pub const CERTIFICATE_AND_KEY: Struct = fields(&[field("cert", TEXT), field("key", TEXT).secret()]);

const DISCOVERY_IDENTITY_CONFIG: Struct =
    fields(&[must("clusterID", TEXT), must("clusterSecret", TEXT).secret()]);

const DISCOVERY_SERVICE_CONFIG: Struct = fields(&[must("name", TEXT), must("endpoint", URL)]);

const CONTAINER_RUN_AS: Struct = fields(&[opt("uid", I32), opt("gid", I32)]);

const USER_VOLUME_MOUNT: Struct =
    fields(&[must("name", TEXT), must("destination", TEXT), field("options", TEXTS)]);

const TMPFS_MOUNT: Struct =
    fields(&[must("destination", TEXT), field("size", TEXT), field("options", TEXTS)]);

const HOST_PATH_MOUNT: Struct =
    fields(&[must("source", TEXT), must("destination", TEXT), field("options", TEXTS)]);

const CONTAINER_MOUNT: Struct = fields(&[
    opt("userVolume", Obj(&USER_VOLUME_MOUNT)),
    opt("tmpfs", Obj(&TMPFS_MOUNT)),
    opt("hostPath", Obj(&HOST_PATH_MOUNT)),
]);

const CONTAINER_CAPABILITIES: Struct = fields(&[field("add", TEXTS), field("drop", TEXTS)]);

const CONTAINER_SECURITY: Struct = fields(&[
    field("profile", TEXT),
    opt("capabilities", Obj(&CONTAINER_CAPABILITIES)),
    field("machinedAccess", BOOL),
]);

const CONTAINER_NETWORK: Struct = fields(&[field("mode", TEXT)]);

const CONTAINER_RESOURCE_LIMITS: Struct = fields(&[field("cpu", TEXT), field("memory", TEXT)]);

const CONTAINER_RESOURCES: Struct = fields(&[opt("limits", Obj(&CONTAINER_RESOURCE_LIMITS))]);

const CONTAINER_DEPENDS_ON: Struct =
    fields(&[field("paths", TEXTS), field("networks", TEXTS), opt("time", BOOL), field("containers", TEXTS)]);

const CONTAINER_CONFIG: Struct = fields(&[
    must("name", TEXT),
    must("image", TEXT),
    field("entrypoint", TEXTS),
    field("args", TEXTS),
    field("workingDir", TEXT),
    opt("runAs", Obj(&CONTAINER_RUN_AS)),
    field("environment", TEXTS),
    field("mounts", list(&Obj(&CONTAINER_MOUNT))),
    opt("security", Obj(&CONTAINER_SECURITY)),
    opt("network", Obj(&CONTAINER_NETWORK)),
    opt("resources", Obj(&CONTAINER_RESOURCES)),
    opt("dependsOn", Obj(&CONTAINER_DEPENDS_ON)),
]);

const CRI_BASE_RUNTIME_SPEC_CONFIG: Struct = fields(&[field("overrides", FREE).replace()]);

const CRI_CUSTOMIZATION_CONFIG: Struct = fields(&[must("name", TEXT), must("content", TEXT)]);

const LOCAL_IMAGE_CACHE_CONFIG: Struct = fields(&[opt("enabled", BOOL)]);

const IMAGE_CACHE_CONFIG: Struct = fields(&[must("local", Obj(&LOCAL_IMAGE_CACHE_CONFIG))]);

const REGISTRY_AUTH_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("username", TEXT),
    field("password", TEXT).secret(),
    field("auth", TEXT).secret(),
    field("identityToken", TEXT).secret(),
]);

const REGISTRY_ENDPOINT: Struct = fields(&[must("url", URL), opt("overridePath", BOOL)]);

const REGISTRY_MIRROR_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("endpoints", list(&Obj(&REGISTRY_ENDPOINT))),
    opt("skipFallback", BOOL),
]);

const REGISTRY_TLS_CONFIG: Struct = fields(&[
    must("name", TEXT),
    opt("clientIdentity", Obj(&CERTIFICATE_AND_KEY)),
    field("ca", TEXT),
    opt("insecureSkipVerify", BOOL),
]);

const CONFIG_FILE: Struct = fields(&[must("content", TEXT), must("mountPath", TEXT)]);

const SERVICE_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("configFiles", list(&Obj(&CONFIG_FILE))).by("mountPath"),
    field("environment", TEXTS),
]);

const PCI_DRIVER_REBIND_CONFIG: Struct = fields(&[must("name", TEXT), must("targetDriver", TEXT)]);

const ENVIRONMENT: Struct = fields(&[must("variables", TEXT_MAP)]);

const ETC_FILE_CONFIG: Struct =
    fields(&[must("name", TEXT), must("mode", Type::Octal), must("contents", TEXT)]);

const EVENT_SINK: Struct = fields(&[must("endpoint", TEXT)]);

const KERNEL_MODULE_CONFIG: Struct = fields(&[must("name", TEXT), field("parameters", TEXTS)]);

const KMSG_LOG: Struct = fields(&[must("name", TEXT), must("url", URL)]);

const OOM: Struct = fields(&[
    field("triggerExpression", Type::Expression),
    field("cgroupRankingExpression", Type::Expression),
    opt("strictCgroupClassOrdering", BOOL).since(13),
    field("sampleInterval", Type::Duration),
]);

const SECURITY_PROFILE_CONFIG: Struct = fields(&[opt("workloadIsolation", BOOL)]);

const SYSCTL_CONFIG: Struct = fields(&[must("params", TEXT_MAP)]);

const SYSFS_CONFIG: Struct = fields(&[must("params", TEXT_MAP)]);

const UDEV_RULES_CONFIG: Struct = fields(&[field("rules", TEXTS)]);

const INSTALLER_SPEC: Struct = fields(&[field("image", TEXT)]);

const DISK_SELECTOR_SPEC: Struct = fields(&[field("match", Type::Expression)]);

const PROVISIONING_SPEC: Struct =
    fields(&[field("diskSelector", Obj(&DISK_SELECTOR_SPEC)), opt("wipe", BOOL)]);

const UNATTENDED_INSTALL_CONFIG: Struct = fields(&[
    opt("reboot", BOOL),
    must("installer", Obj(&INSTALLER_SPEC)),
    must("provisioning", Obj(&PROVISIONING_SPEC)),
]);

const WATCHDOG_TIMER: Struct = fields(&[must("device", TEXT), field("timeout", Type::Duration)]);

const IMAGE_KEYLESS_VERIFIER: Struct =
    fields(&[field("issuer", TEXT), field("subject", TEXT), field("subjectRegex", TEXT)]);

const IMAGE_PUBLIC_KEY_VERIFIER: Struct = fields(&[field("certificate", TEXT)]);

const IMAGE_VERIFICATION_RULE: Struct = fields(&[
    field("image", TEXT),
    opt("skip", BOOL),
    opt("deny", BOOL),
    opt("keyless", Obj(&IMAGE_KEYLESS_VERIFIER)),
    opt("publicKey", Obj(&IMAGE_PUBLIC_KEY_VERIFIER)),
]);

const IMAGE_VERIFICATION_CONFIG: Struct =
    fields(&[field("rules", list(&Obj(&IMAGE_VERIFICATION_RULE))).merge(Merge::Keyed(Keyed::ImageReplace))]);

const TRUSTED_ROOTS_CONFIG: Struct = fields(&[must("name", TEXT), must("certificates", TEXT)]);

const CONFIG: Struct = fields(&[must("apiUrl", URL).secret(), field("uniqueToken", TEXT).since(10).secret()]);
