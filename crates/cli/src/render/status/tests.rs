use ichor_model::{
    Observed,
    observed::{MachineSeen, Sight},
};

use super::{Status, text};
use crate::render::{document, fixture};

fn shown(observed: &Observed, width: Option<u16>) -> String {
    let shown = text(&Status::new(&fixture::live(), observed), width);
    anstream::adapter::strip_str(&shown).to_string()
}

#[test]
fn a_cluster_that_is_well_is_a_tree() {
    let observed = fixture::well(&fixture::live());
    insta::assert_snapshot!(shown(&observed, Some(80)), @r"
    cluster homelab https://10.0.0.20:6443 (Talos VIP)
      Talos v1.13.9, Kubernetes v1.36.3, etcd 3/3, nodes 5/5 ready
      control-plane
        cp-1      VM 2000 pve1 running  Talos running  etcd member  node Ready
        cp-2      VM 2001 pve2 running  Talos running  etcd member  node Ready
        cp-3      VM 2002 pve3 running  Talos running  etcd member  node Ready
      worker
        worker-1  VM 3000 pve1 running  Talos running               node Ready
        worker-2  VM 3001 pve2 running  Talos running               node Ready
    ");
    insta::assert_snapshot!(shown(&observed, Some(140)), @r"
    cluster homelab https://10.0.0.20:6443 (Talos VIP)
      Talos v1.13.9, Kubernetes v1.36.3, etcd 3/3, nodes 5/5 ready
      control-plane
        cp-1      VM 2000 pve1 running  Talos v1.13.9 running  etcd member  node Ready v1.36.3
        cp-2      VM 2001 pve2 running  Talos v1.13.9 running  etcd member  node Ready v1.36.3
        cp-3      VM 2002 pve3 running  Talos v1.13.9 running  etcd member  node Ready v1.36.3
      worker
        worker-1  VM 3000 pve1 running  Talos v1.13.9 running               node Ready v1.36.3
        worker-2  VM 3001 pve2 running  Talos v1.13.9 running               node Ready v1.36.3
    ");
    assert!(shown(&observed, Some(80)).lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn what_is_ill_or_unknown_says_why() {
    let narrow = shown(&fixture::ill(&fixture::live()), Some(80));
    let prose = |line: &str| line.starts_with("    VM ");
    assert!(narrow.lines().all(|line| prose(line) || line.chars().count() <= 80), "{narrow}");
    insta::assert_snapshot!(narrow, @r"
    cluster homelab https://10.0.0.20:6443 (Talos VIP)
      Talos v1.13.9, Kubernetes v1.36.3, etcd 1/3, nodes 1/5 ready
      etcd: 1 of 2 voters answer, 2 are needed: no quorum
      member of etcd: old-1: no machine of the inventory
      control-plane
        cp-1      VM 2000 pve1 running   Talos running
                  etcd member   node Ready, cordoned
        cp-2      VM 2001 pve2 off       Talos silent
                  etcd -        node NotReady
          Talos: no route to 10.0.0.12
          node: Kubelet stopped posting node status.
        cp-3      VM 2002 pve3 running   Talos v1.12.0 booting, not ready
                  etcd learner  node -
          Talos: it waits for time: not in sync and network
      worker
        worker-1  VM 3000 pve1 not ours  Talos ?
                                node -
          VM: it is not ours: it has another uuid
          ? Talos: its address is not known
        worker-2  VM 3001 pve2 running   Talos maintenance
                                node -
      other VMs
        VM 3009 `worker-9` on pve2: it is machine `worker-9`, which the inventory has no more
      2 differences to the inventory are left as they are
    ");
    insta::assert_snapshot!(shown(&fixture::ill(&fixture::live()), Some(120)), @r"
    cluster homelab https://10.0.0.20:6443 (Talos VIP)
      Talos v1.13.9, Kubernetes v1.36.3, etcd 1/3, nodes 1/5 ready
      etcd: 1 of 2 voters answer, 2 are needed: no quorum
      member of etcd: old-1: no machine of the inventory
      control-plane
        cp-1      VM 2000 pve1 running   Talos v1.13.9 running             etcd member   node Ready v1.36.3, cordoned
        cp-2      VM 2001 pve2 off       Talos silent                      etcd -        node NotReady v1.36.3
          Talos: no route to 10.0.0.12
          node: Kubelet stopped posting node status.
        cp-3      VM 2002 pve3 running   Talos v1.12.0 booting, not ready  etcd learner  node -
          Talos: it waits for time: not in sync and network
      worker
        worker-1  VM 3000 pve1 not ours  Talos ?                                         node -
          VM: it is not ours: it has another uuid
          ? Talos: its address is not known
        worker-2  VM 3001 pve2 running   Talos maintenance                               node -
      other VMs
        VM 3009 `worker-9` on pve2: it is machine `worker-9`, which the inventory has no more
      2 differences to the inventory are left as they are
    ");
}

/// Three vote, one of them in vain: its VM is gone, and Kubernetes has not noticed.
#[test]
fn voters_count_by_whether_they_answer() {
    let desired = fixture::live();
    let mut observed = fixture::well(&desired);
    let gone = &desired.machines[1];
    observed.vms.insert(gone.vmid, Sight::Seen(None));
    let silent = MachineSeen::Silent("it has no VM yet".into());
    observed.machines.insert(gone.name.clone(), Sight::Seen(silent.clone()));
    let tree = shown(&observed, Some(120));
    let head: Vec<&str> = tree.lines().skip(1).take(4).collect();
    insta::assert_snapshot!(head.join("\n"), @r"
      Talos v1.13.9, Kubernetes v1.36.3, etcd 2/3, nodes 4/5 ready
      etcd: 2 of 3 voters answer, 2 are needed: it has its quorum
      stale member of etcd: cp-2: its machine is gone, and its vote still counts
      control-plane
    ");
    assert!(tree.contains("etcd stale") && tree.contains("node stale"), "{tree}");
    let silent_too = &desired.machines[2];
    observed.machines.insert(silent_too.name.clone(), Sight::Seen(silent));
    let tree = shown(&observed, Some(120));
    assert!(tree.contains("etcd: 1 of 3 voters answer, 2 are needed: no quorum"), "{tree}");
    let told = Status::new(&desired, &observed).document();
    assert_eq!((&told["etcd"]["answering"], &told["etcd"]["stale"][0]), (&1.into(), &"cp-2".into()));
    // One that came back has another boot, and its kubelet has not spoken yet.
    let mut observed = fixture::well(&desired);
    if let Some(Sight::Seen(MachineSeen::Ours(talos))) = observed.machines.get_mut(&desired.machines[3].name)
    {
        talos.boot = Some("second".into());
    }
    if let Sight::Seen(nodes) = &mut observed.nodes {
        nodes.get_mut("worker-1").expect("a node").boot = Some("first".into());
    }
    let tree = shown(&observed, Some(120));
    assert!(tree.contains("nodes 4/5 ready") && tree.contains("since the machine booted"), "{tree}");
}

#[test]
fn a_machine_that_left_the_inventory_is_shown() {
    let mut desired = fixture::live();
    let observed = fixture::well(&desired);
    desired.machines.pop();
    let shown = text(&Status::new(&desired, &observed), Some(80));
    let shown = anstream::adapter::strip_str(&shown).to_string();
    assert!(shown.contains("VM 3001 `worker-2` on pve2: the inventory has no such machine\n"), "{shown}");
    assert!(shown.ends_with("  1 difference to the inventory is left as it is\n"), "{shown}");
}

#[test]
fn nothing_that_was_not_seen_looks_well() {
    insta::assert_snapshot!(shown(&Observed::default(), Some(80)), @r"
    cluster homelab https://10.0.0.20:6443 (Talos VIP)
      Talos v1.13.9, Kubernetes v1.36.3, etcd ?/3, nodes ?/5 ready
      ? etcd: nobody looked
      ? nodes: nobody looked
      control-plane
        cp-1      VM 2000 ?  Talos ?  etcd ?  node ?
          ? VM: nobody looked
          ? Talos: nobody looked
        cp-2      VM 2001 ?  Talos ?  etcd ?  node ?
          ? VM: nobody looked
          ? Talos: nobody looked
        cp-3      VM 2002 ?  Talos ?  etcd ?  node ?
          ? VM: nobody looked
          ? Talos: nobody looked
      worker
        worker-1  VM 3000 ?  Talos ?          node ?
          ? VM: nobody looked
          ? Talos: nobody looked
        worker-2  VM 3001 ?  Talos ?          node ?
          ? VM: nobody looked
          ? Talos: nobody looked
    ");
}

#[test]
fn programs_get_the_same_with_keys() {
    let desired = fixture::live();
    let mut value = Status::new(&desired, &fixture::ill(&desired)).document();
    value["machines"].as_array_mut().expect("a list").truncate(1);
    insta::assert_snapshot!(document::json(&value), @r#"
    {
      "schema": 1,
      "cluster": "homelab",
      "endpoint": "https://10.0.0.20:6443",
      "endpoint_kind": "Talos VIP",
      "talos": "v1.13.9",
      "kubernetes": "v1.36.3",
      "etcd": {
        "voters": 2,
        "answering": 1,
        "wanted": 3,
        "quorum": 2,
        "why": null,
        "stale": [],
        "strangers": [
          "old-1"
        ]
      },
      "nodes": {
        "ready": 1,
        "wanted": 5,
        "why": null,
        "strangers": []
      },
      "machines": [
        {
          "name": "cp-1",
          "role": "control-plane",
          "vm": {
            "id": 2000,
            "host": "pve1",
            "state": "running",
            "why": null
          },
          "talos": {
            "version": "v1.13.9",
            "stage": "running",
            "ready": true,
            "address": null,
            "state": "answers",
            "why": null
          },
          "etcd": {
            "state": "member",
            "why": null
          },
          "node": {
            "version": "v1.36.3",
            "schedulable": false,
            "state": "ready",
            "why": null
          }
        }
      ],
      "others": [
        {
          "vmid": 3009,
          "name": "worker-9",
          "host": "pve2",
          "whose": "this-cluster",
          "why": "it is machine `worker-9`, which the inventory has no more"
        }
      ],
      "differences": 2
    }
    "#);
}
