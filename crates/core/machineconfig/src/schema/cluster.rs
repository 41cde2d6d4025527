//! The legacy document: `cluster`.

use super::machine::{CERT, CERT_AND_KEY, KEY};
use super::{
    ARGS, BOOL, FREE, INT, Struct, TEXT, TEXT_MAP, TEXTS, Type, Type::Struct as Obj, field, fields, list,
    must, opt,
};

const CONTROL_PLANE_CONFIG: Struct =
    fields(&[opt("endpoint", Type::Url(true)).always(), field("localAPIServerPort", INT)]);

const FLANNEL_CNI_CONFIG: Struct =
    fields(&[field("extraArgs", TEXTS), opt("kubeNetworkPoliciesEnabled", BOOL).since(13)]);

const CNI_CONFIG: Struct =
    fields(&[field("name", TEXT), field("urls", TEXTS), opt("flannel", Obj(&FLANNEL_CNI_CONFIG))]);

const CLUSTER_NETWORK_CONFIG: Struct = fields(&[
    opt("cni", Obj(&CNI_CONFIG)),
    must("dnsDomain", TEXT),
    must("podSubnets", TEXTS).replace(),
    must("serviceSubnets", TEXTS).replace(),
]);

const VOLUME_MOUNT_CONFIG: Struct =
    fields(&[must("hostPath", TEXT), must("mountPath", TEXT), field("readonly", BOOL)]);

const ADMISSION_PLUGIN_CONFIG: Struct = fields(&[must("name", TEXT), must("configuration", FREE)]);

const RESOURCES_CONFIG: Struct = fields(&[field("requests", FREE), field("limits", FREE)]);

const AUTHORIZATION_CONFIG_AUTHORIZER_CONFIG: Struct =
    fields(&[must("type", TEXT), must("name", TEXT), field("webhook", FREE)]);

const API_SERVER_CONFIG: Struct = fields(&[
    field("image", TEXT),
    field("extraArgs", ARGS),
    field("extraVolumes", list(&Obj(&VOLUME_MOUNT_CONFIG))),
    field("env", TEXT_MAP),
    field("certSANs", TEXTS),
    opt("disablePodSecurityPolicy", BOOL),
    field("admissionControl", list(&Obj(&ADMISSION_PLUGIN_CONFIG)))
        .by("name")
        .old(14, "KubeAdmissionControlConfig"),
    field("auditPolicy", FREE).replace().old(14, "KubeAuditPolicyConfig"),
    opt("resources", Obj(&RESOURCES_CONFIG)),
    field("authorizationConfig", list(&Obj(&AUTHORIZATION_CONFIG_AUTHORIZER_CONFIG)))
        .since(9)
        .old(14, "KubeAuthorizerConfig"),
]);

const CONTROLLER_MANAGER_CONFIG: Struct = fields(&[
    field("image", TEXT),
    field("extraArgs", ARGS),
    field("extraVolumes", list(&Obj(&VOLUME_MOUNT_CONFIG))),
    field("env", TEXT_MAP),
    opt("resources", Obj(&RESOURCES_CONFIG)),
]);

const PROXY_CONFIG: Struct =
    fields(&[opt("disabled", BOOL), field("image", TEXT), field("mode", TEXT), field("extraArgs", ARGS)]);

const SCHEDULER_CONFIG: Struct = fields(&[
    field("image", TEXT),
    field("extraArgs", ARGS),
    field("extraVolumes", list(&Obj(&VOLUME_MOUNT_CONFIG))),
    field("env", TEXT_MAP),
    opt("resources", Obj(&RESOURCES_CONFIG)),
    field("config", FREE),
]);

const REGISTRY_KUBERNETES_CONFIG: Struct = fields(&[opt("disabled", BOOL)]);

const REGISTRY_SERVICE_CONFIG: Struct = fields(&[opt("disabled", BOOL), field("endpoint", TEXT)]);

const DISCOVERY_REGISTRIES_CONFIG: Struct = fields(&[
    must("kubernetes", Obj(&REGISTRY_KUBERNETES_CONFIG)),
    must("service", Obj(&REGISTRY_SERVICE_CONFIG)),
]);

const CLUSTER_DISCOVERY_CONFIG: Struct =
    fields(&[opt("enabled", BOOL), must("registries", Obj(&DISCOVERY_REGISTRIES_CONFIG))]);

const ETCD_CONFIG: Struct = fields(&[
    field("image", TEXT),
    opt("ca", Type::Pem(&CERT_AND_KEY)).always(),
    field("extraArgs", ARGS),
    field("subnet", TEXT).old(8, "`cluster.etcd.advertisedSubnets`"),
    field("advertisedSubnets", TEXTS),
    field("listenSubnets", TEXTS),
]);

const CORE_DNS: Struct = fields(&[opt("disabled", BOOL), field("image", TEXT)]);

const EXTERNAL_CLOUD_PROVIDER_CONFIG: Struct = fields(&[opt("enabled", BOOL), field("manifests", TEXTS)]);

const CLUSTER_INLINE_MANIFEST: Struct = fields(&[must("name", TEXT), must("contents", Type::Manifest)]);

const ADMIN_KUBECONFIG_CONFIG: Struct = fields(&[field("certLifetime", Type::Duration)]);

/// `cluster`.
pub const CLUSTER: Struct = fields(&[
    field("id", TEXT).old(14, "DiscoveryIdentityConfig"),
    field("secret", TEXT).old(14, "DiscoveryIdentityConfig").secret(),
    opt("controlPlane", Obj(&CONTROL_PLANE_CONFIG)).old(14, "KubeClusterConfig"),
    field("clusterName", TEXT).old(14, "KubeClusterConfig"),
    opt("network", Obj(&CLUSTER_NETWORK_CONFIG)).old(14, "KubeNetworkConfig and KubeFlannelCNIConfig"),
    field("token", TEXT).secret(),
    field("aescbcEncryptionSecret", TEXT).old(14, "KubeEtcdEncryptionConfig").secret(),
    field("secretboxEncryptionSecret", TEXT).old(14, "KubeEtcdEncryptionConfig").secret(),
    opt("ca", Type::Pem(&CERT_AND_KEY)).old(14, "KubeAPIServerCAConfig"),
    field("acceptedCAs", list(&Type::Pem(&CERT))).old(14, "KubeAPIServerCAConfig"),
    opt("aggregatorCA", Type::Pem(&CERT_AND_KEY)).old(14, "KubeAggregatorCAConfig"),
    opt("serviceAccount", Type::Pem(&KEY)).old(14, "KubeServiceAccountConfig"),
    opt("apiServer", Obj(&API_SERVER_CONFIG)).old(14, "KubeAPIServerConfig"),
    opt("controllerManager", Obj(&CONTROLLER_MANAGER_CONFIG)).old(14, "KubeControllerManagerConfig"),
    opt("proxy", Obj(&PROXY_CONFIG)).old(14, "KubeProxyConfig"),
    opt("scheduler", Obj(&SCHEDULER_CONFIG)).old(14, "KubeSchedulerConfig"),
    opt("discovery", Obj(&CLUSTER_DISCOVERY_CONFIG)).old(14, "DiscoveryServiceConfig"),
    opt("etcd", Obj(&ETCD_CONFIG)),
    opt("coreDNS", Obj(&CORE_DNS)).old(14, "KubeCoreDNSConfig"),
    opt("externalCloudProvider", Obj(&EXTERNAL_CLOUD_PROVIDER_CONFIG)),
    field("extraManifests", TEXTS).old(14, "KubeExternalManifestConfig"),
    field("extraManifestHeaders", TEXT_MAP).old(14, "KubeExternalManifestConfig"),
    field("inlineManifests", list(&Obj(&CLUSTER_INLINE_MANIFEST))).old(14, "KubeInlineManifestConfig"),
    opt("adminKubeconfig", Obj(&ADMIN_KUBECONFIG_CONFIG)),
    opt("allowSchedulingOnMasters", BOOL).old(8, "`cluster.allowSchedulingOnControlPlanes`"),
    opt("allowSchedulingOnControlPlanes", BOOL).old(14, "KubeNodeConfig"),
]);
