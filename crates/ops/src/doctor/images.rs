//! Where images come from: the Image Factory, and the registries that machines pull from.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures_util::future::join_all;
use ichor_factory::{Client, Extension, missing};
use ichor_model::{Code, Desired, Finding, TalosVersion, desired::Image};
use ichor_net::{Dial, Endpoint, HttpClient, Trust};
use ichor_port::{Http, Method, Request, TransportError};
use tokio::time::timeout;

use super::{Check, Group, WITHIN, counted, some};

/// The registries that Talos and Kubernetes come from, unless mirrors stand in for them.
const REGISTRIES: [&str; 2] = ["ghcr.io", "registry.k8s.io"];

/// How suppliers of images are reached.
#[derive(Clone)]
pub struct Suppliers {
    /// Makes connections.
    pub dialer: Arc<dyn Dial>,
    /// Whom to trust as the Image Factory.
    pub factory: Trust,
    /// Whether there are registries: a lab has none.
    pub registries: bool,
}

impl std::fmt::Debug for Suppliers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suppliers").field("factory", &self.factory).finish_non_exhaustive()
    }
}

/// Asks the Image Factory and the registries of a cluster.
pub async fn examine(desired: &Desired, suppliers: &Suppliers) -> Vec<Check> {
    let (factories, registries) = tokio::join!(factories(desired, suppliers), registries(desired, suppliers));
    let mut checks = factories;
    checks.push(registries);
    checks
}

/// What a factory offers.
struct Offer {
    versions: Vec<TalosVersion>,
    extensions: BTreeMap<TalosVersion, Vec<Extension>>,
}

async fn factories(desired: &Desired, suppliers: &Suppliers) -> Vec<Check> {
    let from_factory: Vec<&Image> = desired.images.iter().filter(|image| image.file.is_none()).collect();
    let urls: BTreeSet<&str> = from_factory.iter().map(|image| image.factory.as_str()).collect();
    if urls.is_empty() {
        let says = "all images are on storages already";
        return vec![Check::new("factory", Group::Images, says)];
    }
    let offers = join_all(urls.iter().map(|url| async {
        let images = from_factory.iter().filter(|image| image.factory == *url);
        (*url, offer(url, images.copied(), suppliers).await)
    }));
    let offers: BTreeMap<&str, Result<Offer, String>> = offers.await.into_iter().collect();
    vec![reached(&offers), offered(&from_factory, &offers)]
}

async fn offer<'i>(
    url: &str,
    images: impl Iterator<Item = &'i Image>,
    suppliers: &Suppliers,
) -> Result<Offer, String> {
    let client = Client::new(http(url.trim_end_matches('/'), suppliers.factory.clone(), suppliers)?);
    let late = |_| format!("it did not answer within {} seconds", WITHIN.as_secs());
    let versions =
        timeout(WITHIN, client.versions()).await.map_err(late)?.map_err(|error| error.to_string())?;
    let talos: BTreeSet<TalosVersion> =
        images.map(|image| image.talos.clone()).filter(|talos| versions.contains(talos)).collect();
    let lists = join_all(talos.into_iter().map(|talos| {
        let client = &client;
        async move {
            let list = timeout(WITHIN, client.extensions(&talos)).await;
            (talos, list)
        }
    }));
    let mut extensions = BTreeMap::new();
    for (talos, list) in lists.await {
        extensions.insert(talos, list.map_err(late)?.map_err(|error| error.to_string())?);
    }
    Ok(Offer { versions, extensions })
}

fn http(url: &str, trust: Trust, suppliers: &Suppliers) -> Result<HttpClient, String> {
    let endpoint: Endpoint = url.parse().map_err(|error: ichor_net::NotAnEndpoint| error.to_string())?;
    HttpClient::new(endpoint, trust, None, Arc::clone(&suppliers.dialer)).map_err(|error| error.to_string())
}

fn reached(offers: &BTreeMap<&str, Result<Offer, String>>) -> Check {
    let urls: Vec<String> = offers.keys().map(|url| (*url).to_owned()).collect();
    let silent = offers.iter().filter_map(|(url, offer)| Some((url, offer.as_ref().err()?)));
    let findings = silent.map(|(url, why)| {
        Finding::error(Code::UNREACHABLE, None, format!("the Image Factory at {url} gives no answer"))
            .because(why)
            .remedy("see whether it is reached from here, or name another one (`image.factory`); the Proxmox hosts download images from it too")
    });
    Check::new("factory", Group::Images, some(&urls)).with(findings)
}

/// Whether there are images of the releases, with the extensions that are wanted.
fn offered(images: &[&Image], offers: &BTreeMap<&str, Result<Offer, String>>) -> Check {
    const ID: &str = "releases";
    let mut check = Check::new(ID, Group::Images, "");
    let mut releases: BTreeSet<String> = BTreeSet::new();
    let mut extensions: BTreeSet<&str> = BTreeSet::new();
    let mut told: BTreeSet<(&TalosVersion, Vec<&str>)> = BTreeSet::new();
    for image in images {
        let Some(Ok(offer)) = offers.get(image.factory.as_str()) else {
            check.known = false;
            check.says = "the Image Factory was not asked".into();
            continue;
        };
        releases.insert(image.talos.to_string());
        extensions.extend(image.extensions.iter().map(String::as_str));
        let lacks = match offer.extensions.get(&image.talos) {
            None => Vec::new(),
            // A schematic that the inventory names has its own.
            Some(_) if image.schematic.is_some() => Vec::new(),
            Some(list) => missing(&image.extensions, list),
        };
        if !offer.versions.contains(&image.talos) && told.insert((&image.talos, Vec::new())) {
            check.findings.push(no_release(image, &offer.versions));
        } else if !lacks.is_empty() && told.insert((&image.talos, lacks.clone())) {
            check.findings.push(no_extension(image, &lacks));
        }
    }
    if check.known {
        let releases: Vec<String> = releases.into_iter().map(|talos| format!("Talos {talos}")).collect();
        check.says = format!("{}, {}", some(&releases), counted(extensions.len(), "extension"));
    }
    check
}

fn no_release(image: &Image, offered: &[TalosVersion]) -> Finding {
    let newest: Vec<String> = offered.iter().rev().take(3).map(ToString::to_string).collect();
    let has = if newest.is_empty() {
        "it has none at all".to_owned()
    } else {
        format!("it has {} and others", newest.join(", "))
    };
    Finding::error(Code::FACTORY, None, format!("the Image Factory has no Talos {}", image.talos))
        .because(has)
        .remedy("choose a release that it has (`cluster.talos`)")
}

fn no_extension(image: &Image, lacks: &[&str]) -> Finding {
    let names: Vec<String> = lacks.iter().map(|name| format!("`{name}`")).collect();
    let message = format!("the Image Factory has no {} for Talos {}", some(&names), image.talos);
    Finding::error(Code::FACTORY, None, message)
        .because("it would refuse to make the image")
        .remedy("correct the names under `image.extensions`, or leave them out")
}

/// Where a registry's images come from: its mirrors in order, then itself.
fn places(desired: &Desired, registry: &str) -> Vec<String> {
    let itself = format!("https://{registry}");
    let mirror = desired.os.mirrors.get(registry).or_else(|| desired.os.mirrors.get("*"));
    match mirror {
        None => vec![itself],
        Some(mirror) if mirror.skip_fallback => mirror.endpoints.clone(),
        Some(mirror) => mirror.endpoints.iter().cloned().chain([itself]).collect(),
    }
}

async fn registries(desired: &Desired, suppliers: &Suppliers) -> Check {
    const ID: &str = "registries";
    if !suppliers.registries {
        return Check::unknown(ID, Group::Images, "a lab has no registries");
    }
    let asked = join_all(REGISTRIES.map(|registry| async move {
        let knocks = places(desired, registry).into_iter().map(|url| async move {
            let told = answers(&url, suppliers).await;
            (url, told)
        });
        (registry, join_all(knocks).await)
    }));
    let mut check = Check::new(ID, Group::Images, "");
    let mut reached = Vec::new();
    for (registry, told) in asked.await {
        match told.iter().find(|(_, told)| told.is_ok()) {
            Some((url, _)) => reached.push(url.clone()),
            None => check.findings.push(no_registry(registry, &told)),
        }
    }
    check.says =
        if reached.is_empty() { "none answers".into() } else { format!("{} answer", some(&reached)) };
    check
}

/// Whether a registry answers at all. Whom machines trust there is theirs to judge.
async fn answers(url: &str, suppliers: &Suppliers) -> Result<(), String> {
    let whole: Endpoint = {
        let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
        let server = rest.split('/').next().unwrap_or_default();
        let server = format!("{scheme}://{server}");
        server.parse().map_err(|error: ichor_net::NotAnEndpoint| error.to_string())?
    };
    let client = HttpClient::new(whole, Trust::System, None, Arc::clone(&suppliers.dialer));
    let client = client.map_err(|error| error.to_string())?;
    let request = Request {
        method: Method::Get,
        target: "/v2/".into(),
        headers: vec![("accept", "*/*".into())],
        authorization: None,
        body: Vec::new(),
    };
    match client.send(request, WITHIN).await {
        Ok(_) | Err(TransportError::NotTrusted(_) | TransportError::Unreadable(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn no_registry(registry: &str, told: &[(String, Result<(), String>)]) -> Finding {
    let message = format!("the registry `{registry}` is not reached");
    let finding = Finding::warning(Code::REGISTRY, None, message);
    let finding = told.iter().fold(finding, |finding, (url, told)| match told {
        Ok(()) => finding,
        Err(why) => finding.because(format!("{url}: {why}")),
    });
    finding
        .because("machines pull Talos and Kubernetes from it; they may reach what this computer does not")
        .remedy("let the machines' network reach it, or name mirrors under `os.registries`")
}
