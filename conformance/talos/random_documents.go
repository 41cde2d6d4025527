package main

import "strings"

// documentKind picks a kind that this release knows, and rarely one that it must refuse.
func (d dice) documentKind() document {
	for {
		kind := documentTable[d.IntN(len(documentTable))]
		if kind.since <= minor(ownContract()) || d.IntN(20) == 0 {
			return kind
		}
	}
}

// documents is a strategic patch of other documents.
func (d dice) documents(count int) string {
	var parts []string

	for range count {
		doc := d.documentKind().make(d)
		doc["apiVersion"] = "v1alpha1"

		if d.IntN(8) == 0 {
			doc = deletion(doc)
		}

		parts = append(parts, dump(doc))
	}

	return strings.Join(parts, "---\n")
}

// deletion removes the document of the same kind and name.
func deletion(doc tree) tree {
	gone := tree{"apiVersion": doc["apiVersion"], "kind": doc["kind"], "$patch": "delete"}

	if name, named := doc["name"]; named {
		gone["name"] = name
	}

	return gone
}

// document makes one document of a kind that releases have since 1.N.
type document struct {
	since int
	make  func(dice) tree
}

var documentTable = []document{
	{12, func(d dice) tree {
		return tree{"kind": "HostnameConfig", "hostname": pick(d, "cp-9", "w-1"), "auto": "off"}
	}},
	{12, func(d dice) tree { return tree{"kind": "HostnameConfig", "auto": pick(d, "stable", "off")} }},
	{12, func(d dice) tree {
		return tree{
			"kind": "LinkConfig", "name": pick(d, "net0", "eth1"), "mtu": pick(d, 1500, 9000), "up": boolean(d),
			"addresses": []any{tree{"address": pick(d, "10.0.0.12/24", "10.0.0.13/24")}},
			"routes":    []any{tree{"gateway": "10.0.0.1", "metric": pick(d, 0, 100)}},
		}
	}},
	{12, func(d dice) tree {
		return tree{"kind": "VLANConfig", "name": "net0.100", "vlanID": pick(d, 100, 200), "parent": "net0"}
	}},
	{12, func(d dice) tree {
		return tree{"kind": "DHCPv4Config", "name": pick(d, "net0", "eth1"), "routeMetric": pick(d, 0, 512)}
	}},
	{12, func(d dice) tree {
		return tree{"kind": "Layer2VIPConfig", "name": pick(d, "10.0.0.20", "10.0.0.21"), "link": "net0"}
	}},
	{12, func(d dice) tree {
		return tree{
			"kind": "ResolverConfig", "nameservers": []any{tree{"address": pick(d, "10.0.0.1", "1.1.1.1")}},
			"searchDomains": tree{"domains": d.some("example.com"), "disableDefault": boolean(d)},
		}
	}},
	{12, func(d dice) tree {
		return tree{"kind": "StaticHostConfig", "name": pick(d, "10.0.0.30", "10.0.0.31"), "hostnames": d.some("nas", "registry")}
	}},
	{12, func(d dice) tree {
		return tree{"kind": "TimeSyncConfig", "enabled": boolean(d), "ntp": tree{"servers": d.some("10.0.0.1", "time.example.com")}}
	}},
	{12, func(d dice) tree {
		return tree{
			"kind": "RegistryMirrorConfig", "name": pick(d, "docker.io", "ghcr.io"), "skipFallback": boolean(d),
			"endpoints": []any{tree{"url": pick(d, "https://mirror.example.com", "http://10.0.0.5:5000"), "overridePath": boolean(d)}},
		}
	}},
	{12, func(d dice) tree {
		return tree{"kind": "RegistryAuthConfig", "name": pick(d, "docker.io", "ghcr.io"), "username": "u", "password": pick(d, "p", "q")}
	}},
	{8, func(d dice) tree {
		return tree{
			"kind": "VolumeConfig", "name": pick(d, "EPHEMERAL", "STATE"),
			"provisioning": tree{"diskSelector": tree{"match": pick(d, "system_disk", `disk.transport == "nvme"`)}, "grow": boolean(d), "maxSize": pick(d, "40GiB", "100GB")},
		}
	}},
	{10, func(d dice) tree {
		return tree{
			"kind": "UserVolumeConfig", "name": pick(d, "data", "longhorn"),
			"provisioning": tree{"diskSelector": tree{"match": `disk.serial == "data"`}, "minSize": pick(d, "10GiB", "20GB")},
			"filesystem":   tree{"type": pick(d, "xfs", "ext4")},
		}
	}},
	{8, func(d dice) tree {
		return tree{
			"kind": "ExtensionServiceConfig", "name": pick(d, "tailscale", "nut-client"), "environment": d.some("A=1", "B=2"),
			"configFiles": []any{tree{"content": pick(d, "x", "y\n"), "mountPath": "/usr/local/etc/x.conf"}},
		}
	}},
	{8, func(d dice) tree {
		return tree{"kind": "NetworkDefaultActionConfig", "ingress": pick(d, "block", "accept")}
	}},
	{8, func(d dice) tree {
		return tree{
			"kind": "NetworkRuleConfig", "name": pick(d, "apid", "kubelet"),
			"portSelector": tree{"ports": []any{pick[any](d, 50000, "10250-10260")}, "protocol": pick(d, "tcp", "udp")},
			"ingress":      []any{tree{"subnet": "10.0.0.0/24", "except": "10.0.0.9/32"}},
		}
	}},
	{8, func(d dice) tree {
		return tree{"kind": "WatchdogTimerConfig", "device": "/dev/watchdog0", "timeout": pick(d, "2m0s", "1m30s")}
	}},
	{8, func(d dice) tree {
		return tree{"kind": "KmsgLogConfig", "name": "remote", "url": pick(d, "tcp://10.0.0.3:514", "udp://10.0.0.3:514")}
	}},
	{8, func(d dice) tree {
		return tree{"kind": "EventSinkConfig", "endpoint": pick(d, "10.0.0.3:8080", "10.0.0.4:8080")}
	}},
	{13, func(d dice) tree {
		return tree{"kind": "EnvironmentConfig", "variables": tree{"http_proxy": pick(d, "http://10.0.0.2:3128", "x")}}
	}},
	{14, func(d dice) tree { return tree{"kind": "KubeProxyConfig", "enabled": boolean(d)} }},
	{14, func(d dice) tree { return tree{"kind": "KubeFlannelCNIConfig", "backendPort": pick(d, 4789, 8472)} }},
	{14, func(d dice) tree {
		return tree{"kind": "KubeNodeConfig", "labels": tree{pick(d, "zone", "rack"): pick(d, "a", "")}, "taints": tree{"dedicated": "gpu:NoSchedule"}}
	}},
	{14, func(d dice) tree {
		return tree{"kind": "KubeletConfig", "clusterDNS": d.some("3.3.3.3", "4.4.4.4"), "config": d.freeForm()}
	}},
	{14, func(d dice) tree {
		return tree{"kind": "KubeAPIServerConfig", "certExtraSANs": d.some("10.0.0.20", "api.example.com")}
	}},
	{14, func(d dice) tree {
		return tree{"kind": "KubeNetworkConfig", "podSubnets": d.some("10.200.0.0/16"), "serviceSubnets": d.some("10.201.0.0/16")}
	}},
	{14, func(d dice) tree {
		return tree{"kind": "SysctlConfig", "params": tree{"net.core.somaxconn": pick(d, "1", "65535", "")}}
	}},
	{14, func(d dice) tree {
		return tree{"kind": "KernelModuleConfig", "name": pick(d, "zfs", "br_netfilter"), "parameters": d.some("a=1")}
	}},
}
