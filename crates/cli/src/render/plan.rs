//! A plan: the cluster, its machines and its hosts.

use ichor_model::Desired;
use serde_json::{Value, json};

use super::{
    hosts, machines,
    placement::{self, Loss, Seat},
    summary,
};

/// A cluster with what was asked about it.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The cluster as it is to be.
    pub desired: &'a Desired,
    /// The inventory's files, weakest first.
    pub files: &'a [String],
    /// Why machines go to their hosts, if that was asked.
    pub seats: Option<Vec<Seat>>,
    /// What the loss of a host would mean, if that was asked.
    pub loss: Option<Loss>,
    /// What is to be said about it, for programs.
    pub findings: Vec<Value>,
}

/// Returns the clusters as text, one after another.
pub fn text(answers: &[Answer<'_>], width: Option<u16>) -> String {
    answers.iter().map(|answer| blocks(answer, width).join("\n")).collect::<Vec<_>>().join("\n\n")
}

fn blocks(answer: &Answer<'_>, width: Option<u16>) -> Vec<String> {
    let mut blocks = vec![
        summary::block(answer.desired, answer.files),
        machines::table(answer.desired, width),
        hosts::table(answer.desired, width),
    ];
    blocks.extend(answer.seats.as_deref().map(|seats| placement::seats(seats, width)));
    blocks.extend(answer.loss.as_ref().map(|loss| placement::loss(loss, width)));
    blocks
}

/// Returns one cluster for programs: what is desired, and under keys of their own what else was asked.
pub fn document(answer: &Answer<'_>) -> Value {
    let mut value = serde_json::to_value(answer.desired).expect("what is desired has only text as keys");
    if let Value::Object(object) = &mut value {
        object.extend(answer.seats.as_ref().map(|seats| ("placement".to_owned(), json!(seats))));
        object.extend(answer.loss.as_ref().map(|loss| ("loss".to_owned(), json!(loss))));
        if !answer.findings.is_empty() {
            object.insert("findings".to_owned(), json!(answer.findings));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn answer<'a>(desired: &'a Desired, files: &'a [String]) -> Answer<'a> {
        Answer { desired, files, seats: None, loss: None, findings: Vec::new() }
    }

    #[test]
    fn a_plan_reads_from_the_cluster_to_its_hosts() {
        let desired = fixture::homelab();
        let files = ["defaults.yaml".to_owned(), "cluster.yaml".to_owned()];
        let shown = text(&[answer(&desired, &files)], None);
        insta::assert_snapshot!(anstream::adapter::strip_str(&shown).to_string(), @r"
        Cluster    homelab (production)
        Inventory  defaults.yaml, cluster.yaml
        Releases   Talos v1.13.9, Kubernetes v1.36.3
        Endpoint   https://10.0.0.20:6443 (Talos VIP)
        Machines   3 control planes, 2 workers on 3 hosts; quorum is 2
        Networks   machines 10.0.0.0/24; pods 10.244.0.0/16; services 10.96.0.0/12
        Image      v1.13.9-nocloud-amd64: disk for nocloud, amd64, with siderolabs/qemu-guest-agent
        Boot       address by cloudinit, config by maintenance API, key read from the console (4 machines)
                   address by dhcp, config by maintenance API, key read from the console (1 machine)
        Storage    disks on local-lvm; EFI on local-lvm; cloud-init on local-lvm; images on local

        MACHINE   ROLE           HOST         VMID  ADDRESS        MAC                CPU  MEMORY  DISKS                   IMAGE                  UUID
        cp-1      control-plane  pve1         2000  10.0.0.11/24   42:5d:9a:64:9b:0f    4    8GiB  40GiB                   v1.13.9-nocloud-amd64  42031b72-c15d-8c0e-bd95-92b795bb558c
        cp-2      control-plane  pve2         2001  10.0.0.12/24   ea:ff:30:75:ec:6f    4    8GiB  40GiB                   v1.13.9-nocloud-amd64  52ee17c6-e4ce-8f80-aafe-f6d79bb4c320
        cp-3      control-plane  pve3         2002  10.0.0.13/24   1a:3b:6a:35:3f:dd    4    8GiB  40GiB                   v1.13.9-nocloud-amd64  6639eb91-99d5-8222-88e8-79c06cd9f3bd
        worker-1  worker         pve1         3000  10.0.0.21/24   f2:d6:f9:69:73:8d    4   16GiB  40GiB, longhorn 200GiB  v1.13.9-nocloud-amd64  99835a2e-34b1-8bf5-9c26-774847ec1ee3
        worker-2  worker         chosen live  3001  by DHCP lease  72:5a:10:41:f9:00    4    8GiB  40GiB                   v1.13.9-nocloud-amd64  15ccd123-629e-8558-a2b9-469c699bbf38

        HOST         CONTROL PLANES  WORKERS  CPU  MEMORY    DISK
        pve1                      1        1    8   24GiB  280GiB
        pve2                      1        0    4    8GiB   40GiB
        pve3                      1        0    4    8GiB   40GiB
        chosen live               0        1    4    8GiB   40GiB
        ");
    }

    #[test]
    fn a_document_holds_everything_and_what_was_asked() {
        let desired = fixture::homelab();
        let mut asked = answer(&desired, &[]);
        for key in ["placement", "loss", "findings"] {
            assert!(document(&asked).get(key).is_none(), "{key}");
        }
        asked.seats = Some(Vec::new());
        asked.findings = vec![json!({ "code": "ICH-1509" })];
        let value = document(&asked);
        assert_eq!(value["findings"][0]["code"], "ICH-1509");
        assert_eq!(value["cluster"]["name"], "homelab");
        assert_eq!(value["machines"][0]["vmid"], 2000);
        assert_eq!(value["placement"], json!([]));
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        let mut desired = fixture::homelab();
        desired.cluster.environment = Some("\u{1b}]0;owned\u{7}".into());
        desired.machines[0].image = "\u{1b}[2J".into();
        let shown = text(&[answer(&desired, &["\u{1b}[2J".to_owned()])], None);
        let plain = anstream::adapter::strip_str(&shown).to_string();
        assert!(!plain.contains(|c: char| c.is_control() && c != '\n'), "{plain:?}");
        assert!(plain.contains("␛]0;owned␇"));
    }
}
