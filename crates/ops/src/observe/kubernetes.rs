//! Looking at Kubernetes.

use std::{collections::BTreeMap, time::Duration};

use ichor_kube::{Call, List, api};
use ichor_model::observed::{NodeSeen, Sight};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::last::Last;
use crate::live::Live;

/// How long one API server may take for a list of nodes. A run often goes on without.
const PATIENCE: Duration = Duration::from_secs(10);

/// Nodes by name.
pub type Nodes = Sight<BTreeMap<String, NodeSeen>>;

/// The last list of nodes.
pub type LastNodes = Last<Nodes>;

impl Live<'_> {
    /// Looks at the nodes, as the first control plane whose API server answers shows them.
    pub(crate) async fn see_nodes(&self) -> Nodes {
        self.nodes.get(|| self.list_nodes()).await
    }

    async fn list_nodes(&self) -> Nodes {
        match self.ask_kubernetes(&api::nodes(), PATIENCE).await {
            Ok(nodes) => {
                let seen = nodes.items.into_iter().map(|node| (node.name.clone(), see(&node)));
                Sight::Seen(seen.collect())
            }
            Err(why) => Sight::Unseen(why),
        }
    }

    /// Lists objects, as the first control plane whose API server answers in time shows them.
    pub(super) async fn ask_kubernetes<T: DeserializeOwned>(
        &self,
        call: &Call<List<T>>,
        patience: Duration,
    ) -> Result<List<T>, String> {
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
            match timeout(patience, client.list(call)).await {
                Ok(Ok(list)) => return Ok(list),
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => {
                    why = format!(
                        "Kubernetes on {} gave no answer within {}s",
                        machine.name,
                        patience.as_secs()
                    );
                }
            }
        }
        Err(why)
    }
}

fn see(node: &api::Node) -> NodeSeen {
    NodeSeen {
        ready: node.ready.holds(),
        says: node.ready.message.clone(),
        version: node.kubelet.clone(),
        unschedulable: node.unschedulable,
        addresses: node.addresses.clone(),
        boot: Some(node.boot_id.clone()).filter(|boot| !boot.is_empty()),
    }
}
