//! Container images and installers.

use ichor_talos_proto::{
    Message, Timestamp, code,
    machine::{
        ImageListResponse, ImagePull, ImagePullRequest, ImagePullResponse, ImageServiceListResponse,
        ImageServicePullLayerProgress, ImageServicePullProgress, ImageServicePullRequest,
        ImageServicePullResponse, ImageServiceRemoveRequest, ImageServiceVerifyRequest,
        ImageServiceVerifyResponse, LifecycleServiceInstallProgress, LifecycleServiceInstallRequest,
        LifecycleServiceInstallResponse, image_service_pull_layer_progress::Status,
        image_service_pull_response::Response, lifecycle_service_install_progress::Response as Installing,
    },
};
use sha2::{Digest, Sha256};

use super::{Call, Outcome, Reply, one, refuse, request};
use crate::{
    ground::Ground,
    talos::{Machines, Mishaps, life::Step, machine::takes, streams::Source},
};

impl Machines {
    pub(super) fn call_images(&mut self, ground: &mut Ground, call: &Call<'_>, name: &str) -> Outcome {
        let lifecycle = call.rpc.method.starts_with(ichor_talos_proto::method::LIFECYCLE);
        match name {
            "Install" => self.run_installer(ground, call, true),
            "Upgrade" if lifecycle => self.run_installer(ground, call, false),
            "Pull" => self.pull(ground, call),
            "ImagePull" => self.pull_at_once(ground, call),
            "List" | "ImageList" => {
                Ok(Reply::Messages(self.list_images(ground, call, name == "ImageList"), None))
            }
            "Remove" => {
                let asked: ImageServiceRemoveRequest = request(call.rpc)?;
                let removed = self.run_mut(call.vmid).is_some_and(|run| run.images.remove(&asked.image_ref));
                if removed { Ok(Reply::Messages(vec![Vec::new()], None)) } else { missing(&asked.image_ref) }
            }
            "Verify" => {
                let asked: ImageServiceVerifyRequest = request(call.rpc)?;
                let message = "no verification rule matched the image".to_owned();
                let digested_image_ref = format!("{}@{}", asked.image_ref, digest(&asked.image_ref));
                one(&ImageServiceVerifyResponse { verified: false, message, digested_image_ref })
            }
            _ => refuse(code::UNIMPLEMENTED, format!("method {name} not implemented")),
        }
    }

    fn pull(&mut self, ground: &mut Ground, call: &Call<'_>) -> Outcome {
        let asked: ImageServicePullRequest = request(call.rpc)?;
        let image = asked.image_ref;
        if image.is_empty() {
            return refuse(code::INVALID_ARGUMENT, "image reference is required");
        }
        if Mishaps::name(&self.mishaps.pulls, &image) {
            let text = format!(
                "failed to pull image {image:?}: failed to resolve reference {image:?}: {image}: not found"
            );
            return refuse(code::UNKNOWN, text);
        }
        let answer = |response| ImageServicePullResponse { response: Some(response) }.encode_to_vec();
        let step = |status: Status, offset| {
            let progress =
                ImageServicePullLayerProgress { status: status as i32, elapsed: None, offset, total: SIZE };
            answer(Response::PullProgress(ImageServicePullProgress {
                layer_id: digest(&image),
                progress: Some(progress),
            }))
        };
        let (now, end) = (ground.now, ground.now + ground.profile.takes(takes::PULL));
        let half = ground.now + ground.profile.takes(takes::PULL / 2);
        let script = vec![
            (now, step(Status::Downloading, 0)),
            (half, step(Status::DownloadComplete, SIZE)),
            (end, step(Status::ExtractComplete, SIZE)),
            (end, answer(Response::Name(image.clone()))),
        ];
        self.after(ground, call.vmid, takes::PULL, Step::Pulled(image));
        let stream = self.open(call.vmid, Source::Script(script));
        Ok(Reply::Messages(Vec::new(), Some(stream)))
    }

    /// The pull of releases until 1.12 answers when it is done.
    fn pull_at_once(&mut self, ground: &mut Ground, call: &Call<'_>) -> Outcome {
        let asked: ImagePullRequest = request(call.rpc)?;
        let image = asked.reference;
        if image.is_empty() || Mishaps::name(&self.mishaps.pulls, &image) {
            return refuse(
                code::UNKNOWN,
                format!("error pulling image: failed to resolve reference {image:?}: not found"),
            );
        }
        if let Err(until) = call.waited(ground, takes::PULL) {
            return Ok(Reply::Wait(until));
        }
        if let Some(run) = self.run_mut(call.vmid) {
            run.images.insert(image);
        }
        one(&ImagePullResponse { messages: vec![ImagePull::default()] })
    }

    fn list_images(&self, ground: &Ground, call: &Call<'_>, old: bool) -> Vec<Vec<u8>> {
        let created =
            Some(Timestamp { seconds: i64::try_from(ground.now.unix_seconds()).unwrap_or(0), nanos: 0 });
        let images = self.run(call.vmid).into_iter().flat_map(|run| &run.images);
        let messages = images.map(|name| {
            let (name, digest) = (name.clone(), digest(name));
            if old {
                ImageListResponse { metadata: None, name, digest, size: SIZE, created_at: created }
                    .encode_to_vec()
            } else {
                let labels = std::collections::BTreeMap::new();
                ImageServiceListResponse { name, digest, size: SIZE, created_at: created, labels }
                    .encode_to_vec()
            }
        });
        messages.collect()
    }

    /// Runs an installer. Its exit code is data; nothing reboots.
    fn run_installer(&mut self, ground: &mut Ground, call: &Call<'_>, first: bool) -> Outcome {
        let asked: LifecycleServiceInstallRequest = request(call.rpc)?;
        let image = asked.source.map(|source| source.image_name).unwrap_or_default();
        let disk = asked.destination.map(|destination| destination.disk).unwrap_or_default();
        let Some(machine) = self.by_id.get(&call.vmid) else {
            return refuse(code::UNAVAILABLE, "connection closed");
        };
        let Some(run) = &machine.run else { return refuse(code::UNAVAILABLE, "connection closed") };
        if run.installing {
            return refuse(code::FAILED_PRECONDITION, "another installation/upgrade is already in progress");
        }
        let installed = machine.installed(&ground.media).is_some();
        if first && installed {
            return refuse(code::ALREADY_EXISTS, "machine is already installed");
        }
        if !first && !installed {
            return refuse(code::FAILED_PRECONDITION, "machine is not installed");
        }
        if image.is_empty() {
            return refuse(code::INVALID_ARGUMENT, "installer image name is required");
        }
        if first && disk.is_empty() {
            return refuse(code::INVALID_ARGUMENT, "destination disk is required");
        }
        if first && machine.find_disk(&disk, None).is_none() {
            let text = format!("invalid disk path: lstat {disk}: no such file or directory");
            return refuse(code::INVALID_ARGUMENT, text);
        }
        let known = |pulled: &String| *pulled == image || pulled.split('@').next() == Some(&image);
        if !run.images.iter().any(known) {
            let what = if first { "installation" } else { "upgrade" };
            return refuse(code::INTERNAL, format!("{what} failed: image {image:?}: not found"));
        }
        let exit = if first && !Mishaps::name(&self.mishaps.installs, &image) {
            0
        } else {
            self.install_exit_code(ground, call.vmid, &image)
        };
        let end = ground.now + ground.profile.takes(takes::INSTALL);
        let message = |text: &str| progress(Installing::Message(text.to_owned()));
        let mut script = vec![(ground.now, message(&format!("running Talos installer {image}")))];
        if exit == 0 {
            script.push((end, message("installation of Talos completed")));
        } else {
            script.push((end, message("Error: pre-flight checks failed")));
        }
        script.push((end, progress(Installing::ExitCode(exit))));
        if let Some(run) = self.run_mut(call.vmid) {
            run.installing = true;
        }
        self.after(ground, call.vmid, takes::INSTALL, Step::Written { image, disk: first.then_some(disk) });
        let stream = self.open(call.vmid, Source::Script(script));
        Ok(Reply::Messages(Vec::new(), Some(stream)))
    }
}

/// What an image is said to weigh.
const SIZE: i64 = 96 << 20;

/// Both answers of the lifecycle service have the same form.
fn progress(response: Installing) -> Vec<u8> {
    let progress = LifecycleServiceInstallProgress { response: Some(response) };
    LifecycleServiceInstallResponse { progress: Some(progress) }.encode_to_vec()
}

fn digest(image: &str) -> String {
    let hex: String = Sha256::digest(image.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn missing(image: &str) -> Outcome {
    refuse(code::NOT_FOUND, format!("image {image:?}: not found"))
}
