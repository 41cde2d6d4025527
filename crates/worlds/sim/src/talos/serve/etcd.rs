//! Calls about etcd.

use std::time::Duration;

use ichor_model::Minor;
use ichor_talos_proto::{
    Message, code,
    common::Data,
    machine::{
        Bootstrap, BootstrapRequest, BootstrapResponse, EtcdAlarm, EtcdAlarmDisarm, EtcdAlarmDisarmResponse,
        EtcdAlarmListResponse, EtcdClusterDowngrade, EtcdDefragment, EtcdDefragmentResponse,
        EtcdDowngradeCancel, EtcdDowngradeCancelResponse, EtcdDowngradeEnable, EtcdDowngradeEnableRequest,
        EtcdDowngradeEnableResponse, EtcdDowngradeValidate, EtcdDowngradeValidateRequest,
        EtcdDowngradeValidateResponse, EtcdForfeitLeadership, EtcdForfeitLeadershipResponse,
        EtcdLeaveCluster, EtcdLeaveClusterResponse, EtcdMember, EtcdMemberAlarm, EtcdMemberListResponse,
        EtcdMemberStatus, EtcdMembers, EtcdRecover, EtcdRecoverResponse, EtcdRemoveMemberById,
        EtcdRemoveMemberByIdRequest, EtcdRemoveMemberByIdResponse, EtcdStatus, EtcdStatusResponse,
    },
};

use super::{Call, Outcome, Refusal, Reply, one, refuse, request};
use crate::{
    ground::Ground,
    talos::{
        Machines,
        etcd::Etcd,
        machine::{Run, State},
        release, snapshot,
    },
};

/// Talos waits this long for the clock before it refuses to bootstrap.
const CLOCK_WAIT: Duration = Duration::from_secs(5);
/// Talos' etcd client waits this long for a connection.
const DIAL: Duration = Duration::from_secs(5);
/// Chunks of a snapshot.
const CHUNK: usize = 1 << 20;
/// The largest snapshot that the lab takes.
const MOST_SNAPSHOT: usize = 256 << 20;

impl Machines {
    pub(super) fn call_etcd(&mut self, ground: &mut Ground, call: &Call<'_>, name: &str) -> Outcome {
        if name == "Bootstrap" {
            return self.bootstrap(ground, call);
        }
        if name == "EtcdRecover" {
            return self.recover(call);
        }
        self.check_control_plane(call, api_name(name))?;
        let data = self.by_id.get(&call.vmid).and_then(|machine| machine.etcd_data(&ground.media));
        let runs = self.run(call.vmid).is_some_and(Run::serves_etcd);
        let Some((cluster, member)) = data.filter(|_| runs) else {
            // Nobody listens: the client inside Talos tries until its time is up.
            return match call.waited(ground, DIAL) {
                Err(until) => Ok(Reply::Wait(until)),
                Ok(()) => refuse(code::UNKNOWN, "context deadline exceeded"),
            };
        };
        let alive = self.alive(ground, &cluster);
        let release = self.run(call.vmid).map_or(Minor::new(1, 14), Run::minor);
        let Some(etcd) = self.clusters.get_mut(&cluster) else {
            return refuse(code::UNKNOWN, "context deadline exceeded");
        };
        let leaderless = etcd.leader.is_none();
        match name {
            // These ask the local member only.
            "EtcdStatus" => return one(&status(etcd, member, release)),
            "EtcdDefragment" => {
                etcd.unused = 0;
                return one(&EtcdDefragmentResponse { messages: vec![EtcdDefragment::default()] });
            }
            _ if leaderless => return refuse(code::UNKNOWN, no_leader(name)),
            "EtcdMemberList" => return one(&member_list(etcd)),
            "EtcdAlarmList" => {
                let answer = EtcdAlarm { metadata: None, member_alarms: alarms(etcd) };
                return one(&EtcdAlarmListResponse { messages: vec![answer] });
            }
            "EtcdAlarmDisarm" => {
                let answer = EtcdAlarmDisarm { metadata: None, member_alarms: alarms(etcd) };
                etcd.alarms.clear();
                return one(&EtcdAlarmDisarmResponse { messages: vec![answer] });
            }
            "EtcdRemoveMemberByID" => {
                let asked: EtcdRemoveMemberByIdRequest = request(call.rpc)?;
                remove(etcd, asked.member_id, &alive)?;
                return one(&EtcdRemoveMemberByIdResponse {
                    messages: vec![EtcdRemoveMemberById::default()],
                });
            }
            "EtcdForfeitLeadership" => return one(&forfeit(etcd, member, &alive)),
            "EtcdDowngradeValidate" | "EtcdDowngradeEnable" | "EtcdDowngradeCancel" => {
                return downgrade(call, name, release);
            }
            _ => {}
        }
        if name == "EtcdLeaveCluster" {
            return match self.leave_etcd(ground, call.vmid) {
                Ok(()) => one(&EtcdLeaveClusterResponse { messages: vec![EtcdLeaveCluster::default()] }),
                Err(reason) => refuse(code::UNKNOWN, format!("failed to leave cluster: {reason}")),
            };
        }
        if name == "EtcdSnapshot" {
            let revision = etcd.index;
            let state = ground.kubernetes.get(&cluster).map(|view| view.state.clone()).unwrap_or_default();
            let file = snapshot::write(&state, revision);
            let chunks = file
                .chunks(CHUNK)
                .map(|chunk| Data { metadata: None, bytes: chunk.to_vec() }.encode_to_vec());
            return Ok(Reply::Messages(chunks.collect(), None));
        }
        refuse(code::UNIMPLEMENTED, format!("method {name} not implemented"))
    }

    /// Refuses what only control planes do.
    fn check_control_plane(&self, call: &Call<'_>, what: &str) -> Result<(), Refusal> {
        let Some(run) = self.run(call.vmid) else { return refuse(code::UNAVAILABLE, "connection closed") };
        if run.wanted.is_none() {
            return refuse(code::UNIMPLEMENTED, format!("machine type is not set, cannot use {what} API"));
        }
        if !run.is_control_plane() {
            return refuse(code::UNIMPLEMENTED, format!("{what} is only available on control plane nodes"));
        }
        Ok(())
    }

    /// The order of the checks is Talos' own.
    fn bootstrap(&mut self, ground: &mut Ground, call: &Call<'_>) -> Outcome {
        let asked: BootstrapRequest = request(call.rpc)?;
        let Some(run) = self.run(call.vmid) else { return refuse(code::UNAVAILABLE, "connection closed") };
        let whole = release::maintenance_is_whole(run.minor());
        let early = || refuse(code::FAILED_PRECONDITION, "bootstrap is not available yet");
        if whole {
            if run.wanted.is_some() && !run.is_healthy("cri") {
                return early();
            }
            self.check_control_plane(call, "bootstrap")?;
        } else {
            if !run.is_control_plane() {
                return refuse(
                    code::FAILED_PRECONDITION,
                    "bootstrap can only be performed on a control plane node",
                );
            }
            if !run.is_healthy("cri") {
                return early();
            }
        }
        let Some(run) = self.run(call.vmid) else { return early() };
        let has_etcd = run.wanted.as_ref().is_some_and(|wanted| !wanted.etcd.certificate.is_empty());
        if !has_etcd && release::never_reboots_to_apply(run.minor()) {
            return refuse(code::INVALID_ARGUMENT, "etcd is not configured, bootstrap is not possible");
        }
        if !run.time_synced {
            return match call.waited(ground, CLOCK_WAIT) {
                Err(until) => Ok(Reply::Wait(until)),
                Ok(()) => refuse(code::FAILED_PRECONDITION, "time is not in sync yet"),
            };
        }
        let data = self.by_id.get(&call.vmid).and_then(|machine| machine.etcd_data(&ground.media));
        if data.is_some() {
            return refuse(code::ALREADY_EXISTS, "etcd data directory is not empty");
        }
        let now = ground.now;
        let Some(run) = self.run_mut(call.vmid) else { return early() };
        run.move_service(now, "etcd", State::Finished, "Bootstrap requested");
        let uploaded = run.snapshot.take();
        let restored = if asked.recover_etcd {
            let found =
                uploaded.as_deref().ok_or("error recovering from the snapshot: no such file or directory");
            let read = found.and_then(|file| snapshot::read(file, asked.recover_skip_hash_check));
            match read {
                Ok(state) => Some(state.unwrap_or_default()),
                // The call has been answered by then; the service shows what went wrong.
                Err(reason) => {
                    run.move_service(
                        now,
                        "etcd",
                        State::Failed,
                        &format!("Failed to run pre stage: {reason}"),
                    );
                    return one(&BootstrapResponse { messages: vec![Bootstrap::default()] });
                }
            }
        } else {
            None
        };
        run.move_service(now, "etcd", State::Preparing, "Running pre state");
        self.found(ground, call.vmid, restored);
        one(&BootstrapResponse { messages: vec![Bootstrap::default()] })
    }

    /// Takes a snapshot for a later bootstrap.
    fn recover(&mut self, call: &Call<'_>) -> Outcome {
        self.check_control_plane(call, "recover")?;
        let Some(run) = self.run_mut(call.vmid) else {
            return refuse(code::UNAVAILABLE, "connection closed");
        };
        let ready = run
            .services
            .get("etcd")
            .is_some_and(|etcd| !matches!(etcd.state, State::Waiting | State::Initialized));
        if !ready {
            return refuse(code::FAILED_PRECONDITION, "etcd service is not ready for recovery yet");
        }
        let mut file = Vec::new();
        for message in &call.rpc.messages {
            let Ok(data) = Data::decode(&message[..]) else {
                return refuse(code::INTERNAL, "grpc: failed to unmarshal the received message");
            };
            file.extend_from_slice(&data.bytes);
            if file.len() > MOST_SNAPSHOT {
                return refuse(code::RESOURCE_EXHAUSTED, "error writing snapshot: no space left on device");
            }
        }
        run.snapshot = Some(file);
        one(&EtcdRecoverResponse { messages: vec![EtcdRecover::default()] })
    }
}

/// Returns the name of a call in refusals.
fn api_name(name: &str) -> &'static str {
    match name {
        "EtcdMemberList" => "member list",
        "EtcdRemoveMemberByID" => "etcd remove member",
        "EtcdLeaveCluster" => "etcd leave",
        "EtcdForfeitLeadership" => "etcd forfeit leadership",
        "EtcdSnapshot" => "etcd snapshot",
        "EtcdAlarmList" => "etcd alarm list",
        "EtcdAlarmDisarm" => "etcd alarm disarm",
        "EtcdDefragment" => "etcd defragment",
        "EtcdStatus" => "etcd status",
        _ => "etcd",
    }
}

fn no_leader(name: &str) -> String {
    let what = match name {
        "EtcdRemoveMemberByID" => "failed to remove member: ",
        "EtcdLeaveCluster" => "failed to leave cluster: ",
        "EtcdForfeitLeadership" => "failed to forfeit leadership: ",
        "EtcdSnapshot" => "failed reading etcd snapshot: ",
        "EtcdAlarmList" => "failed to list etcd alarms: ",
        "EtcdAlarmDisarm" => "failed to disarm etcd alarm: ",
        _ => "",
    };
    format!("{what}etcdserver: no leader")
}

fn member_list(etcd: &Etcd) -> EtcdMemberListResponse {
    let url = |address: std::net::IpAddr, port: u16| {
        vec![if address.is_ipv6() {
            format!("https://[{address}]:{port}")
        } else {
            format!("https://{address}:{port}")
        }]
    };
    let members = etcd.members.iter().map(|(id, member)| EtcdMember {
        id: *id,
        hostname: member.name.clone(),
        peer_urls: url(member.address, 2380),
        client_urls: url(member.address, 2379),
        is_learner: member.learner,
    });
    let answer = EtcdMembers {
        metadata: None,
        legacy_members: etcd.members.values().map(|member| member.name.clone()).collect(),
        members: members.collect(),
    };
    EtcdMemberListResponse { messages: vec![answer] }
}

fn alarms(etcd: &Etcd) -> Vec<EtcdMemberAlarm> {
    etcd.alarms.iter().map(|(member, alarm)| EtcdMemberAlarm { member_id: *member, alarm: *alarm }).collect()
}

fn status(etcd: &Etcd, member: u64, talos: Minor) -> EtcdStatusResponse {
    const USED: u64 = 12 << 20;
    let version = release::etcd(talos);
    let storage = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    let mut errors: Vec<String> = Vec::new();
    if etcd.leader.is_none() {
        errors.push("etcdserver: no leader".into());
    }
    let names = etcd.alarms.iter().map(|(id, alarm)| {
        let alarm = if *alarm == 1 { "NOSPACE" } else { "CORRUPT" };
        format!("memberID:{id} alarm:{alarm} ")
    });
    errors.extend(names);
    let size = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let facts = EtcdMemberStatus {
        protocol_version: version.to_owned(),
        db_size: size(USED + etcd.unused),
        db_size_in_use: size(USED),
        leader: etcd.leader.unwrap_or(0),
        raft_index: etcd.index,
        raft_term: etcd.term,
        raft_applied_index: etcd.index,
        errors,
        is_learner: etcd.members.get(&member).is_some_and(|member| member.learner),
        member_id: member,
        storage_version: format!("{storage}.0"),
    };
    EtcdStatusResponse { messages: vec![EtcdStatus { metadata: None, member_status: Some(facts) }] }
}

fn remove(etcd: &mut Etcd, member: u64, alive: &[u64]) -> Result<(), Refusal> {
    if !etcd.members.contains_key(&member) {
        return refuse(code::NOT_FOUND, "etcdserver: member not found");
    }
    if !etcd.can_lose(member, alive) {
        let text =
            "failed to remove member: etcdserver: re-configuration failed due to not enough started members";
        return refuse(code::UNKNOWN, text);
    }
    etcd.members.remove(&member);
    etcd.alarms.remove(&member);
    etcd.change();
    if etcd.leader == Some(member) {
        let rest: Vec<u64> = alive.iter().copied().filter(|id| *id != member).collect();
        etcd.elect(&rest, None);
    }
    Ok(())
}

/// Hands the leadership on; who does not lead has nothing to hand on.
fn forfeit(etcd: &mut Etcd, member: u64, alive: &[u64]) -> EtcdForfeitLeadershipResponse {
    let mut answer = EtcdForfeitLeadership::default();
    let votes = |id: &&u64| etcd.members.get(id).is_some_and(|other| !other.learner);
    let other = alive.iter().filter(votes).copied().find(|id| *id != member);
    if let Some(other) = other.filter(|_| etcd.leader == Some(member)) {
        etcd.elect(alive, Some(other));
        answer.member = etcd.members.get(&other).map(|member| member.name.clone()).unwrap_or_default();
    }
    EtcdForfeitLeadershipResponse { messages: vec![answer] }
}

/// A downgrade is possible by one minor version; what follows is not recorded, so nothing does.
fn downgrade(call: &Call<'_>, name: &str, talos: Minor) -> Outcome {
    let running = release::etcd(talos);
    let minor = |version: &str| version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let cluster =
        Some(EtcdClusterDowngrade { cluster_version: format!("3.{}.0", minor(running).unwrap_or(0)) });
    let check = |wanted: &str| -> Result<(), Refusal> {
        if minor(wanted).and_then(|wanted| wanted.checked_add(1)) == minor(running)
            && wanted.starts_with("3.")
        {
            return Ok(());
        }
        refuse(code::UNKNOWN, "etcdserver: invalid downgrade target version")
    };
    match name {
        "EtcdDowngradeValidate" => {
            check(&request::<EtcdDowngradeValidateRequest>(call.rpc)?.version)?;
            let answer = EtcdDowngradeValidate { metadata: None, cluster_downgrade: cluster };
            one(&EtcdDowngradeValidateResponse { messages: vec![answer] })
        }
        "EtcdDowngradeEnable" => {
            check(&request::<EtcdDowngradeEnableRequest>(call.rpc)?.version)?;
            let answer = EtcdDowngradeEnable { metadata: None, cluster_downgrade: cluster };
            one(&EtcdDowngradeEnableResponse { messages: vec![answer] })
        }
        _ => {
            let answer = EtcdDowngradeCancel { metadata: None, cluster_downgrade: cluster };
            one(&EtcdDowngradeCancelResponse { messages: vec![answer] })
        }
    }
}
