//! Looking at Kubernetes.

use std::collections::BTreeMap;

use ichor_kube::api;
use ichor_model::observed::{NodeSeen, Sight};

use super::last::Last;
use crate::live::Live;

/// Nodes by name.
pub type Nodes = Sight<BTreeMap<String, NodeSeen>>;

/// The last list of nodes.
pub type LastNodes = Last<Nodes>;

impl Live<'_> {
    /// Looks at the nodes, as the first control plane whose API server answers shows them.
    pub(super) async fn see_nodes(&self) -> Nodes {
        self.nodes.get(|| self.list_nodes()).await
    }

    async fn list_nodes(&self) -> Nodes {
        let mut why = "no control plane answers".to_owned();
        for machine in self.control_planes() {
            let client = match self.kubernetes(machine) {
                Some(Ok(client)) => client,
                Some(Err(error)) => {
                    why = error;
                    continue;
                }
                None => continue,
            };
            match client.list(&api::nodes()).await {
                Ok(nodes) => {
                    let seen = nodes.items.into_iter().map(|node| (node.name.clone(), see(&node)));
                    return Sight::Seen(seen.collect());
                }
                Err(error) => why = error.to_string(),
            }
        }
        Sight::Unseen(why)
    }
}

fn see(node: &api::Node) -> NodeSeen {
    NodeSeen {
        ready: node.ready.holds(),
        says: node.ready.message.clone(),
        version: node.kubelet.clone(),
        unschedulable: node.unschedulable,
    }
}
