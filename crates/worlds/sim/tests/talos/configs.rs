//! Applying configs: what is taken, what is refused, and how.

use ichor_machineconfig::pki::{Certificate, TalosRole};
use ichor_model::{Minor, desired::Role};
use ichor_sim::tls::Clients;
use ichor_talos_proto::{cosi::resource as cosi, machine as api};

use crate::bench::{Bench, address, bundle, certificate, first};

fn maintenance(talos: &'static str) -> Bench {
    let mut bench = Bench::new(talos);
    let hardware = bench.hardware(11);
    bench.switch_on(&hardware);
    bench.minute();
    bench
}

#[test]
fn a_config_closes_the_open_door() {
    for talos in ["v1.8.4", "v1.11.5", "v1.12.6", "v1.13.9", "v1.14.0"] {
        let mut bench = maintenance(talos);
        let config = bench.config(Role::ControlPlane, "cp-1");
        bench.apply(address(11), config.clone()).unwrap_or_else(|error| panic!("{talos}: {error:?}"));
        bench.minute();
        let persona = bench.lab.talos_persona(address(11)).expect("secure");
        assert!(matches!(persona.clients, Clients::Required(_)), "{talos}");
        let served = Certificate::from_der(&persona.certificates[0]).expect("a certificate");
        assert!(served.is_signed_by(bench.bundle.os.certificate()), "{talos}");
        let open: Result<api::VersionResponse, _> =
            bench.insecure(address(11), "/machine.MachineService/Version", &());
        assert_eq!(open.expect_err("no certificate").0, 14, "{talos}");
        assert_eq!(bench.version(address(11)), Ok(talos.into()));
        // What was submitted comes back byte for byte.
        let yaml = bench
            .resource(address(11), "config", "MachineConfigs.config.talos.dev", "v1alpha1")
            .expect("admin");
        let quoted = bench.minor() >= Minor::new(1, 12);
        let text: String =
            if quoted { serde_json::from_str(yaml.trim_end()).expect("a text in quotes") } else { yaml };
        assert_eq!(text.into_bytes(), config, "{talos}");
    }
}

#[test]
fn broken_configs_are_refused_with_the_codes_of_the_release() {
    for (talos, unknown_code, prefix) in [("v1.12.6", 2, "failed to parse config: "), ("v1.13.9", 3, "")] {
        let mut bench = maintenance(talos);
        let mut config = bench.config(Role::ControlPlane, "cp-1");
        config.extend_from_slice(b"---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\nmut: 1\n");
        let (code, message) = bench.apply(address(11), config).expect_err("an unknown key");
        assert_eq!(code, unknown_code, "{talos}");
        assert!(message.starts_with(&format!("{prefix}unknown keys found during decoding:\n")), "{message}");
        let (code, _) = bench.apply(address(11), b"machine: [".to_vec()).expect_err("no YAML");
        assert_eq!(code, unknown_code, "{talos}");
        // Readable, but not valid: there is no cluster in it.
        let (code, message) =
            bench.apply(address(11), b"machine:\n  type: controlplane\n".to_vec()).expect_err("not valid");
        assert_eq!(code, 3, "{talos}: {message}");
        assert!(message.contains(" occurred:\n\t* "), "{talos}: {message}");
        assert_eq!(message.starts_with("configuration validation failed: "), talos == "v1.12.6", "{message}");
        assert!(matches!(bench.lab.talos_persona(address(11)).expect("still open").clients, Clients::Anyone));
    }
}

#[test]
fn a_kubernetes_that_this_talos_does_not_know_is_refused() {
    let mut bench = maintenance("v1.13.9");
    let bundle = bench.bundle.clone();
    let config = bench.config_with(Role::ControlPlane, "cp-1", &bundle, |blueprint| {
        blueprint.kubernetes = ichor_model::KubernetesVersion::new(1, 40, 0);
    });
    let (code, message) = bench.apply(address(11), config).expect_err("too new");
    assert_eq!(code, 3);
    assert!(
        message.starts_with(
            "1 error occurred:\n\t* v1alpha1.Config: 4 errors occurred:\n\t* kubelet image is not valid: "
        ),
        "{message}"
    );
    assert!(
        message.contains("version of Kubernetes 1.40.0 is too new to be used with Talos 1.13.9"),
        "{message}"
    );
}

#[test]
fn kinds_of_later_releases_are_not_registered() {
    let mut bench = maintenance("v1.11.5");
    let mut config = bench.config(Role::ControlPlane, "cp-1");
    config.extend_from_slice(b"---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n");
    let (code, message) = bench.apply(address(11), config).expect_err("since 1.12");
    assert_eq!(
        (code, message.as_str()),
        (2, "failed to parse config: \"LinkConfig\" \"v1alpha1\": not registered")
    );
}

#[test]
fn a_dry_run_changes_nothing() {
    for (talos, details) in [
        ("v1.12.6", "Dry run summary:\nNode is running in maintenance mode and does not have a config yet."),
        (
            "v1.13.9",
            "Dry run summary:\nApplied configuration without a reboot (skipped in dry-run).\nConfig diff:\n\n",
        ),
    ] {
        let mut bench = maintenance(talos);
        let data = bench.config(Role::ControlPlane, "cp-1");
        let request = api::ApplyConfigurationRequest { data, mode: 1, dry_run: true, ..Default::default() };
        let answer: api::ApplyConfigurationResponse = bench
            .insecure(address(11), "/machine.MachineService/ApplyConfiguration", &request)
            .expect("a dry run");
        assert!(answer.messages[0].mode_details.starts_with(details), "{}", answer.messages[0].mode_details);
        bench.minute();
        assert!(matches!(bench.lab.talos_persona(address(11)).expect("open").clients, Clients::Anyone));
    }
}

#[test]
fn a_partial_config_is_kept_and_maintenance_goes_on() {
    let mut bench = maintenance("v1.13.9");
    let partial = b"apiVersion: v1alpha1\nkind: HostnameConfig\nauto: off\nhostname: early\n".to_vec();
    bench.apply(address(11), partial).expect("taken");
    bench.minute();
    assert!(matches!(bench.lab.talos_persona(address(11)).expect("open").clients, Clients::Anyone));
    let config = bench.config(Role::ControlPlane, "cp-1");
    bench.apply(address(11), config).expect("the rest");
    bench.minute();
    assert_eq!(bench.version(address(11)), Ok("v1.13.9".into()));
    let bare = b"apiVersion: v1alpha1\nkind: HostnameConfig\nauto: off\nhostname: late\n".to_vec();
    let (code, message) = bench.reapply(address(11), bare, 1).expect_err("a running machine needs all of it");
    assert_eq!(code, 3);
    assert!(message.contains("did you mean to patch"), "{message}");
}

#[test]
fn roles_decide_what_a_client_may_do() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let reader = certificate(&bench.bundle, &[TalosRole::Reader]);
    let operator = certificate(&bench.bundle, &[TalosRole::Operator]);
    let stranger = certificate(&bundle(2), &[TalosRole::Admin]);
    let mut ask = |method: &str, certificate: &Vec<u8>| {
        bench
            .raw(
                address(11),
                &format!("/machine.MachineService/{method}"),
                vec![Vec::new()],
                &[],
                Some(certificate.clone()),
            )
            .status()
    };
    assert_eq!((ask("Version", &reader), ask("ServiceList", &reader)), (0, 0));
    assert_eq!((ask("Reboot", &reader), ask("Kubeconfig", &operator)), (7, 7));
    assert_eq!(ask("Version", &stranger), 14, "TLS refuses what another CA signed");
    let sensitive = cosi::GetRequest {
        namespace: "config".into(),
        r#type: "MachineConfigs.config.talos.dev".into(),
        id: "v1alpha1".into(),
        options: None,
    };
    let message = vec![ichor_talos_proto::Message::encode_to_vec(&sensitive)];
    let refused = bench.raw(address(11), "/cosi.resource.State/Get", message, &[], Some(reader));
    assert_eq!(first::<cosi::GetResponse>(&refused), Err((7, "not authorized".into())));
}

#[test]
fn a_running_machine_changes_with_or_without_a_reboot() {
    let mut bench = Bench::new("v1.11.5");
    bench.join(11, Role::ControlPlane);
    let bundle = bench.bundle.clone();
    let before = bench.boot_id(address(11));
    // Kernel settings need no reboot.
    let mut config: String = String::from_utf8(bench.config(Role::ControlPlane, "node-11")).expect("text");
    config = config.replacen("machine:\n", "machine:\n    sysctls:\n        vm.swappiness: \"1\"\n", 1);
    let answer = bench.reapply(address(11), config.clone().into_bytes(), 1).expect("taken");
    assert_eq!((answer.mode, answer.mode_details.as_str()), (2, "Applied configuration without a reboot"));
    // Environment does.
    let config = config.replacen("machine:\n", "machine:\n    env:\n        GODEBUG: x\n", 1).into_bytes();
    let (code, message) = bench.reapply(address(11), config.clone(), 2).expect_err("not at once");
    assert_eq!(code, 3);
    assert!(message.starts_with("this config change can't be applied in immediate mode\ndiff:"), "{message}");
    let answer = bench.reapply(address(11), config.clone(), 1).expect("taken");
    assert_eq!(answer.mode, 0);
    assert!(answer.mode_details.starts_with("Applied configuration with a reboot: "));
    let (code, message) = bench.reapply(address(11), config, 1).expect_err("already");
    assert_eq!(code, 9);
    assert!(message.starts_with("configuration was already applied and node is rebooting"), "{message}");
    bench.minute();
    bench.minute();
    assert_ne!(bench.boot_id(address(11)), before);
    let staged = bench.config_with(Role::ControlPlane, "node-11", &bundle, |_| ());
    assert_eq!(bench.reapply(address(11), staged, 3).expect("staged").mode, 3);
    // 1.14 never reboots to apply.
    let mut newest = Bench::new("v1.14.0");
    newest.join(11, Role::ControlPlane);
    let config = newest.config(Role::ControlPlane, "node-11");
    assert_eq!(newest.reapply(address(11), config.clone(), 1).expect("taken").mode, 2);
    assert_eq!(newest.reapply(address(11), config, 0).expect_err("no reboots").0, 12);
    assert_eq!(newest.minor(), Minor::new(1, 14));
}

#[test]
fn a_trial_ends_by_itself() {
    let mut bench = Bench::new("v1.11.5");
    bench.join(11, Role::ControlPlane);
    let tried = bench.config(Role::ControlPlane, "tried");
    let request = api::ApplyConfigurationRequest { data: tried, mode: 4, ..Default::default() };
    let answer: api::ApplyConfigurationResponse =
        bench.machine(address(11), "ApplyConfiguration", &request).expect("tried");
    assert!(
        answer.messages[0].mode_details.ends_with("reverted back in 1m0s"),
        "{}",
        answer.messages[0].mode_details
    );
    let hostname = |bench: &mut Bench| -> String {
        let answer: api::HostnameResponse = bench.machine(address(11), "Hostname", &()).expect("a name");
        answer.messages[0].hostname.clone()
    };
    assert_eq!(hostname(&mut bench), "tried");
    bench.minute();
    assert_eq!(hostname(&mut bench), "node-11");
}
