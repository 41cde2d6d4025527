//! Answers the cases of `conformance/` with ichor's libraries: JSON lines in, JSON lines out.
//!
//! `counterpart generate|patch|validate|schematic|volume < cases > answers`. What a case and an answer hold is
//! said in `conformance/README.md`. Cases carry the real answer too; nothing here looks at it.
#![allow(clippy::print_stderr, clippy::disallowed_methods, reason = "a program of its own, for judges")]

use std::{
    env, fs,
    io::{self, BufRead, BufWriter, Write},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_machineconfig::{
    Config, Patch, apply,
    cidata::Files,
    emit,
    generate::{Blueprint, Cni, Install, RegistryTls, documents},
    pki::Timestamp,
    schematic::{MetaValue, Overlay, Schematic},
    secrets::{Bundle, SecretText},
    validate,
    validate::Mode,
};
use ichor_model::{Findings, Minor, SourceId, desired::Role};
use serde_json::{Map, Value, json};

/// The fields that answer a case, or the reason for refusing it.
type Answer = Result<Value, String>;

fn main() -> ExitCode {
    let answer: fn(&Value) -> Answer = match env::args().nth(1).as_deref() {
        Some("generate") => generate,
        Some("patch") => patch,
        Some("validate") => verdicts,
        Some("schematic") => schematic,
        Some("volume") => volume,
        _ => return stop("usage: counterpart generate|patch|validate|schematic|volume < cases > answers"),
    };
    match answer_all(answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => stop(&error.to_string()),
    }
}

fn stop(why: &str) -> ExitCode {
    eprintln!("counterpart: {why}");
    ExitCode::from(2)
}

fn answer_all(answer: fn(&Value) -> Answer) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line?)?;
        let mut answer = answer(&case).unwrap_or_else(|error| json!({ "error": error }));
        answer["name"] = case["name"].clone();
        writeln!(out, "{answer}")?;
    }
    out.flush()
}

// --- generate ---

fn generate(case: &Value) -> Answer {
    let request = &case["request"];
    if let Some(why) = left_to_patches(&request["options"]) {
        return Ok(json!({ "skip": why }));
    }
    let talos = release(case)?;
    let bundle = bundle(text(&request["secrets"]))?;
    let mut files = Map::new();
    for (role, name, own) in [
        (Role::ControlPlane, "controlplane", &request["controlPlanePatches"]),
        (Role::Worker, "worker", &request["workerPatches"]),
    ] {
        let blueprint = blueprint(role, request)?;
        let config = Config::from_json(&documents(&blueprint, &bundle)).map_err(|found| told(&found))?;
        let patches = texts(&request["patches"]).into_iter().chain(texts(own));
        files.insert(name.to_owned(), patched(&config, patches, talos)?.into());
    }
    Ok(json!({ "files": files }))
}

fn bundle(path: &str) -> Result<Bundle, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    let now = Timestamp::from_unix_seconds(now.as_secs());
    Bundle::from_secrets_yaml(&text, now).map_err(|flaws| flaws.to_string())
}

fn blueprint(role: Role, request: &Value) -> Result<Blueprint, String> {
    let options = &request["options"];
    let kubernetes = format!("v{}", text(&request["kubernetes"]));
    let mut blueprint = Blueprint::new(
        role,
        minor(text(&request["contract"]))?,
        text(&request["cluster"]),
        text(&request["endpoint"]),
        kubernetes.parse().map_err(|_| format!("no Kubernetes release: {kubernetes}"))?,
    );
    blueprint.sans = texts(&options["additionalSANs"]);
    blueprint.schedule_on_control_planes = options["allowSchedulingOnControlPlanes"] == true;
    blueprint.discovery = options["discovery"] != false;
    blueprint.install = Some(install(options));
    if let Some(domain) = options["dnsDomain"].as_str() {
        domain.clone_into(&mut blueprint.domain);
    }
    if let Some(url) = options["customCNIURL"].as_str() {
        blueprint.cni = Cni::Custom(url.to_owned());
    }
    if options["cniNone"] == true {
        blueprint.cni = Cni::None;
    }
    blueprint.api_port = port(&options["localAPIServerPort"]);
    if !options["kubePrismPort"].is_null() {
        blueprint.kube_prism_port = port(&options["kubePrismPort"]);
    }
    for (given, subnets) in
        [(&options["podSubnets"], &mut blueprint.pods), (&options["serviceSubnets"], &mut blueprint.services)]
    {
        if given.is_array() {
            *subnets = texts(given);
        }
    }
    blueprint.sysctls =
        entries(&options["sysctls"]).map(|(key, value)| (key.clone(), text(value).into())).collect();
    for (host, mirrors) in entries(&options["registryMirrors"]) {
        blueprint.registries.entry(host.clone()).or_default().mirrors = texts(mirrors);
    }
    for (host, ca) in entries(&options["registryCACerts"]) {
        blueprint.registries.entry(host.clone()).or_default().tls =
            Some(RegistryTls::Ca(text(ca).to_owned()));
    }
    for host in texts(&options["registryInsecure"]) {
        blueprint.registries.entry(host).or_default().tls = Some(RegistryTls::Insecure);
    }
    Ok(blueprint)
}

fn install(options: &Value) -> Install {
    let given = |key: &str| options[key].as_str().map(str::to_owned);
    Install {
        disk: given("installDisk"),
        image: given("installImage"),
        kernel_args: texts(&options["installExtraKernelArgs"]),
    }
}

/// What talosctl has an option for and ichor leaves to patches.
fn left_to_patches(options: &Value) -> Option<&'static str> {
    if options["debug"] == true {
        Some("debugging output is left to patches")
    } else if options["kubeSpan"] == true {
        Some("KubeSpan is left to patches")
    } else {
        None
    }
}

// --- patch and validate ---

fn patch(case: &Value) -> Answer {
    let config = config(&case["config"])?;
    Ok(json!({ "result": patched(&config, texts(&case["patches"]), release(case)?)? }))
}

fn patched(
    config: &Config,
    patches: impl IntoIterator<Item = String>,
    talos: Minor,
) -> Result<String, String> {
    let patches: Result<Vec<Patch>, Findings> =
        patches.into_iter().map(|text| Patch::parse("patch", SourceId(0), text.as_bytes())).collect();
    let result = patches.and_then(|patches| apply(config, &patches, talos));
    result.map(|config| emit(&config)).map_err(|found| told(&found))
}

fn verdicts(case: &Value) -> Answer {
    let talos = release(case)?;
    let verdict = |mode| match config(&case["result"]) {
        Ok(config) => errors(&validate(&config, talos, mode)),
        Err(refused) => refused,
    };
    Ok(json!({ "verdicts": { "metal": verdict(Mode::Metal), "cloud": verdict(Mode::Cloud) } }))
}

fn config(value: &Value) -> Result<Config, String> {
    Config::parse(SourceId(0), text(value).as_bytes()).map_err(|found| told(&found))
}

// --- schematic ---

fn schematic(case: &Value) -> Answer {
    let recipe: Value =
        serde_saphyr::from_str(text(&case["schematic"])).map_err(|error| error.to_string())?;
    known(&recipe, &["owner", "overlay", "customization"])?;
    let customization = &recipe["customization"];
    known(
        customization,
        &[
            "embeddedMachineConfiguration",
            "extraKernelArgs",
            "meta",
            "systemExtensions",
            "secureboot",
            "diskImage",
        ],
    )?;
    let meta = customization["meta"].as_array().into_iter().flatten();
    let meta = meta.map(|entry| MetaValue {
        key: entry["key"].as_u64().and_then(|key| u8::try_from(key).ok()).unwrap_or_default(),
        value: text(&entry["value"]).to_owned(),
    });
    let overlay = &recipe["overlay"];
    let sector_size = customization["diskImage"]["sectorSize"].as_u64().unwrap_or_default();
    let schematic = Schematic {
        owner: text(&recipe["owner"]).to_owned(),
        overlay: overlay.is_object().then(|| Overlay {
            image: text(&overlay["image"]).to_owned(),
            name: text(&overlay["name"]).to_owned(),
        }),
        embedded_config: text(&customization["embeddedMachineConfiguration"]).to_owned(),
        kernel_args: texts(&customization["extraKernelArgs"]),
        meta: meta.collect(),
        extensions: texts(&customization["systemExtensions"]["officialExtensions"]),
        well_known_certificates: customization["secureboot"]["includeWellKnownCertificates"] == true,
        sector_size: u32::try_from(sector_size).map_err(|error| error.to_string())?,
        ..Schematic::default()
    };
    Ok(json!({ "id": schematic.id() }))
}

fn known(map: &Value, keys: &[&str]) -> Result<(), String> {
    match entries(map).find(|(key, _)| !keys.contains(&key.as_str())) {
        Some((key, _)) => Err(format!("unknown key `{key}`")),
        None => Ok(()),
    }
}

// --- reading cases ---

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|item| text(item).to_owned()).collect()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn port(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
}

/// The release that a case is about, without its patch number: rules change with minor releases.
fn release(case: &Value) -> Result<Minor, String> {
    let talos = text(&case["talos"]);
    minor(talos.rsplit_once('.').map_or(talos, |(minor, _)| minor))
}

fn minor(text: &str) -> Result<Minor, String> {
    text.parse().map_err(|_| format!("no release: `{text}`"))
}

fn told(findings: &Findings) -> String {
    findings.iter().map(|finding| finding.message.as_str()).collect::<Vec<_>>().join("; ")
}

fn errors(findings: &Findings) -> String {
    told(
        &findings
            .iter()
            .filter(|finding| finding.severity == ichor_model::Severity::Error)
            .cloned()
            .collect(),
    )
}

// --- volume ---

fn volume(case: &Value) -> Answer {
    let files = &case["files"];
    let files = Files {
        user_data: SecretText::new(text(&files["user-data"])),
        meta_data: text(&files["meta-data"]).to_owned(),
        network_config: text(&files["network-config"]).to_owned(),
    };
    let image = files.iso().map_err(|error| error.to_string())?;
    Ok(json!({ "image": STANDARD.encode(image.expose()) }))
}
