use super::*;
use crate::{Door, Lab, Progress, ground::Content, profile::Profile};

fn call(lab: &mut Lab, method: &str, path: &str, body: &str) -> Response {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let request = Request {
        method: method.into(),
        path: path.into(),
        query: query.into(),
        body: body.into(),
        ..Request::default()
    };
    match lab.call(&Door::Factory, &request) {
        Progress::Done(response) => response,
        Progress::Wait(until) => panic!("waits until {until}"),
    }
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

fn post(lab: &mut Lab, body: &str) -> String {
    let response = call(lab, "POST", "/schematics", body);
    assert_eq!(response.status, 201, "{}", text(&response));
    let answer: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    answer["id"].as_str().unwrap().into()
}

const EMPTY: &str = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba";
const AGENT: &str = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515";

#[test]
fn schematics_get_the_ids_that_the_real_factory_gives() {
    let mut lab = Lab::new(1, Profile::Instant);
    let cases = [
        ("", EMPTY),
        ("{}", EMPTY),
        ("customization:", EMPTY),
        (
            "customization:\n  systemExtensions:\n    officialExtensions: [siderolabs/qemu-guest-agent]\n",
            AGENT,
        ),
        (
            r#"{"customization":{"meta":[{"key":10,"value":"foo"}]}}"#,
            "d308a2a5ee2277bed5fbaa104fcbc8d59122abfa737df987a95b4ca763459a7f",
        ),
        (
            "overlay: {image: siderolabs/sbc-raspberrypi, name: rpi_generic}",
            "ee21ef4a5ef808a9b7484cc0dda0f25075021691c8c09a276591eedb638ea1f9",
        ),
    ];
    for (body, id) in cases {
        assert_eq!(post(&mut lab, body), id, "{body}");
        assert_eq!(call(&mut lab, "GET", &format!("/schematics/{id}"), "").status, 200);
    }
}

#[test]
fn schematics_are_read_strictly() {
    let mut lab = Lab::new(1, Profile::Instant);
    let wrong = [
        "customisation: {}",
        "customization: {extensions: []}",
        "customization: {meta: [{key: 300, value: x}]}",
        "customization: {bootloader: auto}",
        "owner: somebody",
        "a: [",
        "- 1",
    ];
    for body in wrong {
        assert_eq!(call(&mut lab, "POST", "/schematics", body).status, 400, "{body}");
    }
}

#[test]
fn errors_have_the_statuses_of_the_real_factory() {
    let mut lab = Lab::new(1, Profile::Instant);
    let missing =
        post(&mut lab, "customization: {systemExtensions: {officialExtensions: [siderolabs/nothing]}}");
    let cases = [
        (format!("/image/{EMPTY}/v1.13.9/nocloud-amd64.qcow2.sha256"), 402),
        ("/image/unknown/v1.13.9/nocloud-amd64.qcow2.sha512".into(), 402),
        ("/image/unknown/v1.13.9/nocloud-amd64.qcow2".into(), 404),
        (format!("/image/{EMPTY}/v1.99.0/nocloud-amd64.qcow2"), 404),
        (format!("/image/{EMPTY}/vwhat/nocloud-amd64.qcow2"), 500),
        (format!("/image/{EMPTY}/v1.13.9/nocloud-mips.qcow2"), 400),
        (format!("/image/{EMPTY}/v1.13.9/nocloud-amd64.vdi"), 400),
        (format!("/image/{missing}/v1.13.9/nocloud-amd64.qcow2"), 400),
        (format!("/image/{EMPTY}/1.13.9/x86_64.iso"), 400),
        (format!("/image/{EMPTY}/1.13.9/metal-x86_64.iso"), 200),
        ("/version/v1.13.9/extensions/official".into(), 200),
        ("/version/v1.13.9/overlays/official".into(), 200),
        ("/versions".into(), 200),
        ("/nothing".into(), 404),
    ];
    for (path, status) in cases {
        let response = call(&mut lab, "GET", &path, "");
        assert_eq!(response.status, status, "{path}: {}", text(&response));
        assert!(status < 400 || response.body.ends_with(b"\n"), "errors are lines of text");
    }
    let why = text(&call(&mut lab, "GET", &format!("/image/{missing}/v1.13.9/nocloud-amd64.raw"), ""));
    assert!(
        why.contains("official extension \"siderolabs/nothing\" is not available for Talos version v1.13.9")
    );
}

#[test]
fn head_tells_the_size_without_the_body() {
    let mut lab = Lab::new(1, Profile::Instant);
    let path = format!("/image/{EMPTY}/v1.13.9/nocloud-amd64.qcow2");
    let head = call(&mut lab, "HEAD", &path, "");
    let get = call(&mut lab, "GET", &path, "");
    let length = |response: &Response| {
        response.headers.iter().find(|(name, _)| name == "content-length").map(|(_, value)| value.clone())
    };
    assert!(head.body.is_empty());
    assert_eq!(length(&head), Some(get.body.len().to_string()));
    assert_eq!(length(&head), length(&get));
}

#[test]
fn every_disk_format_names_the_image_it_was_made_from() {
    let mut lab = Lab::new(1, Profile::Instant);
    let id = post(
        &mut lab,
        "customization:\n  meta: [{key: 10, value: foo}]\n  systemExtensions: {officialExtensions: \
         [siderolabs/qemu-guest-agent]}\n",
    );
    let files = ["nocloud-amd64.qcow2", "nocloud-amd64.raw", "nocloud-amd64.raw.gz", "nocloud-amd64.iso"];
    for file in files {
        let response = call(&mut lab, "GET", &format!("/image/{id}/v1.13.9/{file}"), "");
        let Content::Image(image) = image_file::recognise(&response.body) else {
            panic!("{file} is not known")
        };
        assert_eq!((image.schematic.as_str(), image.talos.as_str()), (id.as_str(), "v1.13.9"), "{file}");
        assert_eq!(image.iso, std::path::Path::new(file).extension().is_some_and(|end| end == "iso"));
        assert_eq!(image.extensions, ["siderolabs/qemu-guest-agent"]);
        assert_eq!(image.meta.get(&10).map(String::as_str), Some("foo"));
        assert_eq!(image.virtual_size, 4247 << 20);
        let cut = &response.body[..response.body.len() - 1];
        assert!(matches!(image_file::recognise(cut), Content::Bytes(_)), "{file} was cut off");
    }
    let signed = call(&mut lab, "GET", &format!("/image/{id}/1.12.0/metal-arm64-secureboot.qcow2"), "");
    let image = image_file::find(&signed.body).unwrap();
    assert!(image.secureboot && image.platform == "metal" && image.arch == "arm64");
    assert_eq!(image.virtual_size, 2246 << 20);
}

#[test]
fn qcow2_files_have_the_structure_of_version_3() {
    let lab = Lab::new(1, Profile::Instant);
    let image =
        lab.factory.installer(&format!("factory/nocloud-installer/{EMPTY}:v1.13.9"), "amd64").unwrap();
    let file = image_file::qcow2(&image);
    let word = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_be_bytes(file[at..at + 8].try_into().unwrap());
    assert_eq!((&file[..4], word(4), word(20)), (b"QFI\xfb".as_slice(), 3, 13));
    assert_eq!(long(24), image.virtual_size, "virtual size");
    assert_eq!(u64::from(word(36)), image.virtual_size.div_ceil(8 << 20), "L1 entries");
    assert_eq!(word(100), 104, "header length");
    let block = usize::try_from(long(usize::try_from(long(48)).unwrap())).unwrap();
    let counted = file[block..block + 8192].chunks(2).filter(|count| *count == [0, 1]).count();
    assert_eq!(counted * 8192, file.len(), "every cluster of the file is counted once");
}

#[test]
fn installers_are_found_by_reference() {
    let lab = Lab::new(1, Profile::Instant);
    let find = |reference: &str| lab.factory.installer(reference, "amd64");
    let image = find(&format!("factory.talos.dev/metal-installer-secureboot/{EMPTY}:v1.13.9")).unwrap();
    assert!(image.secureboot && image.platform == "metal");
    assert_eq!(find(&format!("factory.talos.dev/installer/{EMPTY}:v1.9.6")).unwrap().platform, "metal");
    assert!(find("factory.talos.dev/installer/unknown:v1.9.6").is_err());
    assert!(find(&format!("factory.talos.dev/installer/{EMPTY}:v3.0.0")).is_err());
    assert!(find("nonsense").is_err());
}

#[test]
fn hostile_files_are_only_bytes() {
    let hostile: [&[u8]; 5] = [
        b"",
        b"QFI\xfb",
        &[b"QFI\xfb".as_slice(), &[0xff; 200]].concat(),
        &[0x1f, 0x8b, 8, 0],
        &[0x55; 9_000],
    ];
    for bytes in hostile {
        assert!(matches!(image_file::recognise(bytes), Content::Bytes(_)));
    }
}
