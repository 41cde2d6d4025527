//! What a new cluster has: namespaces, roles, and what Talos installs.

use serde_json::{Value, json};

use super::super::Cluster;
use crate::{ground::Ground, signal::NodeFacts};

impl Cluster {
    /// Puts the objects that every cluster has.
    pub(in super::super) fn begin(&mut self, ground: &mut Ground) {
        if self.version.is_empty() {
            self.version = "v1.36.3".into();
        }
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            self.make(ground, "namespaces", json!({"metadata": {"name": name}}));
        }
        self.make_roles(ground);
        self.make(
            ground,
            "services",
            json!({
                "metadata": {"name": "kubernetes", "namespace": "default",
                    "labels": {"component": "apiserver", "provider": "kubernetes"}},
                "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                    "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]},
            }),
        );
        for (name, value) in
            [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
        {
            self.make(
                ground,
                "priorityclasses.scheduling.k8s.io",
                json!({
                    "metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority",
                }),
            );
        }
    }

    fn make_roles(&mut self, ground: &mut Ground) {
        let all = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
        let read = ["get", "list", "watch"];
        let usual =
            json!(["", "apps", "batch", "networking.k8s.io", "policy", "autoscaling", "discovery.k8s.io"]);
        let roles = [
            ("cluster-admin", json!([all, {"nonResourceURLs": ["*"], "verbs": ["*"]}])),
            (
                "admin",
                json!([{"apiGroups": usual, "resources": ["*"], "verbs": ["*"]},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]}]),
            ),
            ("edit", json!([{"apiGroups": usual, "resources": ["*"], "verbs": ["*"]}])),
            (
                "view",
                json!([{"apiGroups": usual, "verbs": read, "resources": ["pods", "pods/log", "services", "endpoints",
                "configmaps", "events", "namespaces", "serviceaccounts", "persistentvolumeclaims", "deployments",
                "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs", "ingresses", "networkpolicies",
                "poddisruptionbudgets", "horizontalpodautoscalers", "endpointslices"]}]),
            ),
            (
                "system:discovery",
                json!([{"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez",
                "/openapi", "/openapi/*", "/readyz", "/version", "/version/"], "verbs": ["get"]}]),
            ),
            (
                "system:basic-user",
                json!([{"apiGroups": ["authorization.k8s.io", "authentication.k8s.io"], "verbs": ["create"],
                "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"]}]),
            ),
            // A kubelet may do less than this: only what concerns its own node. The lab has no node authorizer.
            (
                "system:node",
                json!([{"apiGroups": [""], "resources": ["nodes", "nodes/status", "pods", "pods/status",
                "pods/eviction", "services", "configmaps", "secrets", "events"], "verbs": ["*"]},
                {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
                {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["*"]}]),
            ),
        ];
        let bindings = [
            ("cluster-admin", "system:masters"),
            ("system:discovery", "system:authenticated"),
            ("system:basic-user", "system:authenticated"),
            ("system:node", "system:nodes"),
        ];
        let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        for (name, rules) in roles {
            let role = json!({"metadata": {"name": name, "labels": labels}, "rules": rules});
            self.make(ground, "clusterroles.rbac.authorization.k8s.io", role);
        }
        for (role, group) in bindings {
            self.make(
                ground,
                "clusterrolebindings.rbac.authorization.k8s.io",
                json!({
                    "metadata": {"name": role, "labels": labels},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
                }),
            );
        }
    }

    /// Puts what Talos installs once its first control plane is up: it only creates and never updates.
    pub(super) fn install_manifests(&mut self, ground: &mut Ground, node: &NodeFacts) {
        if !node.control_plane {
            return;
        }
        let version = node.kubelet.clone();
        for account in ["coredns", "kube-proxy", "flannel"] {
            self.make(
                ground,
                "serviceaccounts",
                json!({"metadata": {"name": account, "namespace": "kube-system"}}),
            );
        }
        self.make(ground, "services", json!({
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns",
                "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}},
            "spec": {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "selector": {"k8s-app": "kube-dns"},
                "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
                    {"name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": 9153}]},
        }));
        self.make(ground, "deployments.apps", coredns());
        // Whether kube-proxy is switched off is not among the facts about a node; by default it is on.
        self.make(
            ground,
            "daemonsets.apps",
            everywhere(
                "kube-proxy",
                "kube-proxy",
                &format!("registry.k8s.io/kube-proxy:{version}"),
                &json!([]),
            ),
        );
        if node.cni_included {
            let volumes = json!([
                {"name": "cni", "hostPath": {"path": "/etc/cni/net.d"}},
                {"name": "run", "hostPath": {"path": "/run/flannel"}},
            ]);
            let flannel =
                everywhere("kube-flannel", "flannel", "ghcr.io/siderolabs/flannel:v0.28.8", &volumes);
            self.make(ground, "daemonsets.apps", flannel);
        }
    }
}

fn coredns() -> Value {
    let labels = json!({"k8s-app": "kube-dns"});
    json!({
        "metadata": {"name": "coredns", "namespace": "kube-system",
            "labels": {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": "25%"}},
            "template": {"metadata": {"labels": labels}, "spec": {
                "serviceAccountName": "coredns", "priorityClassName": "system-cluster-critical",
                "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "node.cloudprovider.kubernetes.io/uninitialized", "operator": "Exists", "effect": "NoSchedule"}],
                "containers": [{"name": "coredns", "image": "registry.k8s.io/coredns/coredns:v1.14.6",
                    "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}, "limits": {"memory": "170Mi"}}}]}}},
    })
}

fn everywhere(name: &str, app: &str, image: &str, volumes: &Value) -> Value {
    let labels = json!({"tier": "node", "k8s-app": app});
    json!({
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "hostNetwork": true, "priorityClassName": "system-node-critical", "serviceAccountName": app,
            "tolerations": [{"effect": "NoSchedule", "operator": "Exists"}, {"effect": "NoExecute", "operator": "Exists"}],
            "containers": [{"name": name, "image": image}], "volumes": volumes}}},
    })
}
