//! What stays when a cluster is destroyed.

use std::time::Duration;

use ichor_kube::{Resource, api as kube};
use ichor_machineconfig::compose::Materials;
use ichor_model::{VmId, observed::Sight};
use ichor_plan::Extent;
use ichor_port::Method;
use ichor_pve::Call;
use ichor_sim::{
    faults::{Calls, Fault, Kind, Server, When},
    profile::Profile,
};
use ichor_spec::Sources;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{live::Rehearsal, site};
use crate::{
    bundle::{self, Signer},
    converge::{Goal, first_look},
    live::{Keys, Live, proxmox},
    observe::{KUBERNETES_WITHIN, KeptVolume, Remains},
};

const INVENTORY: &str = "\
cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3}
proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1, pve2], storage: {disks: local-lvm, images: local}}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}
machines:
  cp: {role: control-plane, count: 1, address: 10.0.0.11, host: pve1}
  worker: {role: worker, count: 1, address: 10.0.0.21, host: pve2}
";

const DISK: &str = "vm-9999-pvc-1";

impl Rehearsal {
    /// Looks at what stays, with how long that took; `meddle` has Kubernetes and Proxmox before.
    async fn remains(&self, meddle: impl AsyncFnOnce(&Live<'_>)) -> (Remains, Duration) {
        let found = bundle::of_cluster(
            &self.memory,
            site(&self.desired),
            None,
            Signer::Talos,
            &mut Sources::default(),
        );
        let found = found.expect("secrets");
        let materials = Materials::default();
        let live = || {
            let pve = proxmox(&self.desired.proxmox.endpoint, &self.reach()).expect("a client");
            let keys = Keys::new(&self.memory, &found.bundle).expect("keys");
            Live::new(&self.desired, pve, self.reach(), Some((keys, &found.bundle)), &materials)
                .expect("live")
        };
        meddle(&live()).await;
        let live = live();
        let survey = first_look(&live.pve, live.desired).await.expect("a look");
        let observed = Box::pin(live.observe(&survey)).await;
        let began = Instant::now();
        let remains = Box::pin(live.see_remains(&survey, &observed)).await;
        (remains, began.elapsed())
    }

    fn hang(&self, path: &str) {
        let on = Calls { server: Server::Kube, method: None, path: path.to_owned() };
        let fault = Fault { on, occurrence: 0, fault: Kind::Hang(When::Before), seen: 0 };
        self.inside.hall().visit(|lab| lab.ground.faults.0.push(fault));
    }
}

/// Makes a disk on a storage of a host.
async fn make_disk(live: &Live<'_>, host: &str, vmid: &str, name: &str) {
    let call: Call<Value> = Call::new(Method::Post, &["nodes", host, "storage", "local-lvm", "content"])
        .with("vmid", vmid)
        .with("filename", name)
        .with("size", "1G");
    live.pve.send(&call).await.unwrap_or_else(|error| panic!("{name}: {error}"));
}

async fn make_volume(live: &Live<'_>, name: &str, driver: &str, handle: &str) {
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "db", "name": format!("data-{name}")},
            "csi": {"driver": driver, "volumeHandle": handle}},
    });
    let client = live.kubernetes(&live.desired.machines[0]).expect("an address").expect("a client");
    client.send(&kube::create(&Resource::VOLUMES, None, object)).await.expect("a volume");
}

#[tokio::test(start_paused = true)]
async fn volumes_and_disks_that_stay_are_seen() {
    let rehearsal = Rehearsal::new(INVENTORY, Profile::Lab);
    assert!(rehearsal.run(Goal::up()).await.done);
    let worker: VmId = rehearsal.desired.machines[1].vmid;
    let (remains, _) = rehearsal
        .remains(async |live| {
            make_disk(live, "pve1", "9999", DISK).await;
            make_disk(live, "pve2", &worker.to_string(), &format!("vm-{worker}-disk-77")).await;
            make_disk(live, "pve2", "4711", "vm-4711-disk-0").await;
            let driver = "csi.proxmox.sinextra.dev";
            make_volume(live, "a", driver, &format!("lab/pve1/local-lvm/{DISK}")).await;
            make_volume(live, "b", driver, "lab/pve2/local-lvm/vm-9999-pvc-2").await;
            make_volume(live, "c", driver, "lab/pve7/gone/vm-9999-pvc-3").await;
            make_volume(live, "d", "driver.longhorn.io", "pvc-4").await;
        })
        .await;
    let volume = |name: &str, disk: &str, host: &str, there| KeptVolume {
        name: name.into(),
        claim: Some(format!("db/data-{name}")),
        capacity: "1Gi".into(),
        disk: disk.into(),
        host: Some(host.into()),
        there,
    };
    let Sight::Seen(volumes) = &remains.volumes else { panic!("{:?}", remains.volumes) };
    assert_eq!(
        volumes[..2],
        [
            volume("a", "local-lvm:vm-9999-pvc-1", "pve1", Sight::Seen(true)),
            volume("b", "local-lvm:vm-9999-pvc-2", "pve2", Sight::Seen(false)),
        ]
    );
    assert!(volumes.len() == 3 && volumes[2].there.seen().is_none(), "{volumes:?}");
    let disks: Vec<&str> = remains.disks.iter().map(|disk| disk.volume.as_str()).collect();
    assert_eq!(disks, [format!("local-lvm:vm-{worker}-disk-77")], "and neither those of VMs nor of others");
    assert!(remains.images.iter().all(|image| image.volume.starts_with("local:import/")), "{remains:?}");
    assert_eq!((remains.images.len(), &remains.unseen), (2, &Vec::new()));
    // All of that is there when the cluster is gone, and only then nobody can tell what Kubernetes had.
    assert!(rehearsal.run(Goal::Gone(Extent::Machines)).await.done);
    let (after, _) = rehearsal.remains(async |_| {}).await;
    assert_eq!(after.volumes, Sight::Unseen("no control plane runs".into()));
    assert_eq!((after.disks, after.images), (remains.disks, remains.images));
}

#[tokio::test(start_paused = true)]
async fn a_kubernetes_that_does_not_answer_is_not_waited_for() {
    let rehearsal = Rehearsal::new(INVENTORY, Profile::Lab);
    assert!(rehearsal.run(Goal::up()).await.done);
    rehearsal.hang("/api/v1/persistentvolumes");
    let (remains, took) = rehearsal.remains(async |_| {}).await;
    let Sight::Unseen(why) = &remains.volumes else { panic!("{:?}", remains.volumes) };
    assert!(why.contains("no answer within"), "{why}");
    assert!(took <= KUBERNETES_WITHIN + Duration::from_secs(1), "{took:?}");
    assert_eq!(remains.images.len(), 2, "the storages were asked all the same");
}
