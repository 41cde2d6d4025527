//! Upgrading Talos: in one call until 1.12, in three since 1.13.

use ichor_talos_proto::{common, machine as proto, method};
use proto::{
    image_service_pull_response::Response as PullResponse,
    lifecycle_service_install_progress::Response as InstallResponse,
};

use super::{DATA, LONG};
use crate::{
    Call, StreamCall,
    call::{Unread, answers, decode, done, only},
    error::clean,
};

answers! {
    proto::UpgradeResponse => proto::Upgrade,
    proto::RollbackResponse => proto::Rollback,
}

/// How to upgrade a machine with Talos 1.12 or older.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeRequest {
    /// The installer's image.
    pub image: String,
    /// Whether to install at the next boot, before anything runs.
    pub stage: bool,
    /// Whether to skip the checks of etcd.
    pub force: bool,
    /// Whether to reboot through the firmware.
    pub power_cycle: bool,
}

/// Upgrades a machine with Talos 1.12 or older: it fetches the image, checks etcd, answers, and then drains its
/// node, installs and reboots. `preserve` is never set: data is kept anyway, and it would skip the check of etcd.
pub fn upgrade(how: &UpgradeRequest) -> Call<String> {
    use proto::upgrade_request::RebootMode;
    let mode = if how.power_cycle { RebootMode::Powercycle } else { RebootMode::Default };
    let request = proto::UpgradeRequest {
        image: how.image.clone(),
        preserve: false,
        stage: how.stage,
        force: how.force,
        reboot_mode: mode.into(),
    };
    Call::new(method::machine("Upgrade"), &request, DATA, |bytes| {
        Ok(clean(&only::<proto::UpgradeResponse>(bytes)?.ack))
    })
}

/// Boots what was installed before.
pub fn rollback() -> Call<()> {
    Call::new(method::machine("Rollback"), &proto::RollbackRequest {}, LONG, done::<proto::RollbackResponse>)
}

fn system_containerd() -> common::ContainerdInstance {
    common::ContainerdInstance {
        driver: common::ContainerDriver::Containerd.into(),
        namespace: common::ContainerdNamespace::NsSystem.into(),
    }
}

/// News of an image that is being fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pull {
    /// A layer: how many bytes of how many.
    Layer {
        /// Which.
        id: String,
        /// How many are there.
        offset: u64,
        /// How many there will be; 0 while nobody knows.
        total: u64,
    },
    /// It is there, under this name.
    Done(String),
}

/// Fetches an installer's image, since 1.13.
pub fn pull_image(reference: &str) -> StreamCall<Pull> {
    let request = proto::ImageServicePullRequest {
        containerd: Some(system_containerd()),
        image_ref: reference.to_owned(),
    };
    StreamCall::new(format!("{}Pull", method::IMAGE), &request, DATA, |bytes| {
        match decode::<proto::ImageServicePullResponse>(bytes)?.response {
            Some(PullResponse::Name(name)) => Ok(Pull::Done(clean(&name))),
            Some(PullResponse::PullProgress(news)) => {
                let progress = news.progress.unwrap_or_default();
                let count = |number: i64| u64::try_from(number).unwrap_or(0);
                let (offset, total) = (count(progress.offset), count(progress.total));
                Ok(Pull::Layer { id: clean(&news.layer_id), offset, total })
            }
            None => Err(Unread::Nonsense("it has no news".into())),
        }
    })
}

/// News of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A line of the installer.
    Line(String),
    /// It ended with this number; 0 is well. A machine that says anything else is as it was.
    Ended(i32),
}

/// Installs an image that is there, since 1.13. The machine neither drains its node, nor checks etcd, nor reboots.
pub fn lifecycle_upgrade(reference: &str) -> StreamCall<Progress> {
    let request = proto::LifecycleServiceUpgradeRequest {
        containerd: Some(system_containerd()),
        source: Some(proto::InstallArtifactsSource { image_name: reference.to_owned() }),
    };
    StreamCall::new(format!("{}Upgrade", method::LIFECYCLE), &request, DATA, |bytes| {
        let answer = decode::<proto::LifecycleServiceUpgradeResponse>(bytes)?;
        match answer.progress.and_then(|progress| progress.response) {
            Some(InstallResponse::Message(line)) => Ok(Progress::Line(clean(&line))),
            Some(InstallResponse::ExitCode(code)) => Ok(Progress::Ended(code)),
            None => Err(Unread::Nonsense("it has no news".into())),
        }
    })
}

#[cfg(test)]
mod tests {
    use ichor_talos_proto::Message;

    use super::*;

    #[test]
    fn news_of_an_upgrade_are_read() {
        let read = |response| {
            let progress = proto::LifecycleServiceInstallProgress { response };
            let answer = proto::LifecycleServiceUpgradeResponse { progress: Some(progress) };
            (lifecycle_upgrade("x").read)(answer.encode_to_vec().into())
        };
        assert_eq!(read(Some(InstallResponse::Message("a\n".into()))), Ok(Progress::Line("a".into())));
        assert_eq!(read(Some(InstallResponse::ExitCode(0))), Ok(Progress::Ended(0)));
        assert_eq!(read(Some(InstallResponse::ExitCode(-1))), Ok(Progress::Ended(-1)));
        assert!(read(None).is_err());
    }

    #[test]
    fn images_are_fetched_for_the_system() {
        let call = pull_image("factory.talos.dev/nocloud-installer/x:v1.13.9");
        let request = proto::ImageServicePullRequest::decode(call.head.request).expect("a message");
        let containerd = request.containerd.expect("an instance");
        assert_eq!((containerd.driver, containerd.namespace), (0, 1));
        assert_eq!(request.image_ref, "factory.talos.dev/nocloud-installer/x:v1.13.9");
    }
}
