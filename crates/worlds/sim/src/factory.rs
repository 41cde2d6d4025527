//! The Image Factory: schematics, versions, and boot images as small files that say what they are.
//!
//! It behaves as the public factory does (version 1.5, source: its HTTP frontend and its profile parser): errors
//! are plain text, unknown schematics and versions are 404, wrong paths and extensions 400, checksums 402. It
//! serves images itself and ignores `Range`, as that factory does when it does not redirect.

pub mod catalogue;
pub mod image_file;
pub mod path;
pub mod recipe;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    factory::{path::Asset, recipe::Recipe},
    ground::{Ground, TalosImage},
    wire::{Request, Response},
};

/// The largest schematic that is read. The real limit is not recorded.
const LARGEST_SCHEMATIC: usize = 1 << 20;

/// How many schematics are kept; a client that posts without end must not fill the lab's memory.
const MOST_SCHEMATICS: usize = 10_000;

/// An Image Factory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factory {
    /// Schematics that were posted, as canonical YAML, by id.
    schematics: BTreeMap<String, String>,
}

impl Default for Factory {
    /// The public factory has known the empty schematic for as long as there are docs that name its id.
    fn default() -> Self {
        let empty = Recipe::default();
        Self { schematics: BTreeMap::from([(empty.id(), empty.canonical_yaml())]) }
    }
}

/// Why a request failed: the status and the text.
pub(crate) type Failure = (u16, String);

impl Factory {
    /// Answers a request.
    pub fn call(&mut self, ground: &mut Ground, request: &Request) -> Response {
        let mut response = self.answer(request).unwrap_or_else(|(status, text)| plain(status, &text));
        let asked = request.header("x-request-id").map(Into::into);
        response.headers.push(("x-request-id".into(), asked.unwrap_or_else(|| ground.random.uuid())));
        response.headers.push(("content-length".into(), response.body.len().to_string()));
        if request.method == "HEAD" {
            response.body.clear();
        }
        response
    }

    fn answer(&mut self, request: &Request) -> Result<Response, Failure> {
        let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
        let read = matches!(request.method.as_str(), "GET" | "HEAD");
        match (request.method.as_str(), parts.as_slice()) {
            ("POST", ["schematics"]) => self.post_schematic(&request.body),
            (_, ["schematics", id]) if read => self.schematic(id).map(|recipe| Response {
                status: 200,
                headers: vec![("content-type".into(), "application/yaml".into())],
                body: recipe.canonical_yaml().into_bytes(),
                ..Response::default()
            }),
            (_, ["versions"]) if read => Ok(versions(&request.query)),
            (_, ["version", version, "extensions", "official"]) if read => {
                Ok(json_answer(200, &catalogue::extensions_answer(&known_version(version)?)))
            }
            (_, ["version", version, "overlays", "official"]) if read => {
                Ok(json_answer(200, &catalogue::overlays_answer(&known_version(version)?)))
            }
            (_, ["image", id, version, file]) if read => self.image(id, version, file, &request.query),
            (_, ["talosctl", version]) if read => talosctl_list(version),
            (_, ["secureboot", "signing-cert.pem"] | ["oci", "cosign", "signing-key.pub"]) if read => {
                // The lab signs nothing, so it has no certificate to show.
                Err((404, "not found".into()))
            }
            (_, ["healthz"]) if read => Ok(plain(200, "")),
            (
                _,
                ["schematics" | "versions", ..]
                | ["version", _, "extensions" | "overlays", "official"]
                | ["image", _, _, _],
            ) => Err((405, "Method Not Allowed".into())),
            _ => Err((404, "404 page not found".into())),
        }
    }

    fn post_schematic(&mut self, body: &[u8]) -> Result<Response, Failure> {
        if body.len() > LARGEST_SCHEMATIC {
            return Err((413, "schematic is too large".into()));
        }
        let recipe = Recipe::read(body).map_err(|why| (400, why))?;
        let (id, yaml) = (recipe.id(), recipe.canonical_yaml());
        if self.schematics.len() >= MOST_SCHEMATICS && !self.schematics.contains_key(&id) {
            return Err((503, "too many schematics".into()));
        }
        self.schematics.insert(id.clone(), yaml.clone());
        Ok(json_answer(201, &json!({"id": id, "schematic": yaml})))
    }

    /// Lets the factory know a schematic that somebody posted long ago. Its id may be one of another factory, which
    /// adds an owner; what counts is the recipe.
    pub fn learn(&mut self, id: &str, recipe: &str) {
        self.schematics.insert(id.to_owned(), recipe.to_owned());
    }

    fn schematic(&self, id: &str) -> Result<Recipe, Failure> {
        let yaml = self.schematics.get(id).ok_or_else(|| (404, format!("schematic ID {id:?} not found")))?;
        Recipe::read(yaml.as_bytes()).map_err(|why| (500, why))
    }

    fn image(&self, id: &str, version: &str, file: &str, query: &str) -> Result<Response, Failure> {
        // Before anything else is looked at, so that it is 402 whatever the rest says.
        if file.ends_with(".sha256") || file.ends_with(".sha512") || file.ends_with(".sigstore.json") {
            return Err((402, "enterprise not enabled: checksum endpoint is not available".into()));
        }
        let recipe = self.schematic(id)?;
        let version = known_version(version)?;
        let asset =
            Asset::parse(file).map_err(|why| (400, format!("error parsing profile from path: {why}")))?;
        recipe.check_extensions(&version)?;
        let image = describe(&recipe, id, &version, &asset);
        let name = file_name(query).unwrap_or_else(|| file.into());
        Ok(Response {
            status: 200,
            headers: vec![
                ("content-type".into(), asset.content_type().into()),
                ("content-disposition".into(), format!("attachment; filename=\"{name}\"")),
            ],
            body: asset.render(&image, &recipe),
            ..Response::default()
        })
    }

    /// Returns the system extensions of every schematic, by id.
    pub fn extensions(&self) -> BTreeMap<String, Vec<String>> {
        let known = self.schematics.keys().filter_map(|id| {
            let recipe = self.schematic(id).ok()?;
            Some((id.clone(), recipe.schematic.extensions))
        });
        known.collect()
    }

    /// Shows all schematics to those who install from them.
    pub fn show(&self, ground: &mut Ground) {
        ground.schematics = self.extensions();
        let plain = |id: &&String| self.schematic(id).is_ok_and(|recipe| recipe.has_plain_names());
        ground.plain_names = self.schematics.keys().filter(plain).cloned().collect();
    }

    /// Returns what an installer image would put on a disk, if this factory can make it.
    ///
    /// The name is that of a container image, such as `factory.talos.dev/nocloud-installer/<id>:v1.13.9`.
    pub fn installer(&self, reference: &str, arch: &str) -> Result<TalosImage, String> {
        let (path, version) = reference.rsplit_once(':').ok_or("the reference has no tag")?;
        let mut parts = path.rsplit('/');
        let (id, installer) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (installer, secureboot) = match installer.strip_suffix("-secureboot") {
            Some(rest) => (rest, true),
            None => (installer, false),
        };
        let platform = match installer {
            "installer" => "metal",
            other => other.strip_suffix("-installer").ok_or("the reference names no installer")?,
        };
        let recipe = self.schematic(id).map_err(|(_, why)| why)?;
        let version = known_version(version).map_err(|(_, why)| why)?;
        recipe.check_extensions(&version).map_err(|(_, why)| why)?;
        let asset = Asset::installer(platform, arch, secureboot)?;
        // Installer images never carry META.
        Ok(TalosImage { meta: BTreeMap::new(), ..describe(&recipe, id, &version, &asset) })
    }
}

fn describe(recipe: &Recipe, id: &str, version: &str, asset: &Asset) -> TalosImage {
    TalosImage {
        talos: version.into(),
        schematic: id.into(),
        platform: asset.platform.clone(),
        arch: asset.arch.clone(),
        secureboot: asset.secureboot,
        iso: asset.is_iso(),
        extensions: recipe.schematic.extensions.clone(),
        plain_names: recipe.has_plain_names(),
        meta: recipe.schematic.meta.iter().map(|meta| (meta.key, meta.value.clone())).collect(),
        virtual_size: catalogue::virtual_size(version, &asset.arch, asset.secureboot),
    }
}

/// Returns a version with its `v`, if the factory has it.
fn known_version(version: &str) -> Result<String, Failure> {
    let bare = version.strip_prefix('v').unwrap_or(version);
    // A malformed version is the server's fault in this factory: 500.
    catalogue::parse_version(bare).ok_or_else(|| (500, format!("error parsing version: {bare:?}")))?;
    let tag = format!("v{bare}");
    if catalogue::versions().contains(&tag) {
        Ok(tag)
    } else {
        Err((404, format!("version {tag} is not available")))
    }
}

fn versions(query: &str) -> Response {
    // No version is known to be broken.
    if query.split('&').any(|pair| pair == "broken=true") {
        return json_answer(200, &json!([]));
    }
    json_answer(200, &json!(catalogue::versions()))
}

fn talosctl_list(version: &str) -> Result<Response, Failure> {
    let version = known_version(version)?;
    if catalogue::minor(&version) < 11 {
        return Err((404, format!("talosctl is not available for Talos version {version}")));
    }
    let names = ["darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64", "windows-amd64.exe"];
    Ok(json_answer(200, &json!(names.map(|name| format!("talosctl-{name}")))))
}

fn file_name(query: &str) -> Option<String> {
    let name = query.split('&').find_map(|pair| pair.strip_prefix("filename="))?;
    let clean: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-._+".contains(*c)).collect();
    (!clean.is_empty()).then_some(clean)
}

fn plain(status: u16, text: &str) -> Response {
    Response {
        status,
        headers: vec![("content-type".into(), "text/plain; charset=utf-8".into())],
        body: format!("{text}\n").into_bytes(),
        ..Response::default()
    }
}

fn json_answer(status: u16, value: &serde_json::Value) -> Response {
    Response {
        status,
        headers: vec![("content-type".into(), "application/json".into())],
        body: value.to_string().into_bytes(),
        ..Response::default()
    }
}

#[cfg(test)]
mod tests;
