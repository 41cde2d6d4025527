package main

// fields is a strategic patch of the v1alpha1 document.
func (d dice) fields() string {
	root := tree{}

	for range 1 + d.IntN(4) {
		f := fieldTable[d.IntN(len(fieldTable))]
		put(root, f.path, f.value(d))
	}

	return dump(root)
}

type field struct {
	path  string
	value func(dice) any
}

func boolean(d dice) any { return d.IntN(2) == 0 }

func text(choices ...string) func(dice) any {
	return func(d dice) any { return pick(d, choices...) }
}

func texts(choices ...string) func(dice) any {
	return func(d dice) any { return d.some(choices...) }
}

func mapping(keys []string, values ...string) func(dice) any {
	return func(d dice) any {
		m := tree{}
		for _, key := range keys {
			if d.IntN(2) == 0 {
				m[key] = pick(d, values...)
			}
		}

		return m
	}
}

// fieldTable covers the merge rules of the v1alpha1 document: plain and optional scalars with their zero
// values, appended and replaced lists, lists matched by key, maps, and free-form content.
var fieldTable = []field{
	{"debug", boolean},
	{"machine.install.disk", text("/dev/vda", "/dev/nvme0n1", "")},
	{"machine.install.wipe", boolean},
	{"machine.install.image", text("ghcr.io/siderolabs/installer:v1.9.0", "")},
	{"machine.install.extraKernelArgs", texts("console=ttyS0", "net.ifnames=0")},
	{"machine.install.diskSelector", func(d dice) any {
		return tree{"size": pick(d, ">= 100GB", "< 1TB"), "type": pick(d, "ssd", "nvme", "hdd")}
	}},
	{"machine.certSANs", texts("10.0.0.20", "api.example.com", "fd00::1")},
	{"machine.kubelet.image", text("ghcr.io/siderolabs/kubelet:v1.31.3", "")},
	{"machine.kubelet.clusterDNS", texts("10.96.0.10", "169.254.2.53")},
	{"machine.kubelet.extraArgs", mapping([]string{"rotate-server-certificates", "v", "feature-gates"}, "true", "2", "")},
	{"machine.kubelet.extraConfig", (dice).freeForm},
	{"machine.kubelet.extraMounts", func(d dice) any {
		path := pick(d, "/var/lib/longhorn", "/var/a")

		return []any{tree{"destination": path, "type": "bind", "source": path, "options": d.some("bind", "rshared", "rw")}}
	}},
	{"machine.kubelet.nodeIP.validSubnets", texts("10.0.0.0/24", "!10.0.0.20/32", "fd00::/64")},
	{"machine.kubelet.registerWithFQDN", boolean},
	{"machine.kubelet.skipNodeRegistration", boolean},
	{"machine.kubelet.defaultRuntimeSeccompProfileEnabled", boolean},
	{"machine.kubelet.disableManifestsDirectory", boolean},
	{"machine.network.hostname", text("cp-9", "")},
	{"machine.network.nameservers", texts("10.0.0.1", "1.1.1.1")},
	{"machine.network.interfaces", (dice).interfaces},
	{"machine.network.extraHostEntries", func(d dice) any {
		return []any{tree{"ip": pick(d, "10.0.0.30", "10.0.0.31"), "aliases": d.some("nas", "registry")}}
	}},
	{"machine.network.disableSearchDomain", boolean},
	{"machine.files", func(d dice) any {
		return []any{tree{"content": pick(d, "a", "line\n", "two\nlines"), "permissions": 0o644, "path": pick(d, "/var/a", "/var/b"), "op": pick(d, "create", "append")}}
	}},
	{"machine.env", mapping([]string{"http_proxy", "no_proxy"}, "http://10.0.0.2:3128", "")},
	{"machine.time.servers", texts("10.0.0.1", "time.example.com")},
	{"machine.time.disabled", boolean},
	{"machine.time.bootTimeout", text("2m0s", "0s", "90s")},
	{"machine.sysctls", mapping([]string{"net.core.somaxconn", "vm.nr_hugepages", "net.ipv4.ip_forward"}, "1", "0", "")},
	{"machine.sysfs", mapping([]string{"devices.system.cpu.cpu0.cpufreq.scaling_governor"}, "performance")},
	{"machine.nodeLabels", mapping([]string{"zone", "rack", "node.kubernetes.io/exclude-from-external-load-balancers"}, "a", "b", "")},
	{"machine.nodeAnnotations", mapping([]string{"example.com/a"}, "x", "")},
	{"machine.nodeTaints", mapping([]string{"dedicated"}, "gpu:NoSchedule", "NoExecute")},
	{"machine.kernel.modules", func(d dice) any {
		return []any{tree{"name": pick(d, "br_netfilter", "zfs"), "parameters": d.some("a=1", "b=2")}}
	}},
	{"machine.udev.rules", texts(`SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="44", MODE="0660"`, `x`)},
	{"machine.logging.destinations", func(d dice) any {
		return []any{tree{"endpoint": pick(d, "tcp://10.0.0.3:5044/", "udp://10.0.0.4:514/"), "format": "json_lines"}}
	}},
	{"machine.registries.mirrors", func(d dice) any {
		return tree{pick(d, "docker.io", "ghcr.io", "'*'"): tree{"endpoints": d.some("https://mirror.example.com", "http://10.0.0.5:5000"), "overridePath": boolean(d)}}
	}},
	{"machine.registries.config", func(d dice) any {
		return tree{pick(d, "docker.io", "10.0.0.5:5000"): tree{"auth": tree{"username": "u", "password": pick(d, "p", "")}, "tls": tree{"insecureSkipVerify": boolean(d)}}}
	}},
	{"machine.features.kubePrism", func(d dice) any { return tree{"enabled": boolean(d), "port": pick(d, 7445, 7446, 0)} }},
	{"machine.features.hostDNS", func(d dice) any { return tree{"enabled": boolean(d), "resolveMemberNames": boolean(d)} }},
	{"machine.features.kubernetesTalosAPIAccess", func(d dice) any {
		return tree{"enabled": boolean(d), "allowedRoles": d.some("os:reader", "os:admin"), "allowedKubernetesNamespaces": d.some("kube-system")}
	}},
	{"cluster.controlPlane.endpoint", text("https://10.0.0.99:6443", "https://api.example.com:443")},
	{"cluster.controlPlane.localAPIServerPort", func(d dice) any { return pick(d, 6443, 7443, 0) }},
	{"cluster.clusterName", text("other", "")},
	{"cluster.network.cni", func(d dice) any {
		return tree{"name": pick(d, "none", "custom", "flannel"), "urls": d.some("https://example.com/cni.yaml")}
	}},
	{"cluster.network.dnsDomain", text("example.internal", "")},
	{"cluster.network.podSubnets", texts("10.200.0.0/16", "fd00:10:244::/56")},
	{"cluster.network.serviceSubnets", texts("10.201.0.0/16", "fd00:10:96::/112")},
	{"cluster.apiServer.certSANs", texts("10.0.0.20", "api.example.com")},
	{"cluster.apiServer.extraArgs", mapping([]string{"feature-gates", "oidc-issuer-url", "v"}, "A=true", "https://id.example.com", "")},
	{"cluster.apiServer.extraVolumes", func(d dice) any {
		return []any{tree{"hostPath": "/var/lib/a", "mountPath": "/a", "readonly": boolean(d)}}
	}},
	{"cluster.apiServer.env", mapping([]string{"A", "B"}, "1", "")},
	{"cluster.apiServer.disablePodSecurityPolicy", boolean},
	{"cluster.apiServer.admissionControl", func(d dice) any {
		return []any{tree{"name": pick(d, "PodSecurity", "EventRateLimit"), "configuration": d.freeForm()}}
	}},
	{"cluster.apiServer.auditPolicy", func(d dice) any {
		return tree{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": []any{tree{"level": pick(d, "None", "Request")}}}
	}},
	{"cluster.apiServer.resources", func(d dice) any {
		return tree{"requests": tree{"cpu": "250m"}, "limits": tree{"memory": pick(d, "1Gi", "2Gi")}}
	}},
	{"cluster.controllerManager.extraArgs", mapping([]string{"bind-address", "v"}, "0.0.0.0", "3")},
	{"cluster.scheduler.extraArgs", mapping([]string{"bind-address"}, "0.0.0.0", "")},
	{"cluster.scheduler.config", (dice).freeForm},
	{"cluster.proxy.disabled", boolean},
	{"cluster.proxy.mode", text("ipvs", "nftables")},
	{"cluster.proxy.extraArgs", mapping([]string{"metrics-bind-address"}, "0.0.0.0:10249")},
	{"cluster.discovery.enabled", boolean},
	{"cluster.discovery.registries.service.disabled", boolean},
	{"cluster.etcd.advertisedSubnets", texts("10.0.0.0/24", "10.3.0.0/24")},
	{"cluster.etcd.extraArgs", mapping([]string{"election-timeout"}, "5000")},
	{"cluster.coreDNS.disabled", boolean},
	{"cluster.coreDNS.image", text("registry.k8s.io/coredns/coredns:v1.11.3")},
	{"cluster.externalCloudProvider", func(d dice) any {
		return tree{"enabled": boolean(d), "manifests": d.some("https://example.com/ccm.yaml")}
	}},
	{"cluster.extraManifests", texts("https://example.com/a.yaml", "https://example.com/b.yaml")},
	{"cluster.extraManifestHeaders", mapping([]string{"Token"}, "x")},
	{"cluster.inlineManifests", func(d dice) any {
		return []any{tree{"name": pick(d, "one", "two"), "contents": pick(d, "a: b\n", "a: |\n  b\n\n", "kind: X\n---\nkind: Y\n", "")}}
	}},
	{"cluster.adminKubeconfig.certLifetime", text("8h0m0s", "0s")},
	{"cluster.allowSchedulingOnControlPlanes", boolean},
}

func (d dice) freeForm() any {
	content := tree{}

	for range 1 + d.IntN(3) {
		switch d.IntN(6) {
		case 0:
			put(content, "serverTLSBootstrap", boolean(d))
		case 1:
			put(content, "evictionHard", tree{"memory.available": pick(d, "200Mi", ""), "nodefs.available": "10%"})
		case 2:
			put(content, "list", []any{pick(d, 1, 3), "x"})
		case 3:
			put(content, "exemptions.namespaces", d.some("kube-system", "rook-ceph"))
		case 4:
			put(content, "maxPods", pick(d, 0, 250))
		default:
			put(content, "ratio", pick(d, 0.5, 1.0, 1e21))
		}
	}

	return content
}

func (d dice) interfaces() any {
	var list []any

	for range 1 + d.IntN(2) {
		link := tree{}

		switch d.IntN(4) {
		case 0:
			link["deviceSelector"] = tree{"hardwareAddr": pick(d, "bc:24:11:00:00:11", "bc:24:11:00:00:12")}
		case 1:
			link["deviceSelector"] = tree{"busPath": "0*", "physical": boolean(d)}
		default:
			link["interface"] = pick(d, "eth0", "eth1", "eth2")
		}

		d.fillInterface(link)

		list = append(list, link)
	}

	return list
}

func (d dice) fillInterface(link tree) {
	for range 1 + d.IntN(3) {
		switch d.IntN(7) {
		case 0:
			link["addresses"] = d.some("10.0.0.12/24", "fd00::12/64")
		case 1:
			link["routes"] = []any{tree{"network": pick(d, "0.0.0.0/0", "10.9.0.0/16"), "gateway": "10.0.0.1", "metric": pick(d, 0, 1024)}}
		case 2:
			link["dhcp"] = boolean(d)
		case 3:
			link["mtu"] = pick(d, 0, 1500, 9000)
		case 4:
			link["vip"] = tree{"ip": pick(d, "10.0.0.21", "10.0.0.20")}
		case 5:
			link["vlans"] = []any{tree{"vlanId": pick(d, 100, 300), "addresses": d.some("10.1.0.12/24"), "mtu": pick(d, 0, 1400), "dhcp": boolean(d)}}
		default:
			link["dhcpOptions"] = tree{"routeMetric": pick(d, 0, 512), "ipv4": boolean(d)}
		}
	}
}
