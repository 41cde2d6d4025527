//! Links, addresses, names, time and the firewall.

use super::{
    BOOL, INT, Kind, Merge, Struct, TEXT, TEXTS, Type,
    Type::Struct as Obj,
    U8, U16, U32, URL,
    enums::{
        AD_LACP_ACTIVE, AD_SELECT, ARP_ALL_TARGETS, ARP_VALIDATE, AUTO_HOSTNAME, BOND_MODE,
        CLIENT_IDENTIFIER, DEFAULT_ACTION, DNS_PROTOCOL, FAIL_OVER_MAC, LACP_RATE, PRIMARY_RESELECT,
        PROTOCOL, RULE_ACTION, VLAN_PROTOCOL, WAKE_ON_LAN, XMIT_HASH_POLICY,
    },
    field, fields, list, map_of, must, opt,
};

/// Fields of a link, followed by those that all links have.
macro_rules! link_fields {
    ($($own:expr,)*) => {
        fields(&[
            $($own,)*
            opt("up", BOOL),
            field("mtu", U32),
            field("addresses", list(&Obj(&ADDRESS_CONFIG))),
            field("routes", list(&Obj(&ROUTE_CONFIG))),
            opt("multicast", BOOL),
        ])
    };
}

/// Two links cannot have the same name.
const LINKS: &[&str] = &[
    "BondConfig",
    "BridgeConfig",
    "DummyLinkConfig",
    "LinkConfig",
    "VLANConfig",
    "VRFConfig",
    "VethConfig",
    "WireguardConfig",
];

/// The kinds of this file.
pub const KINDS: &[Kind] = &[
    Kind::named("BGPInstanceConfig", 14, BGP_INSTANCE_CONFIG),
    Kind::named("BlackholeRouteConfig", 13, BLACKHOLE_ROUTE_CONFIG),
    Kind::named("BondConfig", 12, BOND_CONFIG).against(LINKS),
    Kind::named("BridgeConfig", 12, BRIDGE_CONFIG).against(LINKS),
    Kind::named("DHCPv4Config", 12, DHCPV4_CONFIG),
    Kind::named("DHCPv6Config", 12, DHCPV6_CONFIG),
    Kind::named("DummyLinkConfig", 12, DUMMY_LINK_CONFIG).against(LINKS),
    Kind::named("EthernetConfig", 10, ETHERNET_CONFIG),
    Kind::named("HCloudVIPConfig", 12, HCLOUD_VIP_CONFIG).against(&["Layer2VIPConfig"]),
    Kind::named("HTTPProbeConfig", 14, HTTP_PROBE_CONFIG),
    Kind::new("HostnameConfig", 12, HOSTNAME_CONFIG),
    Kind::new("KubeSpanConfig", 13, KUBE_SPAN_CONFIG),
    Kind::new("KubeSpanEndpointsConfig", 8, KUBESPAN_ENDPOINTS_CONFIG),
    Kind::named("Layer2VIPConfig", 12, LAYER2_VIP_CONFIG).against(&["HCloudVIPConfig"]),
    Kind::named("LinkAliasConfig", 12, LINK_ALIAS_CONFIG),
    Kind::named("LinkConfig", 12, LINK_CONFIG).against(LINKS),
    Kind::new("NetworkDefaultActionConfig", 8, DEFAULT_ACTION_CONFIG),
    Kind::named("NetworkRuleConfig", 8, RULE_CONFIG),
    Kind::new("ResolverConfig", 12, RESOLVER_CONFIG),
    Kind::named("RoutingRuleConfig", 13, ROUTING_RULE_CONFIG),
    Kind::named("StaticHostConfig", 12, STATIC_HOST_CONFIG),
    Kind::named("TCPProbeConfig", 13, TCP_PROBE_CONFIG),
    Kind::new("TimeSyncConfig", 12, TIME_SYNC_CONFIG),
    Kind::named("VLANConfig", 12, VLAN_CONFIG).against(LINKS),
    Kind::named("VRFConfig", 13, VRF_CONFIG).against(LINKS),
    Kind::named("VethConfig", 14, VETH_CONFIG).against(LINKS),
    Kind::named("WireguardConfig", 12, WIREGUARD_CONFIG).against(LINKS),
];

const BGP_IMPORT_ROUTE: Struct = fields(&[must("bgpInstance", TEXT), must("prefixes", list(&Type::Prefix))]);

const BGP_BFD_CONFIG: Struct = fields(&[
    field("transmitInterval", Type::Duration),
    field("receiveInterval", Type::Duration),
    field("detectMultiplier", U8),
]);

const BGP_NEIGHBOR_CONFIG: Struct = fields(&[
    field("address", Type::Address),
    field("link", TEXT),
    field("peerASN", U32),
    field("localASN", U32),
    field("passive", BOOL),
    field("holdTime", Type::Duration),
    opt("bfd", Obj(&BGP_BFD_CONFIG)),
]);

const BGP_INSTANCE_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("vrf", TEXT),
    must("localASN", U32),
    field("routerID", Type::Address),
    field("routeSource", Type::Address),
    field("advertise", TEXTS).replace(),
    opt("multipath", BOOL),
    field("maxPaths", U8),
    opt("installRoutes", BOOL),
    field("importRoutes", list(&Obj(&BGP_IMPORT_ROUTE))).replace(),
    field("neighbors", list(&Obj(&BGP_NEIGHBOR_CONFIG))).replace(),
]);

const BLACKHOLE_ROUTE_CONFIG: Struct = fields(&[must("name", TEXT), field("metric", U32)]);

const ADDRESS_CONFIG: Struct = fields(&[must("address", Type::Prefix), opt("routePriority", U32)]);

const ROUTE_CONFIG: Struct = fields(&[
    field("destination", Type::Prefix),
    field("gateway", Type::Address),
    field("source", Type::Address),
    field("metric", U32),
    field("mtu", U32),
    field("table", Type::Table),
]);

const BOND_CONFIG: Struct = link_fields![
    must("name", TEXT),
    field("hardwareAddr", Type::Mac),
    field("links", TEXTS),
    opt("bondMode", Type::Enum(&BOND_MODE)),
    opt("miimon", U32),
    opt("updelay", U32),
    opt("downdelay", U32),
    opt("useCarrier", BOOL),
    opt("xmitHashPolicy", Type::Enum(&XMIT_HASH_POLICY)),
    opt("arpInterval", U32),
    field("arpIpTargets", list(&Type::Address)),
    field("nsIp6Targets", list(&Type::Address)),
    opt("arpValidate", Type::Enum(&ARP_VALIDATE)),
    opt("arpAllTargets", Type::Enum(&ARP_ALL_TARGETS)),
    opt("lacpRate", Type::Enum(&LACP_RATE)),
    opt("failOverMac", Type::Enum(&FAIL_OVER_MAC)),
    opt("adSelect", Type::Enum(&AD_SELECT)),
    opt("adActorSysPrio", U16),
    opt("adUserPortKey", U16),
    opt("adLACPActive", Type::Enum(&AD_LACP_ACTIVE)),
    opt("primaryReselect", Type::Enum(&PRIMARY_RESELECT)),
    opt("resendIGMP", U32),
    opt("minLinks", U32),
    opt("lpInterval", U32),
    opt("packetsPerSlave", U32),
    opt("numPeerNotif", U8),
    opt("tlbLogicalLb", U8),
    opt("allSlavesActive", U8),
    opt("peerNotifDelay", U32),
    opt("missedMax", U8),
];

const BRIDGE_STP_CONFIG: Struct = fields(&[opt("enabled", BOOL)]);

const BRIDGE_VLAN_CONFIG: Struct = fields(&[opt("filtering", BOOL)]);

const BRIDGE_CONFIG: Struct = link_fields![
    must("name", TEXT),
    field("hardwareAddr", Type::Mac),
    field("links", TEXTS),
    field("stp", Obj(&BRIDGE_STP_CONFIG)),
    field("vlan", Obj(&BRIDGE_VLAN_CONFIG)),
];

const DHCPV4_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("routeMetric", U32),
    opt("ignoreHostname", BOOL),
    opt("ignoreRoutes", BOOL).since(14),
    opt("clientIdentifier", Type::Enum(&CLIENT_IDENTIFIER)),
    field("duidRaw", Type::Mac),
]);

const DHCPV6_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("routeMetric", U32),
    opt("ignoreHostname", BOOL),
    opt("clientIdentifier", Type::Enum(&CLIENT_IDENTIFIER)),
    field("duidRaw", Type::Mac),
]);

const DUMMY_LINK_CONFIG: Struct = link_fields![must("name", TEXT), field("hardwareAddr", Type::Mac),];

const ETHERNET_RINGS_CONFIG: Struct = fields(&[
    opt("rx", U32),
    opt("tx", U32),
    opt("rx-mini", U32),
    opt("rx-jumbo", U32),
    opt("rx-buf-len", U32),
    opt("cqe-size", U32),
    opt("tx-push", BOOL),
    opt("rx-push", BOOL),
    opt("tx-push-buf-len", U32),
    opt("tcp-data-split", BOOL),
]);

const ETHERNET_CHANNELS_CONFIG: Struct =
    fields(&[opt("rx", U32), opt("tx", U32), opt("other", U32), opt("combined", U32)]);

const ETHERNET_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("features", map_of(&BOOL)),
    opt("rings", Obj(&ETHERNET_RINGS_CONFIG)),
    opt("channels", Obj(&ETHERNET_CHANNELS_CONFIG)),
    field("wakeOnLan", list(&Type::Enum(&WAKE_ON_LAN))).since(12),
]);

const HCLOUD_VIP_CONFIG: Struct =
    fields(&[must("name", TEXT), must("link", TEXT), must("apiToken", TEXT).secret()]);

const HTTP_PROBE_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("interval", Type::Duration),
    field("failureThreshold", INT),
    must("url", URL),
    field("timeout", Type::Duration),
]);

const HOSTNAME_CONFIG: Struct = fields(&[opt("auto", Type::Enum(&AUTO_HOSTNAME)), field("hostname", TEXT)]);

const KUBE_SPAN_FILTERS_CONFIG: Struct =
    fields(&[field("endpoints", TEXTS), field("excludeAdvertisedNetworks", list(&Type::Prefix))]);

const KUBE_SPAN_CONFIG: Struct = fields(&[
    opt("enabled", BOOL),
    opt("advertiseKubernetesNetworks", BOOL),
    opt("allowDownPeerBypass", BOOL),
    opt("harvestExtraEndpoints", BOOL),
    opt("mtu", U32),
    opt("filters", Obj(&KUBE_SPAN_FILTERS_CONFIG)),
]);

const KUBESPAN_ENDPOINTS_CONFIG: Struct =
    fields(&[must("extraAnnouncedEndpoints", list(&Type::AddressPort))]);

const LAYER2_VIP_CONFIG: Struct = fields(&[must("name", TEXT), must("link", TEXT)]);

const LINK_SELECTOR: Struct = fields(&[field("match", Type::Expression)]);

const LINK_ALIAS_CONFIG: Struct = fields(&[must("name", TEXT), field("selector", Obj(&LINK_SELECTOR))]);

const LINK_CONFIG: Struct = link_fields![must("name", TEXT),];

const DEFAULT_ACTION_CONFIG: Struct = fields(&[must("ingress", Type::Enum(&DEFAULT_ACTION))]);

const RULE_PORT_SELECTOR: Struct =
    fields(&[must("ports", list(&Type::PortRange)).replace(), must("protocol", Type::Enum(&PROTOCOL))]);

const INGRESS_RULE: Struct = fields(&[must("subnet", Type::Prefix), field("except", Type::Prefix)]);

const RULE_CONFIG: Struct = fields(&[
    must("name", TEXT),
    must("portSelector", Obj(&RULE_PORT_SELECTOR)),
    must("ingress", list(&Obj(&INGRESS_RULE))).replace(),
]);

const NAMESERVER_CONFIG: Struct = fields(&[
    must("address", Type::Address),
    field("protocol", Type::Enum(&DNS_PROTOCOL)).since(14),
    field("tlsServerName", TEXT).since(14),
]);

const SEARCH_DOMAINS_CONFIG: Struct =
    fields(&[field("domains", TEXTS).merge(Merge::ReplaceSince(14)), opt("disableDefault", BOOL)]);

const HOST_DNS_CONFIG: Struct =
    fields(&[opt("enabled", BOOL), opt("forwardKubeDNSToHost", BOOL), opt("resolveMemberNames", BOOL)]);

const RESOLVER_CONFIG: Struct = fields(&[
    field("nameservers", list(&Obj(&NAMESERVER_CONFIG))),
    field("searchDomains", Obj(&SEARCH_DOMAINS_CONFIG)),
    field("hostDNS", Obj(&HOST_DNS_CONFIG)).since(14),
]);

const ROUTING_RULE_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("src", Type::Prefix),
    field("dst", Type::Prefix),
    must("table", Type::Table),
    field("action", Type::Enum(&RULE_ACTION)),
    field("iifName", TEXT),
    field("oifName", TEXT),
    field("fwMark", U32),
    field("fwMask", U32),
]);

const STATIC_HOST_CONFIG: Struct = fields(&[must("name", TEXT), must("hostnames", TEXTS)]);

const TCP_PROBE_CONFIG: Struct = fields(&[
    must("name", TEXT),
    field("interval", Type::Duration),
    field("failureThreshold", INT),
    must("endpoint", TEXT),
    field("timeout", Type::Duration),
]);

const NTP_CONFIG: Struct = fields(&[field("servers", TEXTS), opt("useNTS", BOOL).since(14)]);

const PTP_CONFIG: Struct = fields(&[field("devices", TEXTS)]);

const TIME_SYNC_CONFIG: Struct = fields(&[
    opt("enabled", BOOL),
    field("bootTimeout", Type::Duration),
    opt("ntp", Obj(&NTP_CONFIG)),
    opt("ptp", Obj(&PTP_CONFIG)),
]);

const VLAN_CONFIG: Struct = link_fields![
    must("name", TEXT),
    field("vlanID", U16),
    opt("vlanMode", Type::Enum(&VLAN_PROTOCOL)),
    field("parent", TEXT),
];

const VRF_CONFIG: Struct = link_fields![
    must("name", TEXT),
    field("hardwareAddr", Type::Mac),
    field("links", TEXTS),
    must("table", Type::Table),
];

const VETH_PEER_CONFIG: Struct = link_fields![must("name", TEXT),];

const VETH_CONFIG: Struct = link_fields![must("name", TEXT), must("peer", Obj(&VETH_PEER_CONFIG)),];

const WIREGUARD_PEER: Struct = fields(&[
    field("publicKey", TEXT),
    field("presharedKey", TEXT).secret(),
    field("endpoint", Type::AddressPort),
    field("persistentKeepaliveInterval", Type::Duration),
    field("allowedIPs", list(&Type::Prefix)),
]);

const WIREGUARD_CONFIG: Struct = link_fields![
    must("name", TEXT),
    field("privateKey", TEXT).secret(),
    field("listenPort", INT),
    field("firewallMark", INT),
    field("peers", list(&Obj(&WIREGUARD_PEER))),
];
