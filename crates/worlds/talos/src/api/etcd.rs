//! etcd, as its members see it.

use bytes::Bytes;
use ichor_talos_proto::{common, machine as proto, method};

use super::{DATA, LONG, SHORT};
use crate::{
    Call, StreamCall,
    call::{Unread, admit, answers, decode, done, only},
    error::clean,
};

answers! {
    proto::EtcdMemberListResponse => proto::EtcdMembers,
    proto::EtcdStatusResponse => proto::EtcdStatus,
    proto::EtcdAlarmListResponse => proto::EtcdAlarm,
    proto::EtcdAlarmDisarmResponse => proto::EtcdAlarmDisarm,
    proto::EtcdForfeitLeadershipResponse => proto::EtcdForfeitLeadership,
    proto::EtcdLeaveClusterResponse => proto::EtcdLeaveCluster,
    proto::EtcdRemoveMemberByIdResponse => proto::EtcdRemoveMemberById,
    proto::EtcdDefragmentResponse => proto::EtcdDefragment,
    proto::EtcdRecoverResponse => proto::EtcdRecover,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdMember {
    /// Its number.
    pub id: u64,
    /// The name of its machine; empty while it has not started.
    pub hostname: String,
    /// Where the other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; none while it has not started.
    pub client_urls: Vec<String>,
    /// Whether it still catches up, and has no vote.
    pub is_learner: bool,
}

/// Asks for the members: those that the cluster knows, or with `local` those that this member knows, which it can
/// tell without a quorum.
pub fn etcd_members(local: bool) -> Call<Vec<EtcdMember>> {
    let request = proto::EtcdMemberListRequest { query_local: local };
    Call::new(method::machine("EtcdMemberList"), &request, SHORT, |bytes| {
        let member = |member: proto::EtcdMember| EtcdMember {
            id: member.id,
            hostname: clean(&member.hostname),
            peer_urls: member.peer_urls.iter().map(|url| clean(url)).collect(),
            client_urls: member.client_urls.iter().map(|url| clean(url)).collect(),
            is_learner: member.is_learner,
        };
        Ok(only::<proto::EtcdMemberListResponse>(bytes)?.members.into_iter().map(member).collect())
    })
}

/// How a member is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdStatus {
    /// Its number.
    pub member_id: u64,
    /// The number of the leader; 0 while there is none.
    pub leader: u64,
    /// The size of its database, in bytes.
    pub db_size: u64,
    /// How much of it is in use.
    pub db_size_in_use: u64,
    /// How far the log is.
    pub raft_index: u64,
    /// How far it has followed the log.
    pub raft_applied_index: u64,
    /// How many leaders there were.
    pub raft_term: u64,
    /// Whether it still catches up.
    pub is_learner: bool,
    /// What it complains of.
    pub errors: Vec<String>,
}

/// Asks how this member is.
pub fn etcd_status() -> Call<EtcdStatus> {
    Call::new(method::machine("EtcdStatus"), &(), SHORT, |bytes| {
        let entry = only::<proto::EtcdStatusResponse>(bytes)?;
        let status = entry.member_status.ok_or_else(|| Unread::Nonsense("it has no status".into()))?;
        Ok(EtcdStatus {
            member_id: status.member_id,
            leader: status.leader,
            db_size: u64::try_from(status.db_size).unwrap_or(0),
            db_size_in_use: u64::try_from(status.db_size_in_use).unwrap_or(0),
            raft_index: status.raft_index,
            raft_applied_index: status.raft_applied_index,
            raft_term: status.raft_term,
            is_learner: status.is_learner,
            errors: status.errors.iter().map(|error| clean(error)).collect(),
        })
    })
}

/// What a member raises an alarm about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmKind {
    /// Its database is full.
    NoSpace,
    /// Its database is corrupt.
    Corrupt,
    /// Something else.
    Other(i32),
}

/// An alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// Whose.
    pub member_id: u64,
    /// About what.
    pub kind: AlarmKind,
}

fn alarms(alarms: &[proto::EtcdMemberAlarm]) -> Vec<Alarm> {
    let raised = alarms.iter().filter(|alarm| alarm.alarm != 0);
    let alarm = |alarm: &proto::EtcdMemberAlarm| {
        let kind = match alarm.alarm {
            1 => AlarmKind::NoSpace,
            2 => AlarmKind::Corrupt,
            other => AlarmKind::Other(other),
        };
        Alarm { member_id: alarm.member_id, kind }
    };
    raised.map(alarm).collect()
}

/// Asks for the alarms of all members.
pub fn etcd_alarm_list() -> Call<Vec<Alarm>> {
    Call::new(method::machine("EtcdAlarmList"), &(), SHORT, |bytes| {
        Ok(alarms(&only::<proto::EtcdAlarmListResponse>(bytes)?.member_alarms))
    })
}

/// Takes all alarms back, and returns which.
pub fn etcd_alarm_disarm() -> Call<Vec<Alarm>> {
    Call::new(method::machine("EtcdAlarmDisarm"), &(), LONG, |bytes| {
        Ok(alarms(&only::<proto::EtcdAlarmDisarmResponse>(bytes)?.member_alarms))
    })
}

/// Gives room back to the disk. The member answers nobody meanwhile.
pub fn etcd_defragment() -> Call<()> {
    Call::new(method::machine("EtcdDefragment"), &(), DATA, done::<proto::EtcdDefragmentResponse>)
}

/// Lets another member lead, and returns which; nothing when this one does not lead.
pub fn etcd_forfeit_leadership() -> Call<Option<String>> {
    let request = proto::EtcdForfeitLeadershipRequest {};
    Call::new(method::machine("EtcdForfeitLeadership"), &request, LONG, |bytes| {
        let member = clean(&only::<proto::EtcdForfeitLeadershipResponse>(bytes)?.member);
        Ok(Some(member).filter(|member| !member.is_empty()))
    })
}

/// Lets this member leave the cluster.
pub fn etcd_leave_cluster() -> Call<()> {
    let request = proto::EtcdLeaveClusterRequest {};
    Call::new(method::machine("EtcdLeaveCluster"), &request, LONG, done::<proto::EtcdLeaveClusterResponse>)
}

/// Removes a member from the cluster. `NotFound` is the answer when it is gone.
pub fn etcd_remove_member(id: u64) -> Call<()> {
    let request = proto::EtcdRemoveMemberByIdRequest { member_id: id };
    Call::new(
        method::machine("EtcdRemoveMemberByID"),
        &request,
        LONG,
        done::<proto::EtcdRemoveMemberByIdResponse>,
    )
}

/// Asks for a snapshot of the database, in pieces.
pub fn etcd_snapshot() -> StreamCall<Bytes> {
    let request = proto::EtcdSnapshotRequest {};
    StreamCall::new(method::machine("EtcdSnapshot"), &request, DATA, |bytes| {
        let data = decode::<common::Data>(bytes)?;
        admit(data.metadata.as_ref())?;
        Ok(data.bytes.into())
    })
}

/// The call that takes a snapshot, whose requests are pieces of it.
pub(crate) fn recover_answer() -> Call<()> {
    Call::new(method::machine("EtcdRecover"), &(), DATA, done::<proto::EtcdRecoverResponse>)
}

#[cfg(test)]
mod tests {
    use ichor_talos_proto::Message;

    use super::*;

    #[test]
    fn alarms_that_are_none_are_left_out() {
        let alarm = |member_id, alarm| proto::EtcdMemberAlarm { member_id, alarm };
        let entry =
            proto::EtcdAlarm { metadata: None, member_alarms: vec![alarm(1, 0), alarm(2, 1), alarm(3, 9)] };
        let answer = proto::EtcdAlarmListResponse { messages: vec![entry] };
        let read = (etcd_alarm_list().read)(answer.encode_to_vec().into()).expect("readable");
        let expected = [
            Alarm { member_id: 2, kind: AlarmKind::NoSpace },
            Alarm { member_id: 3, kind: AlarmKind::Other(9) },
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn removing_a_member_is_called_as_talos_spells_it() {
        assert_eq!(etcd_remove_member(7).head.method, "/machine.MachineService/EtcdRemoveMemberByID");
    }
}
