//! Streams: watches, events and logs.

use std::time::Duration;

use ichor_model::desired::Role;
use ichor_sim::{
    profile::Profile,
    wire::{RpcReply, StreamId},
};
use ichor_talos_proto::{Message, cosi::resource as cosi, machine as api};

use crate::bench::{Bench, address};

fn open(bench: &mut Bench, method: &str, request: &impl Message) -> (Vec<Vec<u8>>, StreamId) {
    let admin = Some(bench.admin());
    match bench.raw(address(11), method, vec![request.encode_to_vec()], &[], admin) {
        RpcReply::Messages { messages, stream } => (messages, stream.expect("a stream")),
        RpcReply::Status { code, message } => panic!("{code}: {message}"),
    }
}

fn events(messages: &[Vec<u8>]) -> Vec<cosi::Event> {
    messages
        .iter()
        .flat_map(|message| cosi::WatchResponse::decode(&message[..]).expect("a response").event)
        .collect()
}

#[test]
fn a_watch_of_one_resource_begins_with_what_is_there() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let mut request = cosi::WatchRequest {
        namespace: "runtime".into(),
        r#type: "MachineStatuses.runtime.talos.dev".into(),
        id: Some("machine".into()),
        ..Default::default()
    };
    let (messages, stream) = open(&mut bench, "/cosi.resource.State/Watch", &request);
    assert!(messages[0].is_empty(), "the first message only says that the watch is set up");
    let first = events(&messages);
    assert_eq!((first.len(), first[0].event_type), (1, 0));
    let _: api::BootstrapResponse =
        bench.machine(address(11), "Bootstrap", &api::BootstrapRequest::default()).expect("bootstrap");
    for _ in 0..3 {
        bench.minute();
    }
    let (pieces, ended) = bench.follow(stream);
    assert!(!ended);
    let changes = events(&pieces);
    assert!(changes.iter().all(|change| change.event_type == 1 && change.old.is_some()));
    let last = changes
        .last()
        .and_then(|change| change.resource.clone())
        .and_then(|resource| resource.spec)
        .expect("a spec");
    assert!(last.yaml_spec.starts_with("stage: running"), "{}", last.yaml_spec);
    assert_eq!(last.proto_spec[..2], [8, 4], "stage 4 is running");
    request.id = Some("nobody".into());
    let (messages, _) = open(&mut bench, "/cosi.resource.State/Watch", &request);
    assert_eq!(events(&messages)[0].event_type, 2, "what is not there is destroyed");
    // A reboot cuts the stream.
    let _: api::RebootResponse =
        bench.machine(address(11), "Reboot", &api::RebootRequest::default()).expect("reboot");
    bench.minute();
    assert!(bench.follow(stream).1);
}

#[test]
fn a_watch_of_a_kind_replays_its_contents() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let options =
        Some(cosi::WatchOptions { bootstrap_contents: true, aggregated: true, ..Default::default() });
    let request = cosi::WatchRequest {
        namespace: "runtime".into(),
        r#type: "Services.v1alpha1.talos.dev".into(),
        options,
        ..Default::default()
    };
    let (messages, stream) = open(&mut bench, "/cosi.resource.State/Watch", &request);
    assert_eq!(messages.len(), 2, "all in one message");
    let contents = events(&messages);
    assert_eq!(contents.last().expect("an end").event_type, 3);
    let id = |event: &cosi::Event| {
        event.resource.as_ref().and_then(|resource| resource.metadata.clone()).map(|metadata| metadata.id)
    };
    assert!(contents.iter().any(|event| id(event).as_deref() == Some("apid")));
    assert!(!contents.iter().any(|event| id(event).as_deref() == Some("etcd")), "etcd does not run yet");
    let _: api::BootstrapResponse =
        bench.machine(address(11), "Bootstrap", &api::BootstrapRequest::default()).expect("bootstrap");
    bench.minute();
    let (pieces, _) = bench.follow(stream);
    assert!(
        events(&pieces).iter().any(|event| event.event_type == 0 && id(event).as_deref() == Some("etcd"))
    );
}

#[test]
fn resources_that_are_not_there_and_kinds_that_nobody_knows() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let (code, message) =
        bench.resource(address(11), "k8s", "Nodenames.kubernetes.talos.dev", "x").expect_err("absent");
    assert_eq!(
        (code, message.as_str()),
        (5, "resource Nodenames.kubernetes.talos.dev(k8s/x@undefined) doesn't exist")
    );
    let unknown = bench.resource(address(11), "k8s", "Nothings.talos.dev", "x").expect_err("unknown");
    assert_eq!(unknown, (7, "resource type \"Nothings.talos.dev\" is not supported".into()));
    let elsewhere =
        bench.resource(address(11), "nowhere", "Nodenames.kubernetes.talos.dev", "x").expect_err("unknown");
    assert_eq!(elsewhere, (7, "namespace \"nowhere\" is not supported".into()));
}

#[test]
fn events_tell_of_a_reboot_by_its_actor() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let (messages, stream) = open(
        &mut bench,
        "/machine.MachineService/Events",
        &api::EventsRequest { tail_events: -1, ..Default::default() },
    );
    let decode = |message: &Vec<u8>| api::Event::decode(&message[..]).expect("an event");
    assert_eq!(decode(&messages[0]), api::Event::default(), "the first says hello");
    let kinds: Vec<String> =
        messages[1..].iter().filter_map(|message| decode(message).data).map(|data| data.type_url).collect();
    assert!(kinds.contains(&"talos/runtime/machine.MachineStatusEvent".to_owned()), "{kinds:?}");
    let answer: api::RebootResponse =
        bench.machine(address(11), "Reboot", &api::RebootRequest::default()).expect("reboot");
    let (pieces, _) = bench.follow(stream);
    let actor = &answer.messages[0].actor_id;
    assert!(pieces.iter().any(|piece| decode(piece).actor_id == *actor));
}

#[test]
fn whoever_follows_a_reset_hears_of_it_however_fast_it_is() {
    let mut bench = Bench::seeded("v1.13.9", 1, Profile::Instant);
    bench.join(11, Role::ControlPlane);
    let request = api::ResetRequest { reboot: true, ..Default::default() };
    let _: api::ResetResponse = bench.machine(address(11), "Reset", &request).expect("reset");
    // A client may begin to follow the machine a little late.
    let request = api::EventsRequest::default();
    let (_, stream) = open(&mut bench, "/machine.MachineService/Events", &request);
    bench.lab.advance(bench.lab.ground.now + Duration::from_mins(1));
    let (pieces, ended) = bench.follow(stream);
    let data = |piece: &Vec<u8>| api::Event::decode(&piece[..]).ok()?.data;
    let tasks = pieces.iter().filter_map(data).filter(|data| data.type_url.ends_with("TaskEvent"));
    let tasks = tasks.filter_map(|data| api::TaskEvent::decode(&data.value[..]).ok());
    assert!(tasks.into_iter().any(|task| task.task == "stopAllServices"), "{pieces:?}");
    assert!(ended);
}

#[test]
fn a_machine_that_reboots_is_away_even_where_nothing_takes_time() {
    let mut bench = Bench::seeded("v1.13.9", 1, Profile::Instant);
    bench.join(11, Role::ControlPlane);
    let request = api::RebootRequest::default();
    let _: api::RebootResponse = bench.machine(address(11), "Reboot", &request).expect("reboot");
    bench.lab.advance(bench.lab.ground.now + Duration::from_secs(1));
    assert!(!bench.lab.talos_addresses().contains(&address(11)));
    bench.lab.advance(bench.lab.ground.now + Duration::from_mins(1));
    assert!(bench.lab.talos_addresses().contains(&address(11)));
}

#[test]
fn logs_and_kernel_messages_are_followed() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let request = api::LogsRequest {
        namespace: "system".into(),
        id: "etcd".into(),
        follow: true,
        tail_lines: -1,
        driver: 0,
    };
    let (messages, stream) = open(&mut bench, "/machine.MachineService/Logs", &request);
    assert!(!messages.is_empty());
    let _: api::BootstrapResponse =
        bench.machine(address(11), "Bootstrap", &api::BootstrapRequest::default()).expect("bootstrap");
    bench.minute();
    assert!(!bench.follow(stream).0.is_empty());
    let (messages, _) =
        open(&mut bench, "/machine.MachineService/Dmesg", &api::DmesgRequest { follow: true, tail: false });
    let text: String = messages.iter().map(|message| String::from_utf8_lossy(message).into_owned()).collect();
    assert!(text.contains("[talos] service[etcd](Preparing)"), "{text}");
}

#[test]
fn hostile_requests_are_answered() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let methods = [
        "",
        "/",
        "nonsense",
        "/machine.MachineService/",
        "/machine.MachineService/Nothing",
        "/a/b/c",
        "/machine.MachineService/ApplyConfiguration",
        "/machine.MachineService/Reset",
        "/cosi.resource.State/Watch",
        "/machine.MachineService/EtcdRecover",
        "/machine.ImageService/Pull",
        "/machine.LifecycleService/Install",
    ];
    for method in methods {
        for bytes in [Vec::new(), vec![0xff; 40], vec![10, 0xff, 0xff, 0xff, 0xff, 0x0f], vec![8; 3]] {
            let admin = Some(bench.admin());
            let _ = bench.raw(
                address(11),
                method,
                vec![bytes.clone()],
                &[("node", ""), ("nodes", ":")],
                admin.clone(),
            );
            let _ = bench.raw(address(11), method, vec![bytes], &[], Some(vec![1, 2, 3]));
            let _ = bench.raw(address(11), method, Vec::new(), &[], admin);
        }
    }
}
