//! Kubernetes documents, all since Talos 1.14.

use super::system::CERTIFICATE_AND_KEY;
use super::{
    ARGS, BOOL, FREE, INT, Kind, Struct, TEXT, TEXT_MAP, TEXTS, Type, Type::Struct as Obj, U16, U32, URL,
    field, fields, list, must, opt,
};

/// The kinds of this file.
pub const KINDS: &[Kind] = &[
    Kind::new("KubeAPIServerCAConfig", 14, KUBE_API_SERVER_CA_CONFIG),
    Kind::new("KubeAPIServerConfig", 14, KUBE_API_SERVER_CONFIG).control_plane(),
    Kind::named("KubeAdmissionControlConfig", 14, KUBE_ADMISSION_CONTROL_CONFIG).control_plane(),
    Kind::new("KubeAggregatorCAConfig", 14, KUBE_AGGREGATOR_CA_CONFIG).control_plane(),
    Kind::new("KubeAuditPolicyConfig", 14, KUBE_AUDIT_POLICY_CONFIG).control_plane(),
    Kind::new("KubeAuthenticationConfig", 14, KUBE_AUTHENTICATION_CONFIG).control_plane(),
    Kind::named("KubeAuthorizerConfig", 14, KUBE_AUTHORIZER_CONFIG).control_plane(),
    Kind::new("KubeClusterConfig", 14, KUBE_CLUSTER_CONFIG),
    Kind::new("KubeControllerManagerConfig", 14, KUBE_CONTROLLER_MANAGER_CONFIG).control_plane(),
    Kind::new("KubeCoreDNSConfig", 14, KUBE_CORE_DNS_CONFIG).control_plane(),
    Kind::new("KubeCredentialProviderConfig", 14, KUBE_CREDENTIAL_PROVIDER_CONFIG),
    Kind::new("KubeEtcdEncryptionConfig", 14, KUBE_ETCD_ENCRYPTION_CONFIG).control_plane(),
    Kind::named("KubeExternalManifestConfig", 14, KUBE_EXTERNAL_MANIFEST_CONFIG),
    Kind::new("KubeFlannelCNIConfig", 14, KUBE_FLANNEL_CNI_CONFIG).control_plane(),
    Kind::named("KubeInlineManifestConfig", 14, KUBE_INLINE_MANIFEST_CONFIG),
    Kind::new("KubeNetworkConfig", 14, KUBE_NETWORK_CONFIG),
    Kind::new("KubeNodeConfig", 14, KUBE_NODE_CONFIG),
    Kind::new("KubePrismConfig", 14, KUBE_PRISM_CONFIG),
    Kind::new("KubeProxyConfig", 14, KUBE_PROXY_CONFIG).control_plane(),
    Kind::new("KubeSchedulerConfig", 14, KUBE_SCHEDULER_CONFIG).control_plane(),
    Kind::new("KubeServiceAccountConfig", 14, KUBE_SERVICE_ACCOUNT_CONFIG).control_plane(),
    Kind::named("KubeStaticPodConfig", 14, KUBE_STATIC_POD_CONFIG),
    Kind::new("KubeTalosAPIAccessConfig", 14, KUBE_TALOS_API_ACCESS_CONFIG).control_plane(),
    Kind::new("KubeletConfig", 14, KUBELET_CONFIG),
];

const KUBE_API_SERVER_CA_CONFIG: Struct =
    fields(&[opt("issuingCA", Obj(&CERTIFICATE_AND_KEY)), field("acceptedCAs", TEXTS)]);

const RESOURCES_CONFIG: Struct = fields(&[field("requests", FREE), field("limits", FREE)]);

const KUBE_API_SERVER_CONFIG: Struct = fields(&[
    must("image", TEXT),
    field("extraArgs", ARGS),
    field("env", TEXT_MAP),
    field("resources", Obj(&RESOURCES_CONFIG)),
    opt("apiPort", INT),
    field("certExtraSANs", TEXTS),
    opt("startupProbes", BOOL),
]);

const KUBE_ADMISSION_CONTROL_CONFIG: Struct = fields(&[must("name", TEXT), must("configuration", FREE)]);

const KUBE_AGGREGATOR_CA_CONFIG: Struct =
    fields(&[opt("issuingCA", Obj(&CERTIFICATE_AND_KEY)), field("acceptedCAs", TEXTS)]);

const KUBE_AUDIT_POLICY_CONFIG: Struct = fields(&[must("configuration", FREE).replace()]);

const KUBE_AUTHENTICATION_CONFIG: Struct = fields(&[must("configuration", FREE).replace()]);

const KUBE_AUTHORIZER_CONFIG: Struct =
    fields(&[must("name", TEXT), must("type", TEXT), field("webhook", FREE)]);

const KUBE_CLUSTER_CONFIG: Struct = fields(&[must("clusterName", TEXT), must("endpoint", URL)]);

const KUBE_CONTROLLER_MANAGER_CONFIG: Struct = fields(&[
    opt("enabled", BOOL),
    must("image", TEXT),
    field("extraArgs", ARGS),
    field("env", TEXT_MAP),
    field("resources", Obj(&RESOURCES_CONFIG)),
]);

const KUBE_CORE_DNS_CONFIG: Struct = fields(&[opt("enabled", BOOL), field("image", TEXT)]);

const KUBE_CREDENTIAL_PROVIDER_CONFIG: Struct = fields(&[must("configuration", FREE).replace()]);

const KUBE_ETCD_ENCRYPTION_CONFIG: Struct = fields(&[must("config", FREE).secret()]);

const KUBE_EXTERNAL_MANIFEST_CONFIG: Struct =
    fields(&[must("name", TEXT), field("headers", TEXT_MAP), must("url", URL)]);

const KUBE_FLANNEL_CNI_CONFIG: Struct = fields(&[
    must("backendType", TEXT),
    field("backendPort", U16),
    field("backendMTU", U32),
    field("backendExtraConfig", FREE),
    field("resources", Obj(&RESOURCES_CONFIG)),
    field("extraArgs", TEXTS),
    opt("kubeNetworkPoliciesEnabled", BOOL),
]);

const KUBE_INLINE_MANIFEST_CONFIG: Struct = fields(&[must("name", TEXT), must("manifest", TEXT)]);

const KUBE_NETWORK_CONFIG: Struct = fields(&[
    must("dnsDomain", TEXT),
    must("podSubnets", list(&Type::Prefix)).replace(),
    must("serviceSubnets", list(&Type::Prefix)).replace(),
    field("nodeCIDRMaskSizeIPv4", INT),
    field("nodeCIDRMaskSizeIPv6", INT),
]);

const NODE_IP_CONFIG: Struct = fields(&[field("validSubnets", TEXTS)]);

const KUBE_NODE_CONFIG: Struct = fields(&[
    opt("skipNodeRegistration", BOOL),
    opt("registerWithFQDN", BOOL),
    must("nodeIP", Obj(&NODE_IP_CONFIG)),
    field("labels", TEXT_MAP),
    field("annotations", TEXT_MAP),
    field("taints", TEXT_MAP),
]);

const KUBE_PRISM_CONFIG: Struct = fields(&[must("port", INT), field("tlsServerName", TEXT)]);

const KUBE_PROXY_CONFIG: Struct = fields(&[
    opt("enabled", BOOL),
    field("image", TEXT),
    field("mode", TEXT),
    must("config", FREE),
    field("extraArgs", ARGS),
    field("resources", Obj(&RESOURCES_CONFIG)),
]);

const KUBE_SCHEDULER_CONFIG: Struct = fields(&[
    opt("enabled", BOOL),
    must("image", TEXT),
    must("config", FREE),
    field("extraArgs", ARGS),
    field("env", TEXT_MAP),
    field("resources", Obj(&RESOURCES_CONFIG)),
]);

const ISSUER_SERVICE_ACCOUNT_CONFIG: Struct =
    fields(&[must("privateKey", TEXT).secret(), must("issuerURL", URL)]);

const ACCEPTED_SERVICE_ACCOUNT_CONFIG: Struct =
    fields(&[field("publicKeys", TEXTS), field("issuers", list(&URL)), field("audiences", TEXTS)]);

const KUBE_SERVICE_ACCOUNT_CONFIG: Struct = fields(&[
    must("issuer", Obj(&ISSUER_SERVICE_ACCOUNT_CONFIG)),
    field("accepted", Obj(&ACCEPTED_SERVICE_ACCOUNT_CONFIG)),
]);

const KUBE_STATIC_POD_CONFIG: Struct = fields(&[must("name", TEXT), must("pod", FREE).replace()]);

const KUBE_TALOS_API_ACCESS_CONFIG: Struct =
    fields(&[field("allowedRoles", TEXTS), field("allowedKubernetesNamespaces", TEXTS)]);

const KUBELET_CONFIG: Struct = fields(&[
    must("image", TEXT),
    must("config", FREE),
    field("extraArgs", ARGS),
    field("clusterDNS", TEXTS),
    opt("defaultRuntimeSeccompProfileEnabled", BOOL),
]);
